"""`sterna pin`: a commit of the replica branch stays readable until a day, whatever the clean-up keeps."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.commit_once import NO_CHANGES
from sterna.errors import Busy, SnapshotGone
from sterna.maintenance.gc import pin as holding
from sterna.maintenance.gc.pin import Pin, pin
from sterna.replication.replica.head import GC_MARKER, REGION, RUN_ID
from tests.support.gc import after, clean, files, later, much_later
from tests.support.small_world import World, run

BRANCH = "main_replica_eu"


@pytest.fixture
def old(world: World) -> str:
    """A head whose only table is dropped since."""
    world.commit(a=world.write("a"))
    run(world)
    head = world.catalog.reference(BRANCH).hash
    world.commit(a=None)
    run(world)
    return head


def held(world: World, cursor: str, days: int = 30, now: datetime | None = None) -> Pin:
    return pin(world.context(), cursor, timedelta(days=days), now=now or after())


def tags(world: World) -> list[str]:
    return [reference.name for reference in world.catalog.references() if reference.kind == "TAG"]


def test_what_is_held_stays_until_the_hold_is_over_and_goes_then(world: World, old: str) -> None:
    before = files(world)
    pin = held(world, old)
    assert tags(world) == [pin.tag] and pin.tag.startswith("sterna-hold-eu-") and pin.tag.endswith(old[:12])
    assert (pin.cursor, pin.tables, pin.in_place) == (old, 1, ())
    clean(world)
    clean(world, much_later())
    assert files(world) == before
    over = after(days=31)
    clean(world, over, delete=False)
    assert tags(world) == [pin.tag]  # a dry run takes nothing away
    clean(world, over)
    assert tags(world) == []
    clean(world, over + timedelta(days=2))
    clean(world, over + timedelta(days=4))
    assert files(world) == set()


def test_holding_twice_is_holding_once(world: World, old: str) -> None:
    now = after()
    assert held(world, old, now=now) == held(world, old, now=now)
    assert len(tags(world)) == 1
    held(world, old, days=60, now=now)
    assert len(tags(world)) == 2


def test_other_tags_are_left_alone(world: World, old: str) -> None:
    for name in (
        "audit",
        "sterna-hold-us-20200101T000000Z-" + old[:12],
        "sterna-hold-eu-2-20200101T000000Z-" + old[:12],
    ):
        world.catalog.create_tag(name, BRANCH, old)
    clean(world)
    assert len(tags(world)) == 3


@pytest.mark.parametrize("said", [{RUN_ID: "x"}, {RUN_ID: "x", REGION: "us"}, {REGION: "eu"}])
def test_a_commit_that_does_not_name_this_region_can_t_be_held(world: World, old: str, said: dict[str, str]) -> None:
    head = world.catalog.reference(BRANCH).hash
    at = world.catalog.commit(BRANCH, head, NO_CHANGES, "whose?", said)
    world.catalog.commit(BRANCH, at, NO_CHANGES, "sterna", {RUN_ID: "y", REGION: "eu"})
    with pytest.raises(SnapshotGone):
        held(world, at)
    assert tags(world) == []


def test_what_is_gone_already_can_t_be_held(world: World, old: str) -> None:
    clean(world)
    clean(world, much_later())
    with pytest.raises(SnapshotGone, match="can't be pinned any more"):
        held(world, old)
    for unknown in ("ab" * 32, world.catalog.reference("main").hash):
        with pytest.raises(SnapshotGone, match="has no commit"):
            held(world, unknown)
    assert tags(world) == []


@pytest.mark.parametrize("ending", ["parquet", "avro", "metadata.json"])
def test_one_file_that_is_gone_is_enough(world: World, old: str, ending: str) -> None:
    path = next(world.folder / "eu" / "replica" / name for name in sorted(files(world, ending)))
    path.unlink()
    with pytest.raises(SnapshotGone):
        held(world, old)
    assert tags(world) == []


def test_a_clean_up_that_deletes_meanwhile_may_not_have_seen_the_hold(
    world: World, old: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real: Callable[..., Any] = holding.require_reachable

    def fenced(*args: Any) -> None:
        real(*args)
        head = world.catalog.reference(BRANCH).hash
        for collecting in ({GC_MARKER: "x"}, {}):
            head = world.catalog.commit(BRANCH, head, NO_CHANGES, "sterna", {RUN_ID: "x", **collecting})

    monkeypatch.setattr(holding, holding.require_reachable.__name__, fenced)
    with pytest.raises(Busy):
        held(world, old)
    assert tags(world) == []
    monkeypatch.setattr(holding, real.__name__, real)
    world.catalog.commit(
        BRANCH, world.catalog.reference(BRANCH).hash, NO_CHANGES, "sterna", {RUN_ID: "x", GC_MARKER: "x"}
    )
    with pytest.raises(Busy):
        held(world, old)
    assert tags(world) == []


def test_tables_whose_files_may_lie_in_place_are_told(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world, "us")
    at = world.catalog.reference("main_replica_us").hash
    pinned = pin(world.context("us"), at, timedelta(days=1), now=later())
    assert pinned.in_place == ("ns.a",)


def test_a_pin_names_the_commit_of_main_and_what_stayed_behind(world: World) -> None:
    main = world.commit(a=world.write("a"))
    run(world)
    made = held(world, world.catalog.reference(BRANCH).hash)
    assert (made.main, made.behind) == (main, ())
    missing = world.write("b")
    Path(missing.removeprefix("file://")).unlink()
    main = world.commit(b=missing)
    run(world)
    made = held(world, world.catalog.reference(BRANCH).hash, days=31)
    assert (made.main, made.behind) == (main, ("ns.b",))
