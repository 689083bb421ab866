"""Reading uploads in a process of its own, with a limit of memory and of time: one bad upload costs itself alone."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sterna.errors import EngineError
from sterna.pipelines.ingest.columns import Column, Evolution, NestedField
from sterna.pipelines.ingest.read_rows import (
    CURRENT_UPLOAD_FILE,
    JOB_FILE,
    REPORT_FILE,
    ReadJob,
    ReadReport,
    UploadFile,
)
from sterna.pipelines.ingest.sandbox_pool import ERRORS_FILE, ForkServer


@dataclass(frozen=True)
class ReadLimits:
    """What reading a batch may cost.

    Args:
        memory: bytes of the process that reads.
        seconds: for one batch.
        max_crashes: uploads that may end the process, one after another, before the batch is given up.
    """

    memory: int = 3 << 30
    seconds: float = 900.0
    max_crashes: int = 5


def read_in_subprocess(
    job: ReadJob, folder: Path, limits: ReadLimits | None = None, on_progress: Callable[[], object] = lambda: None
) -> ReadReport:
    """Read uploads as `read_uploads` does; one that ends the process that reads is refused, and the others are read.

    Args:
        limits: what it may cost.
        on_progress: called each time that the process has ended.

    Raises:
        EngineError: too many uploads ended the process, or it failed for another reason than an upload.
    """
    limits = limits or ReadLimits()
    for _ in range(limits.max_crashes + 1):
        (folder / CURRENT_UPLOAD_FILE).unlink(missing_ok=True)
        (folder / JOB_FILE).write_text(json.dumps(asdict(job)))
        failure = _run(folder, limits)
        on_progress()
        if failure is None:
            return _parse_report(json.loads((folder / REPORT_FILE).read_text()))
        current = (folder / CURRENT_UPLOAD_FILE).read_text() if (folder / CURRENT_UPLOAD_FILE).exists() else ""
        if current not in {upload.id for upload in job.uploads if not upload.error}:
            break
        job = replace(
            job,
            uploads=tuple(_with_failure(upload, failure) if upload.id == current else upload for upload in job.uploads),
        )
    raise EngineError(f"the process that reads a batch's uploads {failure}", hint="its uploads stay in the inbox")


def _with_failure(upload: UploadFile, failure: str) -> UploadFile:
    return replace(upload, error=f"can't be read: the process that read it {failure}")


def _run(folder: Path, limits: ReadLimits) -> str | None:
    """Return how the process ended that wasn't to end so."""
    code = FORK_SERVER.run(folder, limits.memory, limits.seconds)
    if code == 0:
        return None
    if code == -signal.SIGALRM:
        return f"took more than {limits.seconds:g} s"
    if code < 0:
        return f"died of signal {-code}"
    errors = folder / ERRORS_FILE
    lines = errors.read_text(errors="replace").strip().splitlines() if errors.exists() else []
    if lines and "MemoryError" in lines[-1]:
        return "needed more memory than it may have"
    raise EngineError(f"the process that reads uploads failed: {lines[-1][:300] if lines else code}")


FORK_SERVER = ForkServer()


def _parse_report(report: dict[str, Any]) -> ReadReport:
    evolution = report["evolution"]
    return ReadReport(
        _parse_columns(report["columns"]),
        Evolution(
            _parse_columns(evolution["add"]),
            _parse_columns(evolution["widen"]),
            tuple(NestedField(tuple(field["path"]), field["type"], field["widen"]) for field in evolution["inner"]),
        ),
        report["rows"],
        report["bad"],
        report["first"],
    )


def _parse_columns(columns: list[dict[str, Any]]) -> tuple[Column, ...]:
    return tuple(Column(**column) for column in columns)
