"""Reading drops in a process of its own, with a limit of memory and of time: one bad drop costs itself alone."""

from __future__ import annotations

import atexit
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from threading import Lock
from typing import Any

from sterna.errors import EngineError
from sterna.ingest.columns import Column, Evolution
from sterna.ingest.reading import AT, JOB, REPORT, DropFile, ReadJob, ReadReport


@dataclass(frozen=True)
class ReadLimits:
    """What reading a batch may cost.

    Args:
        memory: bytes of the process that reads.
        seconds: for one batch.
        deaths: drops that may end the process, one after another, before the batch is given up.
    """

    memory: int = 3 << 30
    seconds: float = 900.0
    deaths: int = 5


def read_apart(job: ReadJob, folder: Path, limits: ReadLimits | None = None) -> ReadReport:
    """Read drops as `read_drops` does; one that ends the process that reads is refused, and the others are read.

    Args:
        job: what to read.
        folder: where to write.
        limits: what it may cost.

    Raises:
        EngineError: too many drops ended the process, or it failed for another reason than a drop.
    """
    limits = limits or ReadLimits()
    for _ in range(limits.deaths + 1):
        (folder / AT).unlink(missing_ok=True)
        (folder / JOB).write_text(json.dumps(asdict(job)))
        died = _run(folder, limits)
        if died is None:
            return _report(json.loads((folder / REPORT).read_text()))
        at = (folder / AT).read_text() if (folder / AT).exists() else ""
        if at not in {drop.id for drop in job.drops if not drop.error}:
            break
        job = replace(job, drops=tuple(_refused(drop, died) if drop.id == at else drop for drop in job.drops))
    raise EngineError(f"the process that reads a batch's drops {died}", hint="its drops stay in the inbox")


def _refused(drop: DropFile, died: str) -> DropFile:
    return replace(drop, error=f"can't be read: the process that read it {died}")


def _run(folder: Path, limits: ReadLimits) -> str | None:
    """Return how the process ended that wasn't to end so."""
    process = _SPARE.take()
    try:
        early = process.communicate(json.dumps([str(folder), limits.memory]), limits.seconds)[1]
    except subprocess.TimeoutExpired:
        return f"took more than {limits.seconds:g} s"
    finally:
        process.kill()
        process.wait()
        _SPARE.make()
    if process.returncode == 0:
        return None
    if process.returncode < 0:
        return f"died of signal {-process.returncode}"
    errors = folder / "errors"
    lines = (errors.read_text(errors="replace") if errors.exists() else early).strip().splitlines()
    if lines and "MemoryError" in lines[-1]:
        return "needed more memory than it may have"
    raise EngineError(f"the process that reads drops failed: {lines[-1][:300] if lines else process.returncode}")


class _Spare:
    """The next process that reads, which has imported what it needs before it is told of a batch.

    Each reads for one batch. One that is needed no more ends with whoever made it, since its input ends.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._made: tuple[str, subprocess.Popen[str]] | None = None  # and what it was made for
        atexit.register(self.end)

    def take(self) -> subprocess.Popen[str]:
        with self._lock:
            made, self._made = self._made, None
        if made is not None and made[0] == _made_for() and made[1].poll() is None:
            return made[1]
        _end(made)
        return _start()

    def make(self) -> None:
        with self._lock:
            if self._made is None:
                self._made = _made_for(), _start()

    def end(self) -> None:
        with self._lock:
            made, self._made = self._made, None
        _end(made)


def _end(made: tuple[str, subprocess.Popen[str]] | None) -> None:
    if made is not None and made[0].startswith(f"{os.getpid()} "):
        made[1].kill()
        made[1].communicate()


def _made_for() -> str:
    """Return who may use a process: whoever is forked has his own."""
    return f"{os.getpid()} {_path()}"


def _path() -> str:
    return os.pathsep.join(filter(None, sys.path))


def _start() -> subprocess.Popen[str]:
    environ = {**os.environ, "PYTHONPATH": _path(), "OMP_NUM_THREADS": "1"}
    environ |= {"ARROW_DEFAULT_MEMORY_POOL": "system"}  # the others reserve more than they use
    command = [sys.executable, "-c", _CHILD]
    return subprocess.Popen(
        command,
        env=environ,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # Ctrl-C is for the worker, who ends it
    )


_SPARE = _Spare()
_CHILD = """
import json, os, resource, sys
from pathlib import Path
import pyarrow.compute, pyarrow.parquet
from sterna.ingest.reading import main
told = sys.stdin.read()
if told:
    folder, memory = json.loads(told)
    errors = os.open(os.path.join(folder, "errors"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(errors, 1)
    os.dup2(errors, 2)
    resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    main(Path(folder))
"""


def _report(told: dict[str, Any]) -> ReadReport:
    more = told["evolution"]
    return ReadReport(
        _columns(told["columns"]),
        Evolution(_columns(more["add"]), _columns(more["widen"])),
        told["rows"],
        told["bad"],
        told["first"],
    )


def _columns(told: list[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in told)
