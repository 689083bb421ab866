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
from dataclasses import dataclass, field, replace
from importlib.util import cache_from_source
from pathlib import Path
from typing import Final

from tests.mutations.model import Mutation, Result, Verdict

_ALL_NEAR: Final = ("unit", "simulation")
_FAILED: Final = re.compile(r"^(?:FAILED|ERROR) (\S+::.*?)(?: - (.*))?$", re.MULTILINE)
_SOUND: Final = re.compile(r"^PASSED (\S+::.*)$", re.MULTILINE)
_PASSED, _TESTS_FAILED, _NO_TESTS = 0, 1, 5  # exit codes of pytest
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
        report_progress: takes lines for people.
        with_servers: whether tests that start servers run, too.
        only_first: whether the tests that are named for a mutation are all that run.
        python: the interpreter that runs the tests.
    """

    copy: Path
    processes: int
    minutes: float
    report_progress: Callable[[str], None]
    with_servers: bool = True
    only_first: bool = False
    python: Path = Path(sys.executable)
    _unreliable: set[str] = field(default_factory=set)
    _sound: set[str] = field(default_factory=set)

    def run_without(self, mutations: Sequence[Mutation]) -> None:
        """Run the tests that are named for some mutations once without any, all together: those that pass are sound."""
        paths = self._present([path for mutation in mutations for path in mutation.first])
        if paths:
            _, output = self._run(paths, 0, "-rp", "--maxfail=0")
            self._sound |= set(_SOUND.findall(output))

    def look_for(self, mutation: Mutation) -> Result:
        """Run tests from the cheapest on, until one fails twice that passes without the mutation."""
        started = time.monotonic()
        try:
            result = self._looked_for(mutation)
        except Unplantable as error:
            result = Result(mutation.name, "error", how=str(error))
        return replace(result, seconds=round(time.monotonic() - started, 1))

    def _looked_for(self, mutation: Mutation) -> Result:
        for stage, paths in self._stages(mutation):
            while True:
                with planted(self.copy, mutation):
                    code, output = self._run(paths, stage)
                failed = _FAILED.search(output)
                if code in (_PASSED, _NO_TESTS):  # none where the only one is left out
                    break
                if code != _TESTS_FAILED or failed is None:
                    verdict: Verdict = "undecided" if code is None else "error"
                    how = f"no end within {self.minutes:g} min" if code is None else _last_line(output)
                    return Result(mutation.name, verdict, how=f"{' '.join(paths)}: {how}", stage=stage)
                if refuted := self._refuted(failed[1], mutation):
                    self.report_progress(f"  {failed[1]} {refuted}: left out from here on")
                    self._unreliable.add(failed[1])
                    continue
                return Result(mutation.name, "found", by=failed[1], how=(failed[2] or "")[:_LONGEST], stage=stage)
        if self.only_first:
            return Result(mutation.name, "undecided", how="not found by the tests that were run")
        if self._unreliable:
            return Result(mutation.name, "undecided", how=f"left out: {', '.join(sorted(self._unreliable))}")
        return Result(mutation.name, "missed")

    def _stages(self, mutation: Mutation) -> Iterator[tuple[int, Sequence[str]]]:
        if first := self._present(mutation.first):
            yield 0, first
        if self.only_first:
            return
        yield 1, mutation.near
        yield 2, _ALL_NEAR
        if self.with_servers:
            yield 3, mutation.servers

    def _present(self, paths: Sequence[str]) -> Sequence[str]:
        """Return those of some files and tests that the copy has; the whole file of a test that it doesn't have."""
        present: list[str] = []
        for path in paths:
            file, _, test = path.partition("::")
            if not (self.copy / "tests" / file).exists():
                continue
            name = test.rpartition("::")[2].partition("[")[0]
            text = (self.copy / "tests" / file).read_text() if test else ""
            is_there = not test or re.search(rf"\b(?:def|class) {re.escape(name)}\b", text)
            present.append(path if is_there else file)
        return list(dict.fromkeys(present))

    def _refuted(self, test: str, mutation: Mutation) -> str:
        """Return why a test's failure says nothing of a mutation; "" where it does."""
        path = [test.removeprefix("tests/")]
        if test not in self._sound and self._run(path, 0)[0] != _PASSED:
            return "fails without the mutation, too"
        with planted(self.copy, mutation):
            return "failed once, and passes alone" if self._run(path, 0)[0] == _PASSED else ""

    def _run(self, paths: Sequence[str], stage: int, *more: str) -> tuple[int | None, str]:
        """Run tests as CI does, up to the first failure; return pytest's exit code, None when time is up."""
        spread = ["-n", str(self.processes), "--dist", "loadfile"] if self.processes and stage > 1 else ["-n", "0"]
        left_out = [f"--deselect={test}" for test in sorted(self._unreliable)]
        wanted = [f"tests/{path}" for path in paths]
        command = [str(self.python), "-m", "pytest", "-q", "-x", "--tb=no", "-p", "no:cacheprovider"]
        environment = {
            **os.environ,
            "PYTHONPATH": str(self.copy / "plugins"),  # before the checkout that this Python has installed
            "COLUMNS": "1000",  # else the summary is cut
        }
        process = subprocess.Popen(
            [*command, *spread, *more, *left_out, *wanted],
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
