"""From a batch's uploads to rows: fetched from the inbox, proven, and read; bad rows go to the dead letters.

They are read in a process of its own, with a limit of memory and of time: one bad upload costs itself alone.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from sterna.concurrency.fork_server import ForkServer
from sterna.errors import BadDrop, BatchRejected, EngineError, MessagesGone, ObjectMissing, TopicRecreated
from sterna.libraries import pa, pq
from sterna.pipelines.ingest.batch_file import BatchFile
from sterna.pipelines.ingest.column_types import arrow_type
from sterna.pipelines.ingest.columns import MAX_COLUMNS, Column, Evolution, FieldChange
from sterna.pipelines.ingest.layout import DEAD_LETTERS_FOLDER, table_folder
from sterna.pipelines.ingest.model import Batch, Upload
from sterna.pipelines.ingest.read_job import (
    CURRENT_UPLOAD_FILE,
    DEAD_ROWS_FILE,
    GOOD_ROWS_FILE,
    JOB_FILE,
    REPORT_FILE,
    WHOLE_UPLOAD,
    ReadJob,
    ReadReport,
    UploadFile,
)
from sterna.pipelines.ingest.topic_offsets import MessageRange
from sterna.storage.memory_budget import MemoryBudget, map_ordered
from sterna.storage.objects import Objects
from sterna.storage.write import read_file, write_file

_MAX_MISSING_ATTEMPTS = 3  # attempts, before an object that is missing counts as lost
_MAX_FETCHES = 32  # at once
_MAX_FETCH_BYTES = 64 << 20  # that all of them have in memory
_STREAM_BYTES = 16 << 20  # that a large one has there, which comes in parts
SLICE_BYTES = 256 << 20
"""Bytes of rows that are written at once."""
FORK_SERVER = ForkServer("sterna.pipelines.ingest.read_rows", "reads uploads")


class MessageReader(Protocol):
    """Writes messages that are at their broker into a file; see `DirectTopics.fetch`."""

    def __call__(self, messages: MessageRange, upload: Upload, path: Path, *, allows_gaps: bool) -> bool:
        """Return whether the file's lines are the messages as they came."""
        ...


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


@dataclass(frozen=True)
class BatchRows:
    """The good rows of a batch, on this machine.

    Args:
        path: an Arrow file.
    """

    report: ReadReport
    path: Path

    def slices(self, columns: Sequence[Column]) -> Iterator[pa.Table]:
        """Yield all rows with a table's columns in its order, some at a time; at least once.

        Args:
            columns: the table's; what the rows lack is null.
        """
        with pa.memory_map(str(self.path)) as source:
            file = pa.ipc.open_file(source)
            pending: list[pa.RecordBatch] = []
            for number in range(file.num_record_batches):
                pending.append(file.get_batch(number))
                if sum(batch.nbytes for batch in pending) >= SLICE_BYTES:
                    yield _conform(pa.Table.from_batches(pending), columns)
                    pending = []
            if pending or not file.num_record_batches:
                yield _conform(pa.Table.from_batches(pending, file.schema), columns)


@contextmanager
def fetch_rows(
    objects: Objects,
    batch: Batch,
    uploads: Sequence[Upload],
    columns: Sequence[Column],
    evolve: str,
    max_value_bytes: int,
    limits: ReadLimits | None = None,
    max_columns: int = MAX_COLUMNS,
    on_progress: Callable[[], object] = lambda: None,
    read_messages: MessageReader | None = None,
    max_depth: int = 0,
) -> Iterator[BatchRows]:
    """Fetch and read a batch's uploads; temporary files are deleted at the end.

    Args:
        objects: the stores.
        batch: the batch.
        uploads: its uploads.
        columns: the table's; none: it is to be made.
        evolve: what its schema may become.
        max_value_bytes: bytes of one value.
        limits: what reading may cost.
        max_columns: columns that the table may get.
        on_progress: called after each step forward.
        read_messages: reads uploads whose messages are at their broker; None: there are none.
        max_depth: how deep values of such messages may be nested.

    Raises:
        BatchRejected: the table has a column that ingestion can't write.
        ObjectMissing, StoreUnreachable, StoreDenied, MessagesGone, TopicRecreated, TopicUnreachable: an upload can't
            be fetched now.
        EngineError: the process that reads failed.
    """
    require_writable(batch.destination.table, columns)
    with tempfile.TemporaryDirectory(prefix="sterna-batch-") as name:
        folder = Path(name)
        files = _fetch_all(objects, uploads, folder, batch.attempts, read_messages, on_progress)
        report = read_in_subprocess(
            ReadJob(tuple(columns), evolve, max_value_bytes, files, max_columns, max_depth), folder, limits, on_progress
        )
        yield BatchRows(report, folder / GOOD_ROWS_FILE)


def require_writable(table: str, columns: Sequence[Column]) -> None:
    """See that ingestion can write each column of a table: whether time cures it or not, no other batch waits for it.

    Raises:
        BatchRejected: one has a type that Spark lacks, or that this sterna doesn't have yet.
    """
    for column in columns:
        try:
            arrow_type(column.type, column.name)
        except BadDrop as error:
            raise BatchRejected(error.message, table=table, hint="replay the batch when the table has none") from None


def write_dead_letters(objects: Objects, inbox: str, batch: Batch, rows: BatchRows, max_bad_rows: int | None) -> None:
    """Write the bad rows of a batch down, before anything of it is staged.

    Args:
        objects: the stores.
        inbox: the region's inbox: so they stay where the uploads are.
        batch: the batch.
        rows: what was read.
        max_bad_rows: bad rows that a batch may have; None: any number.

    Raises:
        BatchRejected: it has more, or nothing else.
        StoreUnreachable, StoreDenied: they aren't written down.
    """
    dead_path, uri = rows.path.with_name(DEAD_ROWS_FILE), dead_letters_uri(inbox, batch)
    if not dead_path.exists() and objects.size(uri) is not None:
        # An earlier reading took rows for bad that are good by now, such as those with a column that was added since.
        _write_empty(dead_path)
    if dead_path.exists():
        write_file(objects, uri, dead_path)
    bad_rows, reason = rows.report.bad, ""
    if max_bad_rows is not None and bad_rows > max_bad_rows:
        reason = f"{bad_rows} rows are bad, {max_bad_rows} may be (max_bad)"
    elif bad_rows and not rows.report.rows:
        # A commit without rows, called published, would inform its producer less.
        reason = f"none of its {bad_rows} rows is good"
    if reason:
        raise BatchRejected(f"{reason}; the first: {rows.report.first}", table=batch.destination.table, file=uri)


def _write_empty(path: Path) -> None:
    from sterna.pipelines.ingest.read_rows import dead_schema

    pq.write_table(dead_schema().empty_table(), path, compression="zstd")


def dead_letters_uri(inbox: str, batch: Batch | BatchFile) -> str:
    """Return the URI of a batch's bad rows, as Parquet: upload, offset in it, error, the row as text."""
    folder = table_folder(inbox, batch.destination.tenant, batch.destination.table)
    return f"{folder}/{DEAD_LETTERS_FOLDER}/{batch.destination.channel}/{batch.number:012}.parquet"


def count_dead_rows(objects: Objects, uri: str, uploads: Sequence[Upload]) -> int:
    """Return how many rows a file of dead letters speaks of: 0 where there is none, 1 where it can't be read as one.

    It equals `ReadReport.bad` of that reading: an upload that is refused whole has one row there, for all of its rows.

    Args:
        uri: of the file.
        uploads: of the batch.

    Raises:
        StoreUnreachable, StoreDenied: it can't be determined.
    """
    rows = {upload.id: upload.rows for upload in uploads}
    if objects.size(uri) is None:
        return 0
    with tempfile.TemporaryDirectory(prefix="sterna-batch-") as name:
        path = Path(name) / DEAD_ROWS_FILE
        read_file(objects, uri, path)
        try:
            dead_letters = pq.read_table(path, columns=["drop", "offset"]).to_pylist()
        except pa.ArrowException:
            return 1
    refused_uploads = [dead_letter["drop"] for dead_letter in dead_letters if dead_letter["offset"] == WHOLE_UPLOAD]
    return len(dead_letters) - len(refused_uploads) + sum(max(rows.get(upload, 0), 1) for upload in refused_uploads)


def _fetch_all(
    objects: Objects,
    uploads: Sequence[Upload],
    folder: Path,
    attempts: int,
    read_messages: MessageReader | None,
    on_progress: Callable[[], object],
) -> tuple[UploadFile, ...]:
    """Fetch uploads, many at once, and return their files in the order of the uploads."""
    budget, files = MemoryBudget(_MAX_FETCH_BYTES), list[UploadFile]()

    def fetch(upload: Upload) -> UploadFile:
        with budget.reserve(min(upload.bytes, _STREAM_BYTES)):
            return _fetch(objects, upload, folder, attempts, read_messages)

    for file in map_ordered(fetch, uploads, _MAX_FETCHES):
        files.append(file)
        on_progress()
    return tuple(files)


def _fetch(
    objects: Objects, upload: Upload, folder: Path, attempts: int, read_messages: MessageReader | None
) -> UploadFile:
    path, error = folder / upload.id, ""
    if (messages := MessageRange.parse(upload.uri)) is not None:
        return _fetch_messages(messages, upload, path, attempts, read_messages)
    try:
        # In parts: one file may be as large as its tenant may send, and a limit of metadata is no limit of it.
        digest, size = read_file(objects, upload.uri, path), path.stat().st_size
    except ObjectMissing:
        if attempts < _MAX_MISSING_ATTEMPTS:
            raise
        digest, size, error = "", 0, "its object is missing from the inbox"
    # The content has to be the one that was acknowledged.
    if not error and (size != upload.bytes or digest != upload.digest):
        error = f"its object isn't what was acknowledged: {size} bytes of {upload.bytes}"
    return UploadFile(upload.id, str(path), upload.format.value, upload.rows, error)


def _fetch_messages(
    messages: MessageRange, upload: Upload, path: Path, attempts: int, read_messages: MessageReader | None
) -> UploadFile:
    assert read_messages is not None
    # Neither counts at once: a broker may be mended.
    raw_from, error, is_last = None, "", attempts >= _MAX_MISSING_ATTEMPTS
    try:
        is_raw = read_messages(messages, upload, path, allows_gaps=is_last)
        raw_from = messages.first if is_raw else None
    except (MessagesGone, TopicRecreated) as gone:
        if not is_last:
            raise
        error = f"its messages are gone: {gone.message}"
    return UploadFile(upload.id, str(path), upload.format.value, upload.rows, error, raw_from)


def _conform(rows: pa.Table, columns: Sequence[Column]) -> pa.Table:
    """Return rows with a table's columns; nested fields may have another order there."""

    from sterna.pipelines.ingest.arrow_rows import convert_array

    rows = rows.combine_chunks()
    arrays = []
    for column in columns:
        index = rows.schema.get_field_index(column.name)
        chunks = rows.column(index).chunks if index >= 0 else [pa.nulls(rows.num_rows)]
        values = [convert_array(chunk, column.type, column.name)[0] for chunk in chunks]
        arrays.append(pa.chunked_array(values, arrow_type(column.type, column.name)))
    return pa.Table.from_arrays(arrays, names=[column.name for column in columns])


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


def _parse_report(report: dict[str, Any]) -> ReadReport:
    columns = tuple(Column(**column) for column in report.pop("columns"))
    changes = report.pop("evolution")["changes"]
    evolution = Evolution(tuple(FieldChange(tuple(change.pop("path")), **change) for change in changes))
    return ReadReport(columns, evolution, **report)
