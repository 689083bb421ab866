"""An event: what one commit of a replica branch says of one table, as CloudEvents 1.0 in JSON.

A function of the commit, its parent and what both say: the same bytes each time. The format is CloudEvents 1.0.2,
"JSON Event Format", structured mode; `sequence` is of its extension "Sequence".
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Delete, Key, Put, key_name
from sterna.replica.head import PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replica.news import News, Stay, TableMove, number_of, snapshot_of

UPDATED = "sterna.table.updated"
DROPPED = "sterna.table.dropped"
HELD = "sterna.table.held"
RELEASED = "sterna.table.released"
TYPES = (HELD, RELEASED, DROPPED, UPDATED)  # in this order, where one commit says several of one table
BODY_VERSION = "1.0"


@dataclass(frozen=True)
class Facts:
    """What is known of a commit beside its operations.

    Args:
        news: what it says of itself; None where it says nothing.
        before: what its parent holds under keys that the news don't tell of.
        held: by key name, tables that began to be held, where no news tell of them.
        released: the same of tables that are held no more, with the snapshot that is shown.
    """

    news: News | None = None
    before: Mapping[Key, Content] = field(default_factory=dict)
    held: Mapping[str, Stay] = field(default_factory=dict)
    released: Mapping[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True)
class Event:
    """What is told of one table.

    Args:
        id: replica commit and number: a cursor, too.
        type: one of `TYPES`.
        table: the key name.
        text: the whole event as JSON, in UTF-8.
    """

    id: str
    type: str
    table: str
    text: bytes = field(repr=False)


def events_of(commit: Commit, facts: Facts, region: str, branch: str) -> tuple[Event, ...]:
    """Return what one commit of a replica branch says, by table.

    Args:
        commit: with its operations.
        facts: what is known beside them.
        region: whose branch it is.
        branch: the branch.
    """
    if RUN_ID not in commit.properties:
        return ()  # somebody else's: nobody has proven that it can be read here
    said = sorted(_said(commit, facts), key=lambda each: (each.table, TYPES.index(each.type)))
    number = 0 if facts.news is None else number_of(commit)
    return tuple(_event(commit, each, index, number, region, branch) for index, each in enumerate(said, start=1))


@dataclass(frozen=True)
class _Said:
    table: str
    type: str
    change: TableMove
    kind: str = ""


def _said(commit: Commit, facts: Facts) -> Iterator[_Said]:
    news = facts.news or News(held=facts.held, released=facts.released)
    for operation in commit.operations or ():
        name, before = key_name(operation.key), facts.before.get(operation.key)
        if isinstance(operation, Put) and operation.content.kind == ICEBERG_TABLE:
            yield _Said(name, UPDATED, news.updated.get(name) or _change(before, operation.content))
        if isinstance(operation, Delete) and (name in news.dropped or _is_table(before)):
            yield _Said(name, DROPPED, TableMove(news.dropped.get(name, snapshot_of(before)), None))
    for name, stay in news.held.items():
        yield _Said(name, HELD, TableMove(stay.snapshot, stay.snapshot), stay.kind)
    for name, snapshot in news.released.items():
        yield _Said(name, RELEASED, TableMove(snapshot, snapshot))


def _change(before: Content | None, now: Content) -> TableMove:
    same = before is not None and before.id == now.id
    return TableMove(snapshot_of(before) if same else None, snapshot_of(now))


def _is_table(content: Content | None) -> bool:
    return content is not None and content.kind == ICEBERG_TABLE


def _event(commit: Commit, said: _Said, index: int, number: int, region: str, branch: str) -> Event:
    id, moment = f"{commit.hash}-{index}", commit.commit_time.astimezone(UTC)
    body: dict[str, Any] = {
        "table_identifier": said.table,
        # Of what is gone the last one: clients expect a number here.
        "new_snapshot_id": said.change.previous if said.type == DROPPED else said.change.current,
        "event_timestamp_utc": int(moment.timestamp()),
        "version": BODY_VERSION,
        "region": region,
        "branch": branch,
        "source_hash": commit.properties.get(PLANNED_HASH) or commit.properties.get(SOURCE_HASH, ""),
        "replica_hash": commit.hash,
        "previous_snapshot_id": said.change.previous,
    }
    if said.type == UPDATED and said.change.operations is not None:
        body["operations"] = list(said.change.operations)
    if said.type == HELD:
        body["reason"] = said.kind
    if said.type == DROPPED:
        body["change"] = "dropped"
    envelope: dict[str, Any] = {
        "specversion": "1.0",
        "id": id,
        "source": f"/regions/{region}/branches/{branch}",
        "type": said.type,
        "subject": said.table,
        "time": moment.isoformat(timespec="microseconds").replace("+00:00", "Z"),
        "datacontenttype": "application/json",
    }
    if number:
        envelope["sequence"] = f"{number:012d}.{index:06d}"
    if said.change.current is not None:
        envelope["snapshotid"] = str(said.change.current)
    envelope["data"] = body
    text = json.dumps(envelope, separators=(",", ":"), ensure_ascii=False)
    # Half a surrogate pair may stand in a key, and is no UTF-8: it is told as an escape, as JSON allows.
    return Event(id, said.type, said.table, _utf8(text, envelope))


def _utf8(text: str, envelope: Mapping[str, Any]) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return json.dumps(envelope, separators=(",", ":")).encode()
