"""Verify sees a branch that is not at the watermark that it names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.commit_once import NO_CHANGES
from sterna.catalog.model import Delete, Operation, Put
from sterna.replication.repair.run import repair
from sterna.replication.replica.head import DIGEST, PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replication.sync.restore_branch import restore_branch
from sterna.replication.verify.findings import STALE
from sterna.replication.verify.run import Depth, verify
from tests.support.small_world import World, make_world, quiet, ruled, run

BRANCH = "main_replica_eu"


@pytest.fixture
def world(tmp_path: Path) -> World:
    """Three tables in eu; then `main` has appended to a, dropped c, and created d."""
    world = make_world(tmp_path)
    world.commit(a=world.write("a"), b=world.write("b"), c=world.write("c"))
    run(world)
    world.commit(a=world.write("a", 5), d=world.write("d"))
    world.commit(c=None)
    return world


def miss(world: World, *operations: Operation, **properties: str) -> None:
    """A commit as of a sync that has all changes of `main`, and published none."""
    head = next(iter(world.catalog.history(BRANCH, operations=False)))
    main = world.catalog.reference("main").hash
    missed = {**head.properties, RUN_ID: "missed", SOURCE_HASH: main, PLANNED_HASH: main, **properties}
    world.catalog.commit(BRANCH, head.hash, operations or NO_CHANGES, "missed", missed)


def stale(world: World, *names: str, **depth: Any) -> list[str]:
    return sorted(item.table for item in verify(world.context(), Depth(**depth), names).findings if item.kind == STALE)


@pytest.mark.parametrize("deep", [False, True])
def test_a_change_that_a_sync_missed_is_named(world: World, deep: bool) -> None:
    miss(world, Delete(("ns", "b")))
    assert stale(world, deep=deep) == ["ns.a", "ns.b", "ns.c", "ns.d"]
    assert stale(world, "ns.a", deep=deep) == ["ns.a"]
    run(world, full=True)
    assert verify(world.context(), Depth(deep)).findings == ()


def test_what_the_next_sync_compares_is_no_fault(world: World) -> None:
    assert stale(world) == [], "main is ahead of the watermark"
    miss(world, **{DIGEST: ""})
    assert stale(world) == [], "after a sync of chosen tables all are compared"
    assert run(world).outcome == "published"
    assert verify(world.context(), Depth(deep=True)).findings == ()


def test_what_is_chosen_held_or_excluded_is_as_it_should_be(world: World) -> None:
    run(world, tables=("ns.a",))
    assert stale(world) == []
    run(world)
    (world.folder / "us" / "lake" / "b" / "metadata").rename(world.folder / "gone")
    assert stale(world) == []
    world = ruled(world, residency=[{"tables": ["ns.d"], "never": ["eu"]}])
    assert stale(world) == [], "the next sync takes it off"
    run(world)
    assert stale(world) == []


def test_going_back_to_an_older_version_is_no_fault(world: World) -> None:
    run(world)
    older = world.writer.load_table(("ns", "a")).metadata_location
    world.commit(a=world.write("a", 7))
    world.commit(a=older)
    run(world)
    assert stale(world) == []


def test_repair_leaves_it_to_a_full_sync(world: World) -> None:
    miss(world, Delete(("ns", "b")))
    data = next((world.folder / "eu" / "replica").rglob("a/data/*.parquet"))
    data.unlink()
    done = repair(world.context(), (), quiet, apply=True)
    assert data.exists() and sorted(fault.table for fault in done.left) == ["ns.a", "ns.b", "ns.c", "ns.d"]
    assert done.faults_left == 4 and all("sync --full" in fault.why for fault in done.left)


def test_a_restored_branch_is_compared_with_what_its_tables_were_taken_from(world: World) -> None:
    run(world, tables=("ns.a",))
    head = world.catalog.reference(BRANCH).hash
    content = dict(world.catalog.entries(BRANCH, head))[("ns", "a")]
    world.catalog.commit_as("another", BRANCH, [Put(("ns", "a"), content.with_metadata_location("file:///x.json"))])
    restore_branch(world.context(), quiet)
    assert verify(world.context(), Depth(deep=True)).findings == ()
