"""`main` reassigned, reset or rewritten behind the watermark.

The sync stops, and follows on an operator's word alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from sterna.catalog.model import Commit
from sterna.errors import Diverged, UsageError
from sterna.operations.status.read import read_status
from sterna.replication.replica.divergence import starts_at_watermark, validate_reset_target
from sterna.replication.replica.head import SOURCE_HASH, WATERMARK_RESET_FROM, read_head
from sterna.replication.replica.lag import measure_lag
from sterna.replication.verify.run import verify_structure
from tests.support.small_world import World, gone, planned, run

BRANCH = "main_replica_eu"


def line(world: World, count: int = 3) -> list[str]:
    """Commit a table again and again and sync; return the hashes of main."""
    hashes = [world.commit(**{f"t{number}": world.write(f"t{number}")}) for number in range(count)]
    run(world)
    return hashes


def newest(world: World) -> dict[str, str]:
    return dict(next(iter(world.catalog.history(BRANCH, operations=False))).properties)


def test_main_reset_to_an_older_commit(world: World):
    hashes = line(world)
    before = len(list(world.catalog.history(BRANCH, operations=False)))
    world.catalog.assign("main", hashes[0])
    with pytest.raises(Diverged, match=rf"main is at {hashes[0]}; {hashes[2]}.*reset-watermark --to {hashes[0]}"):
        run(world)
    assert run(world, reset_watermark_to=hashes[0]).outcome == "published"
    assert set(world.replica()) == {"ns", "ns.t0"}
    assert read_head(world.catalog, BRANCH).watermark == hashes[0]
    assert (newest(world)[WATERMARK_RESET_FROM], newest(world)[SOURCE_HASH]) == (hashes[2], hashes[0])
    assert len(list(world.catalog.history(BRANCH, operations=False))) == before + 1, "nothing is reset here"
    assert run(world).outcome == "idle"
    assert verify_structure(world.context()).findings == ()


def test_main_rewritten_on_an_old_base(world: World):
    hashes = line(world)
    world.catalog.assign("main", hashes[1])
    middle = world.commit(t1=world.write("t1", rows=9))
    head = world.commit(other=world.write("other"))
    with pytest.raises(Diverged):
        run(world)
    assert run(world, reset_watermark_to=middle).watermark == head
    assert set(world.replica()) == {"ns", "ns.t0", "ns.t1", "ns.other"}
    assert newest(world)[WATERMARK_RESET_FROM] == hashes[2]
    assert run(world).outcome == "idle"
    assert verify_structure(world.context()).findings == ()


@pytest.mark.parametrize("chosen", ["watermark", "fork", "older", "unknown", "prefix"])
def test_a_hash_that_does_not_say_where_main_stands_is_refused_with_where_it_does(world: World, chosen: str):
    hashes = line(world)
    world.catalog.assign("main", hashes[1])
    head = world.commit(other=world.write("other"))
    wrong = {"watermark": hashes[2], "fork": hashes[1], "older": hashes[0], "unknown": "ab" * 32, "prefix": head[:12]}[
        chosen
    ]
    before = world.replica()
    with pytest.raises(UsageError, match=f"{wrong} is not main's head: it is at {head}"):
        run(world, reset_watermark_to=wrong)
    assert world.replica() == before
    with pytest.raises(Diverged):
        run(world)


def test_where_main_has_not_left_the_watermark_it_is_a_sync_of_everything(world: World):
    hashes = line(world)
    assert run(world, reset_watermark_to=hashes[2]).outcome == "idle", (
        "a second time after a first one that was killed too late"
    )
    head = world.commit(t0=world.write("t0"))
    assert run(world, reset_watermark_to=hashes[2]).published == ("ns.t0",)
    assert WATERMARK_RESET_FROM not in newest(world)
    assert read_head(world.catalog, BRANCH).watermark == head
    with pytest.raises(UsageError):
        run(world, reset_watermark_to=hashes[0])


def test_a_watermark_that_the_catalog_lost_needs_no_word_and_takes_it(world: World):
    hashes = line(world)
    world.catalog.assign("main", hashes[1])
    world.catalog.forget(hashes[2])
    assert measure_lag(world.context()) > 0
    with pytest.raises(UsageError):
        run(world, reset_watermark_to=hashes[2])
    assert run(world, reset_watermark_to=hashes[0]).outcome == "published"
    assert set(world.replica()) == {"ns", "ns.t0", "ns.t1"}
    assert run(world).outcome == "idle"


def test_a_main_emptied_altogether(world: World):
    line(world, 1)
    empty = world.catalog.no_ancestor()
    world.catalog.assign("main", empty)
    with pytest.raises(Diverged):
        measure_lag(world.context())
    run(world, reset_watermark_to=empty)
    assert world.replica() == {}
    assert run(world).outcome == "idle"


def test_what_the_new_line_changed_in_one_commit_waits_together(world: World):
    hashes = line(world)
    world.catalog.assign("main", hashes[1])
    head = world.commit(t0=gone(world, "t0"), t1=world.write("t1", rows=9))
    before = world.replica()
    report = run(world, reset_watermark_to=head)
    assert {item.key: item.waits_for for item in report.held} == {"ns.t0": "", "ns.t1": "ns.t0"}
    assert {name: world.replica()[name] for name in ("ns.t0", "ns.t1")} == {
        name: before[name] for name in ("ns.t0", "ns.t1")
    }
    assert "ns.t2" not in world.replica()


def test_a_plan_of_it_changes_nothing(world: World):
    hashes = line(world)
    world.catalog.assign("main", hashes[0])
    plan = planned(world, reset_watermark_to=hashes[0])
    assert (plan.watermark_reset_from, plan.watermark, plan.source_hash) == (hashes[2], hashes[2], hashes[0])
    assert {action.key for action in plan.actions} == {"ns.t1", "ns.t2"}
    assert read_head(world.catalog, BRANCH).watermark == hashes[2]


@pytest.mark.parametrize(("old", "new"), [(0, 0), (0, 3), (3, 0), (5, 2), (2, 5), (1, 1)])
def test_the_fork_is_found_however_long_each_line_is(world: World, old: int, new: int):
    base = line(world, 2)[-1]
    ends = []
    for name, count in (("old", old), ("new", new)):
        world.catalog.assign("main", base)
        ends.append([world.commit(**{name: f"s3://x/{number}.metadata.json"}) for number in range(count)])
    watermark, head = (end[-1] if end else base for end in ends)
    commits = validate_reset_target(world.context(), head, watermark, head)
    assert [commit.hash for commit in commits] == ends[1][::-1]
    assert starts_at_watermark(commits, head, watermark) == (old == 0)


@pytest.mark.parametrize(("old", "new"), [(1, 1), (40, 1), (1, 40), (30, 30), (40, 0)])
def test_what_is_read_to_find_that_main_has_left_follows_the_distance_to_the_fork(
    world: World, monkeypatch: pytest.MonkeyPatch, old: int, new: int
):
    base = [world.commit(base=f"s3://x/{number}.metadata.json") for number in range(300)][-1]
    run(world)
    for name, count in (("old", old), ("new", new)):
        world.catalog.assign("main", base)
        head = [base, *(world.commit(**{name: f"s3://x/{number}.metadata.json"}) for number in range(count))][-1]
        if name == "old":
            run(world)
    read = counting(world, monkeypatch)
    with pytest.raises(Diverged, match=f"main is at {head}"):
        run(world)
    assert len(read) <= 2 * max(old, new) + 40, "of more than 300"


@pytest.mark.parametrize("behind", [1, 5, 100])
def test_what_is_read_by_a_sync_that_follows_main_is_what_it_is_behind(
    world: World, monkeypatch: pytest.MonkeyPatch, behind: int
):
    for number in range(200):
        world.commit(base=f"s3://x/{number}.metadata.json")
    run(world)
    for number in range(behind):
        world.commit(base=f"s3://y/{number}.metadata.json")
    read = counting(world, monkeypatch)
    planned(world)
    assert len(read) <= behind + (1 if behind < 10 else behind) + 2


def counting(world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """From now on, the commits that anybody reads from the catalog."""
    history, read = world.catalog.history, list[str]()

    def counted(*args: str, **options: Any) -> Iterator[Commit]:
        for commit in history(*args, **options):
            read.append(commit.hash)
            yield commit

    monkeypatch.setattr(world.catalog, "history", counted)
    return read


def test_status_says_that_main_has_left_the_watermark_and_the_way_out(world: World):
    hashes = line(world)
    world.catalog.assign("main", hashes[0])
    status = read_status(world.context())
    assert hashes[0] in status.problem and hashes[2] in status.problem and "reset-watermark --to" in status.problem
    assert (status.lag_seconds, status.watermark) == (None, hashes[2])
