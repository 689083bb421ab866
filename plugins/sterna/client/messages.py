"""Messages of a gateway, as typed values."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

_DROPPED = "sterna.table.dropped"


@dataclass(frozen=True)
class TableEvent:
    """A change of a table that is readable in the region.

    Args:
        id: the event's id, which is also a cursor.
        type: `sterna.table.updated`, `.dropped`, `.held` or `.released`.
        table: the table's name.
        new_snapshot_id: the current snapshot; None: there is none, as after a drop.
        previous_snapshot_id: the snapshot before, or None.
        operations: the kinds of the operations in between, each once; None where they are not recorded.
        time: when the replica was updated.
        source_hash: the commit of `main` that was replicated.
        replica_hash: the commit of the replica branch.
        document: the whole event, with fields that this version of the client doesn't have.
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
    """Events were lost: read the current state of the tables (`EventClient.tables`), then continue.

    Args:
        cursor: where the stream continues.
        reason: why, such as `unknown` or `rewound`.
    """

    cursor: str
    reason: str


@dataclass(frozen=True)
class Skipped:
    """This many events were omitted because the client was slow; the newest of each table follow."""

    count: int


@dataclass(frozen=True)
class TableState:
    """The current state of a table.

    Args:
        table: the table's name.
        snapshot_id: the current snapshot, None for an empty table.
    """

    table: str
    snapshot_id: int | None


ClientMessage = TableEvent | Reset | Skipped


def parse_event(text: str) -> TableEvent:
    """Return the event of a CloudEvents text.

    Raises:
        ValueError: the text is no event of a table.
    """
    try:
        document = json.loads(text)
        payload = document["data"]
        operations = payload.get("operations")
        return TableEvent(
            id=str(document["id"]),
            type=str(document["type"]),
            table=str(payload["table_identifier"]),
            # For a dropped table a gateway names its last snapshot; those of 2026 named none.
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
