"""What commits of a replica branch say, read from its log."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from datetime import timedelta
from typing import Any

import pytest

from sterna.brokers.message import Message
from sterna.catalog.commit_once import NO_CHANGES
from sterna.catalog.model import Put
from sterna.errors import StoreUnreachable, UsageError
from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.change_log.event import DROPPED, HELD, RELEASED, UPDATED
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.subscriptions.buffer import EventBuffer
from sterna.replication.replica import change_record
from sterna.replication.replica.change_record import CHANGE_RECORD_PROPERTY
from sterna.replication.replica.head import GC_MARKER, RUN_ID
from sterna.replication.replica.head import HELD as HELD_PROPERTY
from tests.support.small_world import World, gone, refusing, run, table, view

KEEP = timedelta(days=7)


def read_events(world: World, older: str | None = None) -> list[dict[str, Any]]:
    log = EventLog(world.context(), KEEP, 1000)
    stretch = log.read_since(older, log.head())
    return [json.loads(event.text) for commit in stretch.commits for event in commit.events]


def short(events: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(event["type"].removeprefix("sterna.table."), event["subject"]) for event in events]


def snapshot(world: World, name: str) -> int:
    current = world.writer.load_table(("ns", name)).current_snapshot()
    assert current is not None
    return current.snapshot_id


def head(world: World) -> str:
    return world.catalog.reference("main_replica_eu").hash


def test_an_update_has_the_four_fields_and_the_envelope(world: World) -> None:
    source = world.commit(a=world.write("a"))
    run(world)
    (event,) = read_events(world)
    commit = next(world.catalog.history("main_replica_eu", operations=False))
    assert event["data"] == {
        "table_identifier": "ns.a",
        "new_snapshot_id": snapshot(world, "a"),
        "event_timestamp_utc": int(commit.commit_time.timestamp()),
        "version": "1.0",
        "region": "eu",
        "branch": "main_replica_eu",
        "source_hash": source,
        "replica_hash": commit.hash,
        "previous_snapshot_id": None,
        "operations": ["append"],
    }
    assert {name: event[name] for name in event if name not in ("data", "time")} == {
        "specversion": "1.0",
        "id": f"{commit.hash}-1",
        "source": "/regions/eu/branches/main_replica_eu",
        "type": "sterna.table.updated",
        "subject": "ns.a",
        "datacontenttype": "application/json",
        "sequence": "000000000001.000001",
        "snapshotid": str(snapshot(world, "a")),
    }


def test_several_commits_of_main_are_one_event_with_the_range(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    first, seen = snapshot(world, "a"), head(world)
    world.commit(a=world.write("a"))
    world.writer.load_table(("ns", "a")).delete("id = 1")
    world.commit(a=world.writer.load_table(("ns", "a")).metadata_location)
    run(world)
    (event,) = read_events(world, seen)
    assert event["data"]["previous_snapshot_id"] == first
    assert event["data"]["new_snapshot_id"] == snapshot(world, "a")
    assert event["data"]["operations"] == ["append", "overwrite"]
    assert event["sequence"] == "000000000002.000001"


def test_redelivered_bytes_are_the_same(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    first, second = (EventLog(world.context(), KEEP, 10).read_since(None, head(world)) for _ in range(2))
    assert [event.text for commit in first.commits for event in commit.events] == [
        event.text for commit in second.commits for event in commit.events
    ]


def test_drops_holds_and_releases_are_told_once(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    dropped, seen = snapshot(world, "b"), head(world)
    good = world.writer.load_table(("ns", "a")).metadata_location
    world.commit(a=gone(world, "a"))
    run(world)
    world.commit(b=None)
    run(world)
    world.commit(a=good)
    run(world)
    events = read_events(world, seen)
    assert short(events) == [("held", "ns.a"), ("dropped", "ns.b"), ("released", "ns.a")]
    held, drop, released = events
    assert held["data"]["reason"] == "SourceGone"
    # The double's catalog names snapshot 1 for every table: what stays is what the catalog shows.
    assert held["data"]["new_snapshot_id"] == held["data"]["previous_snapshot_id"] == 1
    assert drop["data"]["new_snapshot_id"] == drop["data"]["previous_snapshot_id"] == 1 and "snapshotid" not in drop
    assert dropped and drop["data"]["change"] == "dropped"
    assert "reason" not in released["data"] and not any("change" in event["data"] for event in (held, released))


@dataclass(frozen=True)
class Notification:
    """What the client of the source document decodes; like its language's, this decoder takes no null for a number."""

    table_identifier: str
    new_snapshot_id: int
    event_timestamp_utc: int

    @classmethod
    def decoded(cls, body: bytes) -> Notification:
        """Raise where a field is missing, or of another type."""
        fields_by_name = json.loads(body)
        arguments = {field.name: fields_by_name[field.name] for field in fields(cls)}
        for name, value in arguments.items():
            wanted = str if name == "table_identifier" else int
            if type(value) is not wanted or (wanted is int and not -(2**63) <= value < 2**63):
                raise TypeError(f"{name}: {value!r}")
        return cls(**arguments)


def test_a_client_that_expects_a_number_is_told_of_each_change(world: World) -> None:
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=gone(world, "a"))
    run(world)
    world.commit(b=None)
    run(world)
    events = EventLog(world.context(), KEEP, 10).read_since(None, head(world)).commits
    messages = [Message(event.id, event.table, event.text) for commit in events for event in commit.events]
    notifications = [Notification.decoded(message.binary()[1]) for message in messages]
    assert [notification.table_identifier for notification in notifications] == ["ns.a", "ns.b", "ns.a", "ns.b"]
    assert notifications[-1].new_snapshot_id == 1  # as the double's catalog names it


def test_views_and_namespaces_are_no_tables(world: World) -> None:
    key = ("ns", "v")
    world.commit(a=world.write("a"))
    location = view(world, "v")
    content = table(location).payload | {"type": "ICEBERG_VIEW"}
    world.catalog.commit(
        "main", world.catalog.reference("main").hash, [Put(key, type(table(location)).of(content))], "view"
    )
    run(world)
    assert "ns.v" in world.replica()
    assert short(read_events(world)) == [("updated", "ns.a")]


def fence(world: World, pass_id: str, *, deleting: bool) -> None:
    parent = next(world.catalog.history("main_replica_eu", operations=False))
    properties = dict(parent.properties) | {RUN_ID: pass_id}
    properties = (
        properties | {GC_MARKER: pass_id} if deleting else {n: v for n, v in properties.items() if n != GC_MARKER}
    )
    world.catalog.commit("main_replica_eu", parent.hash, NO_CHANGES, "sterna: fence", properties)


def test_the_commits_of_a_clean_up_say_nothing_and_the_numbers_go_on(world: World) -> None:
    world.commit(a=gone(world, "a"), b=world.write("b"))
    run(world)
    seen = head(world)
    fence(world, "collect-1", deleting=True)
    fence(world, "collect-1", deleting=False)
    assert read_events(world, seen) == []
    world.commit(b=world.write("b"))
    run(world)
    (event,) = read_events(world, seen)
    assert event["sequence"] == "000000000002.000001"


def old(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let syncs commit as a version without news did."""
    from sterna.replication.sync import publish

    real = publish.commit_once

    def commit_once(
        catalog: Any, branch: str, expected: str, operations: Any, message: str, properties: Any, **named: Any
    ) -> str:
        properties = {name: value for name, value in properties.items() if name != CHANGE_RECORD_PROPERTY}
        return real(catalog, branch, expected, operations, message, properties, **named)

    monkeypatch.setattr(publish, "commit_once", commit_once)


def test_events_of_commits_of_an_older_version_are_right(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        old(world, patch)
        world.commit(a=world.write("a"), b=world.write("b"))
        run(world)
        good = world.writer.load_table(("ns", "a")).metadata_location
        world.commit(a=gone(world, "a"), b=None)
        run(world)
        fence(world, "collect-1", deleting=True)
        world.commit(a=good)
        fence(world, "collect-1", deleting=False)
        run(world)
    events = read_events(world)
    assert short(events) == [
        ("updated", "ns.a"),
        ("updated", "ns.b"),
        ("held", "ns.a"),
        ("held", "ns.b"),
        ("released", "ns.a"),
        ("released", "ns.b"),
        ("dropped", "ns.b"),
    ]
    assert all("sequence" not in event and "operations" not in event["data"] for event in events)
    world.commit(c=world.write("c"))
    run(world)
    assert read_events(world)[-1]["sequence"] == "000000000001.000001"


def test_long_news_stand_in_the_run_s_folder_and_their_loss_costs_little(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_record, "MAX_INLINE_BYTES", 10)
    world.commit(a=world.write("a"))
    run(world)
    seen = head(world)
    world.commit(a=world.write("a"))
    world.commit(b=gone(world, "b"))
    run(world)
    whole = read_events(world, seen)
    assert short(whole) == [("updated", "ns.a"), ("held", "ns.b")]
    commit = next(world.catalog.history("main_replica_eu", operations=False))
    assert (
        "sha256" in commit.properties[CHANGE_RECORD_PROPERTY]
        and "ns.a" not in commit.properties[CHANGE_RECORD_PROPERTY]
    )
    with (
        refusing(f"file://{world.folder}/eu/replica", StoreUnreachable, "*news.json.gz"),
        pytest.raises(StoreUnreachable),
    ):
        read_events(world, seen)
    for path in (world.folder / "eu" / "replica").rglob("news.json.gz"):
        path.write_bytes(b"damaged")
    (left,) = read_events(world, seen)
    assert left["data"].pop("operations", None) is None
    log = EventLog(world.context(), timedelta(days=1), 1000)
    with pytest.raises(UsageError, match="other numbers"):
        list(log.read_after(Cursor(commit.hash, 1), commit.hash))
    buffer = EventBuffer(seen, 100)
    buffer.append(log.read_since(seen, commit.hash).commits)
    assert buffer.position(Cursor(commit.hash, 1)) is None, "the second event is another one by now"
    assert buffer.position(Cursor(commit.hash, 0)) == 0 and buffer.position(Cursor(commit.hash)) == 1
    # The double's catalog names snapshot 1 for every table.
    assert left["data"]["new_snapshot_id"] == 1 and left["id"] == whole[0]["id"]


def test_somebody_else_s_commit_is_not_announced(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    seen = head(world)
    content = world.replica()["ns.a"]
    world.catalog.commit_as("mallory", "main_replica_eu", [Put(("ns", "a"), content)])
    assert read_events(world, seen) == []


def test_a_stretch_says_whether_it_reaches_back(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    first = head(world)
    for _ in range(3):
        world.commit(a=world.write("a"))
        run(world)
    log = EventLog(world.context(), KEEP, 2)
    assert log.read_since(first, head(world), 10).complete
    assert not log.read_since(first, head(world)).complete
    assert not EventLog(world.context(), timedelta(0), 100).read_since(first, head(world)).complete
    unknown = "0" * 64
    assert not log.read_since(unknown, head(world), 10).complete
    assert log.read_since(head(world), head(world)).commits == ()


def test_types_are_named_as_designed() -> None:
    assert {UPDATED, DROPPED, HELD, RELEASED} == {
        f"sterna.table.{word}" for word in ("updated", "dropped", "held", "released")
    }
    assert HELD_PROPERTY == "sterna.held"
