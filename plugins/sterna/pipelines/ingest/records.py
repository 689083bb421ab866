"""Rows of the tracker as uploads and batches, by the names of their columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.pipelines.ingest.model import Batch, Destination, Format, State, Upload

DESTINATION_COLUMNS = "tenant, table_name, channel, partition"
_BATCH_FIELDS = (
    "id", *DESTINATION_COLUMNS.split(", "), "number", "state", "files", "bytes", "rows", "closed", "closed_by",
    "oldest", "snapshot", "commit_hash", "reason", "attempts", "settled", "worker", "leased_until",
)  # fmt: skip
BATCH_COLUMNS = ", ".join(_BATCH_FIELDS)
"""The columns that `parse_batch_row` takes."""
_UPLOAD_FIELDS = (
    "id",
    *DESTINATION_COLUMNS.split(", "),
    "key",
    "token",
    "format",
    "bytes",
    "rows",
    "digest",
    "uri",
    "accepted",
)
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
    return Batch(
        id=columns["id"],
        destination=_parse_destination(columns),
        number=columns["number"],
        state=State(columns["state"]),
        files=columns["files"],
        bytes=columns["bytes"],
        rows=columns["rows"],
        closed=columns["closed"],
        closed_by=columns["closed_by"],
        oldest=columns["oldest"],
        snapshot=columns["snapshot"],
        commit=columns["commit_hash"],
        reason=columns["reason"],
        attempts=columns["attempts"],
        settled=columns["settled"],
        worker=columns["worker"],
        leased_until=columns["leased_until"],
    )


def parse_upload_row(row: Sequence[Any]) -> Upload:
    """Return the upload of a row that has the columns `UPLOAD_SELECTION`."""
    columns = dict(zip((*_UPLOAD_FIELDS, "state", "batch"), row, strict=True))
    return Upload(
        id=columns["id"],
        destination=_parse_destination(columns),
        key=columns["key"],
        offset=columns["token"],
        format=Format(columns["format"]),
        bytes=columns["bytes"],
        rows=columns["rows"],
        digest=columns["digest"],
        uri=columns["uri"],
        accepted=columns["accepted"],
        state=State(columns["state"]),
        batch=columns["batch"],
    )


def build_upload_row(upload: Upload) -> tuple[Any, ...]:
    """Return an upload's values, in the order of `UPLOAD_COLUMNS`."""
    columns = {
        "id": upload.id,
        "tenant": upload.destination.tenant,
        "table_name": upload.destination.table,
        "channel": upload.destination.channel,
        "partition": upload.destination.partition,
        "key": upload.key,
        "token": upload.offset,
        "format": upload.format.value,
        "bytes": upload.bytes,
        "rows": upload.rows,
        "digest": upload.digest,
        "uri": upload.uri,
        "accepted": upload.accepted,
    }
    return tuple(columns[name] for name in _UPLOAD_FIELDS)


def _parse_destination(columns: Mapping[str, Any]) -> Destination:
    return Destination(
        tenant=columns["tenant"],
        table=columns["table_name"],
        channel=columns["channel"],
        partition=columns["partition"],
    )


INSERT_UPLOAD = (
    f"INSERT INTO sterna_ingest_drop ({UPLOAD_COLUMNS}) VALUES ({', '.join(['%s'] * len(_UPLOAD_FIELDS))}) "  # noqa: S608
    "ON CONFLICT (id) DO NOTHING"
)
