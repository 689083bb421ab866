"""One way out for every command: text for people, or one JSON object on the last line.

Progress and errors go to stderr.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, Task, TextColumn
from rich.progress_bar import ProgressBar
from rich.table import Column

from sterna.errors import ExitCode, SternaError, first_exit_code, printable, printable_lines
from sterna.operations.run_book import error_card
from sterna.replication.replica.progress import ProgressLine, throttled
from sterna.runtime.status import ReconcilerStatus
from sterna.text.plain import to_plain
from sterna.text.reconcilers import status_text


class _ProgressBar(BarColumn):
    """A bar that shows while something is begun and not done."""

    def render(self, task: Task) -> ProgressBar:
        """Return the bar, of no width before and after."""
        bar = super().render(task)
        bar.width = self.bar_width if 0 < task.completed < 1 else 0
        return bar


class Output:
    """Prints results to stdout and everything else to stderr.

    Args:
        as_json: print results as one JSON object on one line instead of text.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self._out = Console(highlight=False, soft_wrap=True)
        self._err = Console(stderr=True, highlight=False, soft_wrap=True)

    def result(self, value: Any, text: str, exit_code: int = ExitCode.SUCCESS) -> None:
        """Print a command's result: `value` as JSON, which is ASCII whatever a writer put into a name; or `text`.

        Args:
            exit_code: of what the result shows; a command ends with it.

        Raises:
            typer.Exit: it isn't success.
        """
        if self.as_json:
            sys.stdout.write(json.dumps(to_plain(value)) + "\n")
            sys.stdout.flush()
        else:
            self._out.print(text, markup=False)
        if exit_code:
            raise typer.Exit(exit_code)

    def statuses(self, region: str, kind: str, statuses: Sequence[ReconcilerStatus]) -> None:
        """Print how far consumers of a region are; `kind` is their key in JSON.

        Raises:
            typer.Exit: one has an exit code: that of the first.
        """
        fields = {"region": region, kind: [status.fields() for status in statuses]}
        self.result(fields, status_text(statuses), first_exit_code(status.exit_code for status in statuses))

    def line(self, text: str) -> None:
        """Print a line of a command's running text; to stderr when the result is JSON."""
        (self._err if self.as_json else self._out).print(printable_lines(text), markup=False)

    @contextmanager
    def progress(self, title: str) -> Iterator[Callable[[str], None]]:
        """Show progress: on a terminal a moving line with the latest message below the finished ones, and a bar where
        the message has a fraction; otherwise plain lines.
        """
        if not self._err.is_terminal:
            yield throttled(lambda text: self._err.print(printable_lines(text), markup=False))
            return
        description = TextColumn("{task.description}", table_column=Column(no_wrap=True, overflow="ellipsis"))
        with Progress(
            SpinnerColumn(), _ProgressBar(bar_width=30), description, console=self._err, transient=True
        ) as display:
            task = display.add_task(escape(title), total=1.0, visible=True)

            def show(text: str) -> None:
                line = printable_lines(text)
                display.update(task, description=escape(f"{title}: {line}"))
                if isinstance(text, ProgressLine):
                    display.update(task, completed=text.fraction)
                else:
                    self._err.print(f"[dim]{escape(line)}[/dim]")

            yield show

    def error(self, error: SternaError) -> None:
        """Print an error with what to do about it."""
        if self.as_json:
            location = {"table": printable(error.table), "file": printable(error.file)}
            fields = {"error": type(error).__name__, "message": error.message, **location}
            remedy = {"hint": error.hint, "remedy": error.remedy.value, "card": error_card(error)}
            sys.stderr.write(json.dumps({**fields, **remedy}) + "\n")
        else:
            self._err.print(f"sterna: {error}", style="red", markup=False)
            card = f", see {card}" if (card := error_card(error)) else ""
            self._err.print(f"{type(error).__name__}: {error.remedy.value}{card}", style="dim", markup=False)
