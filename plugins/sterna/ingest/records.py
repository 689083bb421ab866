"""Rows of the tracker as drops and batches: by the names of their columns, wherever those stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.ingest.model import Batch, Drop, Format, Lane, State

LANE = "tenant, table_name, channel, partition"
_BATCH = (
    "id", *LANE.split(", "), "number", "state", "files", "bytes", "rows", "closed", "closed_by", "oldest", "snapshot",
    "commit_hash", "reason", "attempts", "settled", "worker", "leased_until",
)  # fmt: skip
BATCH = ", ".join(_BATCH)
"""The columns that `batch_of` takes."""
_DROP = ("id", *LANE.split(", "), "key", "token", "format", "bytes", "rows", "digest", "uri", "accepted")
DROP_COLUMNS = ", ".join(_DROP)
"""The columns that `drop_row` gives."""
DROP = ", ".join(f"d.{name}" for name in _DROP) + ", coalesce(b.state, 'buffered'), coalesce(d.batch, '')"
"""The columns that `drop_of` takes, of drops `d` joined with their batches `b`."""
DROPS = "sterna_ingest_drop d LEFT JOIN sterna_ingest_batch b ON b.id = d.batch"


def batch_of(row: Sequence[Any]) -> Batch:
    """Return the batch of a row that has the columns `BATCH`."""
    columns = dict(zip(_BATCH, row, strict=True))
    return Batch(
        id=columns["id"],
        lane=_lane_of(columns),
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


def drop_of(row: Sequence[Any]) -> Drop:
    """Return the drop of a row that has the columns `DROP`."""
    columns = dict(zip((*_DROP, "state", "batch"), row, strict=True))
    return Drop(
        id=columns["id"],
        lane=_lane_of(columns),
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


def drop_row(drop: Drop) -> tuple[Any, ...]:
    """Return a drop's values, in the order of `DROP_COLUMNS`."""
    columns = {
        "id": drop.id,
        "tenant": drop.lane.tenant,
        "table_name": drop.lane.table,
        "channel": drop.lane.channel,
        "partition": drop.lane.partition,
        "key": drop.key,
        "token": drop.offset,
        "format": drop.format.value,
        "bytes": drop.bytes,
        "rows": drop.rows,
        "digest": drop.digest,
        "uri": drop.uri,
        "accepted": drop.accepted,
    }
    return tuple(columns[name] for name in _DROP)


def _lane_of(columns: Mapping[str, Any]) -> Lane:
    return Lane(
        tenant=columns["tenant"],
        table=columns["table_name"],
        channel=columns["channel"],
        partition=columns["partition"],
    )


INSERT_DROP = (
    f"INSERT INTO sterna_ingest_drop ({DROP_COLUMNS}) VALUES ({', '.join(['%s'] * len(_DROP))}) "  # noqa: S608
    "ON CONFLICT (id) DO NOTHING"
)
