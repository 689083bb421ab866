"""Rows of the tracker as uploads and batches, by the names of their columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sterna.pipelines.ingest.model import Batch, Destination, Format, State, Upload

_DESTINATION_FIELDS = ("tenant", "table_name", "channel", "partition")
DESTINATION_COLUMNS = ", ".join(_DESTINATION_FIELDS)
_BATCH_FIELDS = (
    "id", *_DESTINATION_FIELDS, "number", "state", "files", "bytes", "rows", "closed", "closed_by",
    "oldest", "snapshot", "commit_hash", "reason", "attempts", "settled", "worker", "leased_until",
)  # fmt: skip
BATCH_COLUMNS = ", ".join(_BATCH_FIELDS)
"""The columns that `parse_batch_row` takes."""
_UPLOAD_FIELDS = (
    "id", *_DESTINATION_FIELDS, "key", "token", "format", "bytes", "rows", "digest", "uri", "accepted",
)  # fmt: skip
UPLOAD_COLUMNS = ", ".join(_UPLOAD_FIELDS)
"""The columns that `build_upload_row` gives."""
UPLOAD_SELECTION = (
    ", ".join(f"d.{name}" for name in _UPLOAD_FIELDS) + ", coalesce(b.state, 'buffered'), coalesce(d.batch, '')"
)
"""The columns that `parse_upload_row` takes, of uploads `d` joined with their batches `b`."""
UPLOAD_TABLES = "sterna_ingest_drop d LEFT JOIN sterna_ingest_batch b ON b.id = d.batch"


def parse_batch_row(row: Sequence[Any]) -> Batch:
    """Return the batch of a row that has the columns `BATCH_COLUMNS`."""
    columns = dict(zip(_BATCH_FIELDS, row, strict=True))
    destination, state, commit = _pop_destination(columns), State(columns.pop("state")), columns.pop("commit_hash")
    return Batch(destination=destination, state=state, commit=commit, **columns)


def parse_upload_row(row: Sequence[Any]) -> Upload:
    """Return the upload of a row that has the columns `UPLOAD_SELECTION`."""
    columns = dict(zip((*_UPLOAD_FIELDS, "state", "batch"), row, strict=True))
    destination, offset = _pop_destination(columns), columns.pop("token")
    format, state = Format(columns.pop("format")), State(columns.pop("state"))
    return Upload(destination=destination, offset=offset, format=format, state=state, **columns)


def build_upload_row(upload: Upload) -> tuple[Any, ...]:
    """Return an upload's values, in the order of `UPLOAD_COLUMNS`."""
    destination = dict(zip(_DESTINATION_FIELDS, destination_row(upload.destination), strict=True))
    columns = {**vars(upload), **destination, "token": upload.offset, "format": upload.format.value}
    return tuple(columns[name] for name in _UPLOAD_FIELDS)


def destination_row(destination: Destination) -> tuple[str, str, str, str]:
    """Return a destination's values, in the order of `DESTINATION_COLUMNS`."""
    return destination.tenant, destination.table, destination.channel, destination.partition


def _pop_destination(columns: dict[str, Any]) -> Destination:
    return Destination(*(columns.pop(name) for name in _DESTINATION_FIELDS))


INSERT_UPLOAD = (
    f"INSERT INTO sterna_ingest_drop ({UPLOAD_COLUMNS}) VALUES ({', '.join(['%s'] * len(_UPLOAD_FIELDS))}) "  # noqa: S608
    "ON CONFLICT (id) DO NOTHING"
)
