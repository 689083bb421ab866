"""What a gateway tells, as typed values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_DROPPED = "sterna.table.dropped"


@dataclass(frozen=True)
class TableEvent:
    """Something happened to a table that can be read in the region now.

    Args:
        id: names the event; a cursor, too.
        type: `sterna.table.updated`, `.dropped`, `.held` or `.released`.
        table: its name.
        new_snapshot_id: the snapshot that is shown now; None: none is, as after a drop.
        previous_snapshot_id: the one that was shown before, or None.
        operations: what was done between the two, each kind once; None where nobody knows.
        time: when the region's replica got it.
        region: the region.
        source_hash: the commit of `main` that it stands for.
        replica_hash: the commit of the replica branch.
        document: the event as it came, with what this version of the client doesn't know.
    """

    id: str
    type: str
    table: str
    new_snapshot_id: int | None
    previous_snapshot_id: int | None
    operations: tuple[str, ...] | None
    time: datetime
    region: str
    source_hash: str
    replica_hash: str
    document: Mapping[str, Any] = field(repr=False, compare=False)


@dataclass(frozen=True)
class Reset:
    """Events were missed for good: read what the tables show (`EventClient.tables`), and go on.

    Args:
        cursor: where the client goes on.
        reason: why, such as `unknown` or `rewound`.
    """

    cursor: str
    reason: str


@dataclass(frozen=True)
class Skipped:
    """So many events were left out since this client was slow; the newest of each table follow."""

    count: int


@dataclass(frozen=True)
class TableState:
    """What a table shows.

    Args:
        table: its name.
        snapshot_id: its current snapshot, None for an empty table.
    """

    table: str
    snapshot_id: int | None


ClientMessage = TableEvent | Reset | Skipped


def parse_event(text: str) -> TableEvent:
    """Return the event of a CloudEvents text.

    Raises:
        ValueError: it is none.
    """
    try:
        document = json.loads(text)
        payload = document["data"]
        operations = payload.get("operations")
        return TableEvent(
            id=str(document["id"]),
            type=str(document["type"]),
            table=str(payload["table_identifier"]),
            # Of what is gone a gateway names the last one, and one of 2026 named none.
            new_snapshot_id=None if document["type"] == _DROPPED else payload["new_snapshot_id"],
            previous_snapshot_id=payload.get("previous_snapshot_id"),
            operations=None if operations is None else tuple(operations),
            time=datetime.fromisoformat(document["time"]),
            region=str(payload.get("region", "")),
            source_hash=str(payload.get("source_hash", "")),
            replica_hash=str(payload.get("replica_hash", "")),
            document=document,
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"no event of a table: {error!r}") from error
