"""Reading uploads in a process of its own, with a limit of memory and of time: one bad upload costs itself alone."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from sterna.concurrency.fork_server import ForkServer
from sterna.errors import EngineError
from sterna.pipelines.ingest import read_rows
from sterna.pipelines.ingest.columns import Column, Evolution, NestedField
from sterna.pipelines.ingest.read_rows import (
    CURRENT_UPLOAD_FILE,
    JOB_FILE,
    REPORT_FILE,
    ReadJob,
    ReadReport,
    UploadFile,
)


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
        failure = FORK_SERVER.run(folder, limits.memory, limits.seconds)
        on_progress()
        if failure is None:
            return _parse_report(json.loads((folder / REPORT_FILE).read_text()))
        current = (folder / CURRENT_UPLOAD_FILE).read_text() if (folder / CURRENT_UPLOAD_FILE).exists() else ""
        if current not in {upload.id for upload in job.uploads if not upload.error}:
            break
        job = replace(
            job,
            uploads=tuple(
                _with_failure(upload, failure.text) if upload.id == current else upload for upload in job.uploads
            ),
        )
    assert failure is not None
    raise EngineError(f"the process that reads a batch's uploads {failure.text}", hint="its uploads stay in the inbox")


def _with_failure(upload: UploadFile, failure: str) -> UploadFile:
    return replace(upload, error=f"can't be read: the process that read it {failure}")


FORK_SERVER = ForkServer(read_rows.__name__, "reads uploads", ("pyarrow.compute", "pyarrow.json", "pyarrow.parquet"))


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
