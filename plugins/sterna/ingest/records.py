"""Rows of the tracker as drops and batches."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Return the batch of a row."""
    return Batch(row[0], Lane(*row[1:5]), row[5], State(row[6]), *row[7:])


def drop_of(row: Sequence[Any]) -> Drop:
    """Return the drop of a row."""
    id, tenant, table, channel, partition, key, offset, format, size, rows, digest, uri, accepted, state, batch = row
    lane = Lane(tenant, table, channel, partition)
    return Drop(id, lane, key, offset, Format(format), size, rows, digest, uri, accepted, State(state), batch)


def drop_row(drop: Drop) -> tuple[Any, ...]:
    """Return a drop's values, in the order of the columns from `id` to `accepted`."""
    lane = drop.lane
    where = (lane.tenant, lane.table, lane.channel, lane.partition)
    content = (drop.format.value, drop.bytes, drop.rows, drop.digest, drop.uri, drop.accepted)
    return (drop.id, *where, drop.key, drop.offset, *content)


INSERT_DROP = (
    f"INSERT INTO sterna_ingest_drop ({DROP_COLUMNS}) VALUES ({', '.join(['%s'] * len(_DROP))}) "  # noqa: S608
    "ON CONFLICT (id) DO NOTHING"
)
