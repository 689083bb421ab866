"""The one habit of commands that change or delete more than a sync does: a dry run until somebody says `--yes`.

A command that asks on a terminal shows what it would do first. Where nobody can answer it is refused, and doesn't end
as if all were well: a script that calls it without `--yes` wanted it done.
"""

from __future__ import annotations

import sys
from typing import Any

import typer

from sterna.cli.output import Output
from sterna.errors import UsageError
from sterna.text.dry_run import NOTHING_CHANGED


def should_apply(yes: bool, dry_run: bool) -> bool:
    """Tell whether a command that is a dry run until `--yes` is to act.

    Raises:
        UsageError: both were said.
    """
    if yes and dry_run:
        raise UsageError("--yes and --dry-run don't go together")
    return yes


def confirm(output: Output, text: str, fields: Any, *, yes: bool, dry_run: bool) -> bool:
    """Show what a command would do and ask for a word; tell whether it was given.

    Args:
        output: where the result of a dry run goes.
        text: what the command would do, for people.
        fields: the same as data, for `--json`.
        yes: the word was given already.
        dry_run: only show it.

    Raises:
        UsageError: nobody is there to answer, or both flags were given.
        typer.Abort: the answer was no.
    """
    should_apply(yes, dry_run)
    if dry_run:
        output.result(fields, f"{text}\n{NOTHING_CHANGED}")
        return False
    typer.echo(text, err=True)
    return yes or _prompt()


def _prompt() -> bool:
    if not sys.stdin.isatty():
        raise UsageError("this asks before it acts, and nobody is at the terminal", hint=NOTHING_CHANGED)
    return typer.confirm("Go on?", abort=True, err=True)
