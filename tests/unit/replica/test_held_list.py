"""The list of what is held, beside the replica: small ones stay in the commit, a lost one loses nothing."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Delete
from sterna.errors import StoreUnreachable, UsageError
from sterna.operations.alarms import AlarmLimits, find_alarms
from sterna.operations.status.gather import gather_status
from sterna.replication.replica import held_list as lists
from sterna.replication.replica.head import HELD, Head, load_held_list, read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.held_list import HeldList, build_held_list, parse_held_list
from sterna.replication.replica.lag import measure_lags
from sterna.replication.sync.restore_branch import restore_branch
from sterna.storage.objects import Objects
from tests.support.small_world import World, gone, make_world, planned, quiet, run

BRANCH = "main_replica_eu"


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    """A world in which every list but an empty one stands beside the replica."""
    monkeypatch.setattr(lists, "MAX_INLINE_BYTES", 2)
    return make_world(tmp_path)


def listed(world: World) -> list[Path]:
    return sorted((world.folder / "eu/replica/_sterna/held").glob("*"))


def head_of(world: World) -> Head:
    return load_held_list(world.context().objects, read_head(world.catalog, BRANCH))


def holding(world: World) -> Head:
    """Hold `a` and `b` together, each with a last good version; a later commit leaves them so."""
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    world.commit(a=gone(world, "a"), b=world.write("b"))
    run(world)
    world.commit(other=world.write("other"))
    run(world)
    return head_of(world)


def damage(world: World, how: str) -> None:
    (path,) = listed(world)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    else:
        changed = gzip.compress(gzip.decompress(data).replace(b"ns.a", b"ns.z"), mtime=0)
        path.write_bytes({"cut": data[:-20], "changed": changed, "text": b"[]", "empty": b""}[how])


def test_few_are_told_in_the_commit_itself() -> None:
    few = build_held_list([Held("ns.a", "Unsupported", "is encrypted")])
    assert not few.digest
    assert json.loads(few.property_text)[0]["key"] == "ns.a"
    assert parse_held_list(few.property_text) == few


def test_many_are_told_by_a_digest_and_some_names() -> None:
    many = build_held_list(
        [Held(f"ns.{number}", "Unsupported", "x" * 300, since=f"2026-01-{number + 1:02}") for number in range(20)]
    )
    summary = parse_held_list(many.property_text)
    assert (summary.count, summary.digest, summary.entries, summary.oldest) == (20, many.digest, None, "2026-01-01")
    assert summary.sample_names == tuple(f"ns.{number}" for number in range(10))


def test_names_take_no_more_room_than_a_commit_has() -> None:
    many = build_held_list([Held(f"ns.{'é' * 400}{number}", "Unsupported", "x" * 3000) for number in range(20)])
    assert len(many.property_text) < 2_000
    assert HeldList(5, None, "ab", 3, "", ()) == parse_held_list(HeldList(5, None, "ab", 3, "", ()).property_text)


@pytest.mark.parametrize("said", ["{", "7", '{"sha256":"../x","bytes":1,"count":1,"oldest":""}', '{"count":1}', "[1]"])
def test_what_sterna_does_not_write_is_refused(said: str) -> None:
    with pytest.raises(ValueError):
        parse_held_list(said)


def test_one_of_which_nobody_knows_since_when_makes_the_oldest_unknown(world: World) -> None:
    assert build_held_list([Held("a", "X", "", since="2026-01-01"), Held("b", "X", "", since="")]).oldest == ""


def test_a_list_is_written_once_and_read_by_all(world: World) -> None:
    head = holding(world)
    assert [item.key for item in head.held] == ["ns.a", "ns.b"]
    assert len(listed(world)) == 1, "the second commit held the same"
    status = gather_status(world.context())
    assert [item.held.key for item in status.held] == ["ns.a", "ns.b"]
    assert status.unread_held is None
    assert run(world).outcome == "idle"


def test_a_head_whose_list_nobody_has_read_does_not_say_that_nothing_is_held(world: World) -> None:
    holding(world)
    with pytest.raises(RuntimeError, match="load_held_list"):
        _ = read_head(world.catalog, BRANCH).held


@pytest.mark.parametrize("how", ["gone", "cut", "changed", "text", "empty"])
def test_a_lost_list_loses_nothing(world: World, how: str) -> None:
    before = holding(world)
    damage(world, how)
    assert "can't be read" in head_of(world).held_list.read_error
    report = run(world)
    assert report.outcome == "published", "the head gets a list again"
    after = head_of(world)
    assert not after.held_list.read_error
    assert after.held == before.held, "since when, what is shown, and what belongs together"
    assert run(world).outcome == "idle"


def test_without_its_list_a_table_that_was_mended_still_waits_for_those_it_belongs_to(world: World) -> None:
    holding(world)
    world.commit(b=gone(world, "b"))
    run(world)
    for path in listed(world):
        path.unlink()
    world.commit(a=world.write("a"))
    report = run(world)
    assert [(item.key, item.kind) for item in report.held] == [("ns.a", "Waits"), ("ns.b", "SourceGone")]


def test_some_tables_alone_are_not_synced_without_the_list(world: World) -> None:
    holding(world)
    damage(world, "gone")
    with pytest.raises(UsageError, match="can't be read"):
        planned(world, tables=("ns.other",))


def test_status_says_that_the_list_is_lost_and_knows_the_lag_all_the_same(world: World) -> None:
    before = holding(world)
    expected = measure_lags(world.context()).held
    damage(world, "gone")
    status = gather_status(world.context())
    assert status.unread_held
    assert (status.unread_held.count, status.unread_held.first) == (2, ("ns.a", "ns.b"))
    assert status.held_lag_seconds == pytest.approx(expected, abs=60)
    assert status.lag_seconds == status.held_lag_seconds
    (alarm,) = find_alarms(status, AlarmLimits(lag=1e9))
    assert alarm.reason == "held"
    assert "2 tables are held, among them ns.a, ns.b" in alarm.message
    assert before.held_list.digest in alarm.message


def test_status_answers_while_the_store_is_dark(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    holding(world)

    def unreachable(*args: Any, **options: Any) -> bytes:
        raise StoreUnreachable("is dark")

    monkeypatch.setattr(Objects, "read", unreachable)
    status = gather_status(world.context())
    assert status.unread_held
    assert "is dark" in status.unread_held.why


@pytest.mark.parametrize("lost", [False, True])
def test_reasserting_says_again_what_was_held(world: World, lost: bool) -> None:
    before = holding(world)
    if lost:
        damage(world, "gone")
    at = world.catalog.reference(BRANCH).hash
    world.catalog.commit(BRANCH, at, [Delete(("ns", "other"))], "somebody else")
    restore_branch(world.context(), quiet)
    commit = next(iter(world.catalog.history(BRANCH, operations=False)))
    assert commit.properties[HELD] == before.held_list.property_text
    assert "2 held" in commit.message
    run(world)
    assert head_of(world).held == before.held


def test_a_damaged_object_of_another_time_is_put_right_before_a_commit_names_it(world: World) -> None:
    before = holding(world)
    damage(world, "changed")
    lists.write_held_list(world.context().objects, before.held_list)
    assert head_of(world).held == before.held
