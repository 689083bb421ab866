"""Reading drops in a process of its own, with a limit of memory and of time: one bad drop costs itself alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sterna.errors import EngineError
from sterna.ingest.columns import Column, Evolution, Inner
from sterna.ingest.reading import AT, JOB, REPORT, DropFile, ReadJob, ReadReport
from sterna.ingest.reading_forked import ERRORS, Forks


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


def read_apart(
    job: ReadJob, folder: Path, limits: ReadLimits | None = None, advanced: Callable[[], object] = lambda: None
) -> ReadReport:
    """Read drops as `read_drops` does; one that ends the process that reads is refused, and the others are read.

    Args:
        job: what to read.
        folder: where to write.
        limits: what it may cost.
        advanced: called each time that the process has ended.

    Raises:
        EngineError: too many drops ended the process, or it failed for another reason than a drop.
    """
    limits = limits or ReadLimits()
    for _ in range(limits.deaths + 1):
        (folder / AT).unlink(missing_ok=True)
        (folder / JOB).write_text(json.dumps(asdict(job)))
        died = _run(folder, limits)
        advanced()
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
    code = FORKS.run(folder, limits.memory, limits.seconds)
    if code == 0:
        return None
    if code == -signal.SIGALRM:
        return f"took more than {limits.seconds:g} s"
    if code < 0:
        return f"died of signal {-code}"
    errors = folder / ERRORS
    lines = errors.read_text(errors="replace").strip().splitlines() if errors.exists() else []
    if lines and "MemoryError" in lines[-1]:
        return "needed more memory than it may have"
    raise EngineError(f"the process that reads drops failed: {lines[-1][:300] if lines else code}")


FORKS = Forks()


def _report(told: dict[str, Any]) -> ReadReport:
    more = told["evolution"]
    return ReadReport(
        _columns(told["columns"]),
        Evolution(
            _columns(more["add"]),
            _columns(more["widen"]),
            tuple(Inner(tuple(field["path"]), field["type"], field["widen"]) for field in more["inner"]),
        ),
        told["rows"],
        told["bad"],
        told["first"],
    )


def _columns(told: list[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in told)
