"""An event: the change of one table by one commit of a replica branch, as CloudEvents 1.0 in JSON.

It is a function of the commit, its parent and their properties: the same bytes each time. The format is CloudEvents
1.0.2, "JSON Event Format", structured mode; `sequence` is of its extension "Sequence".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from sterna.brokers.message import DATA_MEMBER
from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Delete, Key, Put, key_name
from sterna.catalog.tables import content_snapshot_id
from sterna.codec import dump_json
from sterna.replication.replica.change_record import (
    ChangeRecord,
    TableHeld,
    TableUpdate,
    record_number,
)
from sterna.replication.replica.head import PLANNED_HASH, RUN_ID, SOURCE_HASH

UPDATED = "sterna.table.updated"
DROPPED = "sterna.table.dropped"
HELD = "sterna.table.held"
RELEASED = "sterna.table.released"
TYPES = (HELD, RELEASED, DROPPED, UPDATED)  # the order of several events of one table and commit
BODY_VERSION = "1.0"


@dataclass(frozen=True)
class CommitDetails:
    """What events need of a commit beside its operations.

    Args:
        news: its change record; None: it has none.
        parent_contents: the parent's contents of keys that the change record doesn't cover.
        held: by key name, newly held tables, where there is no change record.
        released: the same for released tables, with the current snapshot.
    """

    news: ChangeRecord | None = None
    parent_contents: Mapping[Key, Content] = field(default_factory=dict)
    held: Mapping[str, TableHeld] = field(default_factory=dict)
    released: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """An event of one table.

    Args:
        id: replica commit and number, which is also a cursor.
        type: one of `TYPES`.
        table: the key name.
        text: the whole event as JSON, in UTF-8.
        data_start: where its data begin in the text.
    """

    id: str
    type: str
    table: str
    text: bytes = field(repr=False)
    data_start: int = 0


def build_events(commit: Commit, details: CommitDetails, region: str, branch: str) -> tuple[Event, ...]:
    """Return the events of one commit of a replica branch, sorted by table.

    A commit that isn't sterna's has none: that its tables can be read in the region isn't proven.
    """
    if RUN_ID not in commit.properties:
        return ()
    changes = sorted(_table_changes(commit, details), key=lambda change: (change.table, TYPES.index(change.type)))
    number = 0 if details.news is None else record_number(commit)
    return tuple(
        _build_event(commit, change, index, number, region, branch) for index, change in enumerate(changes, start=1)
    )


@dataclass(frozen=True)
class _TableChange:
    table: str
    type: str
    update: TableUpdate
    kind: str = ""


def _table_changes(commit: Commit, details: CommitDetails) -> Iterator[_TableChange]:
    news = details.news or ChangeRecord(held=details.held, released=details.released)
    for operation in commit.operations or ():
        name, parent_content = key_name(operation.key), details.parent_contents.get(operation.key)
        if isinstance(operation, Put) and operation.content.kind == ICEBERG_TABLE:
            yield _TableChange(
                name, UPDATED, news.updated.get(name) or _table_update(parent_content, operation.content)
            )
        if isinstance(operation, Delete) and (name in news.dropped or _is_table(parent_content)):
            yield _TableChange(
                name, DROPPED, TableUpdate(news.dropped.get(name, content_snapshot_id(parent_content)), None)
            )
    for name, held in news.held.items():
        yield _TableChange(name, HELD, TableUpdate(held.snapshot, held.snapshot), held.kind)
    for name, snapshot in news.released.items():
        yield _TableChange(name, RELEASED, TableUpdate(snapshot, snapshot))


def _table_update(previous: Content | None, current: Content) -> TableUpdate:
    same = previous is not None and previous.id == current.id
    return TableUpdate(content_snapshot_id(previous) if same else None, content_snapshot_id(current))


def _is_table(content: Content | None) -> bool:
    return content is not None and content.kind == ICEBERG_TABLE


def _build_event(commit: Commit, change: _TableChange, index: int, number: int, region: str, branch: str) -> Event:
    id, moment = f"{commit.hash}-{index}", commit.commit_time.astimezone(UTC)
    body: dict[str, Any] = {
        "table_identifier": change.table,
        # Of what is gone the last one: clients expect a number here.
        "new_snapshot_id": change.update.previous if change.type == DROPPED else change.update.current,
        "event_timestamp_utc": int(moment.timestamp()),
        "version": BODY_VERSION,
        "region": region,
        "branch": branch,
        "source_hash": commit.properties.get(PLANNED_HASH) or commit.properties.get(SOURCE_HASH, ""),
        "replica_hash": commit.hash,
        "previous_snapshot_id": change.update.previous,
    }
    if change.type == UPDATED and change.update.operations is not None:
        body["operations"] = list(change.update.operations)
    if change.type == HELD:
        body["reason"] = change.kind
    if change.type == DROPPED:
        body["change"] = "dropped"
    envelope: dict[str, Any] = {
        "specversion": "1.0",
        "id": id,
        "source": f"/regions/{region}/branches/{branch}",
        "type": change.type,
        "subject": change.table,
        "time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
    }
    if number:
        envelope["sequence"] = f"{number:012d}.{index:06d}"
    if change.update.current is not None:
        envelope["snapshotid"] = str(change.update.current)
    head = dump_json(envelope)[:-1] + DATA_MEMBER
    return Event(id, change.type, change.table, head + dump_json(body) + b"}", len(head))
