"""Planting a mutation in a copy of a tree, and running tests there from the cheapest on until one fails."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from tests.mutations.model import Mutation, Result

_ALL_NEAR: Final = ("unit", "simulation")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - (.*))?$", re.MULTILINE)
_PASSED, _TESTS_FAILED = 0, 1  # exit codes of pytest
_AFTER_CTRL_C = 30.0  # seconds that tests get to end their servers
_LONGEST = 200  # characters of what a test said


class Unplantable(Exception):
    """A mutation's text doesn't stand in its file exactly once."""


@contextmanager
def copy_of(tree: Path) -> Iterator[Path]:
    """Yield a temporary copy of the files of a checkout that git doesn't ignore.

    Args:
        tree: the checkout; what is not committed comes along.
    """
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=tree,
        check=True,
        capture_output=True,
    ).stdout.decode()
    with tempfile.TemporaryDirectory(prefix="sterna-mutations-", ignore_cleanup_errors=True) as folder:
        copy = Path(folder) / "tree"
        for name in filter(None, listed.split("\0")):
            if (tree / name).is_file():
                (copy / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(tree / name, copy / name)
        yield copy


@contextmanager
def planted(copy: Path, mutation: Mutation) -> Iterator[None]:
    """Plant a mutation for as long as the block runs.

    Raises:
        Unplantable: its text is missing, or stands there more than once.
    """
    file = copy / "plugins" / "sterna" / mutation.file
    if not file.is_file():
        raise Unplantable(f"{mutation.file} is missing")
    text = file.read_text()
    spellings = [(mutation.old, mutation.new), *filter(None, [mutation.earlier])]
    fitting = [(old, new) for old, new in spellings if text.count(old) == 1]
    if not fitting:
        raise Unplantable(f"the text to replace stands {text.count(mutation.old)} times in {mutation.file}, not once")
    _write(file, text.replace(*fitting[0]))
    try:
        yield
    finally:
        _write(file, text)


def _write(file: Path, text: str) -> None:
    file.write_text(text)
    # Bytecode counts as current when size and second are the same.
    Path(cache_from_source(str(file))).unlink(missing_ok=True)


@dataclass
class Hunt:
    """Runs tests in a copy of a tree.

    Args:
        copy: the copy.
        processes: how many run tests at a time; 0: pytest's own.
        minutes: how long one stage may take.
        say: takes lines for people.
        with_servers: whether tests that start servers run, too.
    """

    copy: Path
    processes: int
    minutes: float
    say: Callable[[str], None]
    with_servers: bool = True
    _unreliable: set[str] = field(default_factory=set)

    def look_for(self, mutation: Mutation) -> Result:
        """Run tests from the cheapest on, until one fails that passes without the mutation."""
        started = time.monotonic()

        def result(**fields: object) -> Result:
            return Result(mutation.name, seconds=round(time.monotonic() - started, 1), **fields)  # type: ignore[arg-type]

        try:
            for stage, paths in enumerate(self._stages(mutation), 1):
                while True:
                    with planted(self.copy, mutation):
                        code, output = self._run(paths, stage)
                    failed = _FAILED.search(output)
                    if code == _PASSED:
                        break
                    if code != _TESTS_FAILED or failed is None:
                        verdict = "undecided" if code is None else "error"
                        how = f"no end within {self.minutes:g} min" if code is None else _last_line(output)
                        return result(verdict=verdict, how=f"{' '.join(paths)}: {how}", stage=stage)
                    if self._passes_without(failed[1]):
                        return result(verdict="found", by=failed[1], how=(failed[2] or "")[:_LONGEST], stage=stage)
                    self.say(f"  {failed[1]} fails without the mutation, too: left out from here on")
                    self._unreliable.add(failed[1])
        except Unplantable as error:
            return result(verdict="error", how=str(error))
        return result(verdict="missed", stage=0)

    def _stages(self, mutation: Mutation) -> Iterator[Sequence[str]]:
        yield mutation.near
        yield _ALL_NEAR
        if self.with_servers:
            yield mutation.servers

    def _passes_without(self, test: str) -> bool:
        code, _ = self._run([test.removeprefix("tests/")], 0)
        return code == _PASSED

    def _run(self, paths: Sequence[str], stage: int) -> tuple[int | None, str]:
        """Run tests as CI does, up to the first failure; return pytest's exit code, None when time is up."""
        spread = ["-n", str(self.processes), "--dist", "loadfile"] if self.processes and stage > 1 else ["-n", "0"]
        left_out = [f"--deselect={test}" for test in sorted(self._unreliable)]
        wanted = [f"tests/{path}" for path in paths]
        command = [sys.executable, "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.copy / "plugins"),  # before the checkout that this Python has installed
            "COLUMNS": "1000",  # else the summary is cut
        }
        process = subprocess.Popen(
            [*command, *spread, *left_out, *wanted],
            cwd=self.copy,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            output, _ = process.communicate(timeout=60 * self.minutes)
        except subprocess.TimeoutExpired:
            return None, _ended(process)
        except BaseException:
            _ended(process)
            raise
        return process.returncode, output


def _ended(process: subprocess.Popen[str]) -> str:
    """End tests as Ctrl-C does, and kill what is left of them; return what they said."""
    process.send_signal(signal.SIGINT)
    try:
        output, _ = process.communicate(timeout=_AFTER_CTRL_C)
    except subprocess.TimeoutExpired:
        output = ""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return output


def _last_line(output: str) -> str:
    lines = [line for line in output.splitlines() if line.strip()]
    return lines[-1][:_LONGEST] if lines else "no output"
