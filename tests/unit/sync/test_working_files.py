"""What the stages of a run hand on to one another goes with its end; a killed run's is left to the clean-up."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.errors import StoreUnreachable
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync import localize, stages
from sterna.storage.objects import Objects
from tests.support.gc import after, clean
from tests.support.small_world import World, gone, here, quiet, run


def working(world: World) -> set[str]:
    """The foreign metadata, and what workers are told, that lie below the folders of runs."""
    runs = world.folder / "eu/replica/_sterna/runs"
    return {
        str(path.relative_to(runs))
        for path in runs.rglob("*")
        if path.is_file() and ("fetched" in path.parts or path.name.startswith("children-"))
    }


def evidence(world: World) -> set[str]:
    return {path.name for path in (world.folder / "eu/replica/_sterna/runs").rglob("*") if path.is_file()}


def stopped(world: World) -> str:
    """Plan a sync that nobody goes on with; return its run's folder."""
    return stages.plan(world.context(), SyncOptions(), quiet).run


def test_a_published_run_leaves_its_plan_and_report_and_no_copy_of_foreign_metadata(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(localize, "MAX_INLINE_CHILDREN", 0)
    world.commit(a=world.write("a"))
    run(world)
    assert working(world) == set()
    assert evidence(world) >= {"plan.json", "report.json", "localize.parquet", "copy-0.parquet"}


def test_a_run_that_holds_all_it_has_read_leaves_none(world: World) -> None:
    world.commit(a=world.write("a"))
    run(world)
    location = world.write("a")
    Path(next(iter((world.folder / "us/lake/a/metadata").glob("snap-*")))).unlink()
    for path in (world.folder / "us/lake/a/metadata").glob("*.avro"):
        path.unlink()
    world.commit(a=location)
    assert run(world).held
    assert run(world).outcome == "idle"
    assert working(world) == set()


def test_a_run_that_was_overtaken_leaves_none(world: World) -> None:
    world.commit(a=world.write("a"))
    late = stopped(world)
    assert working(world)
    run(world)
    context = world.context()
    copied = stages.copy(context, late, 0, quiet)
    localized = stages.localize(context, late, copied, quiet, here)
    assert stages.publish(context, late, copied, localized, quiet).outcome == "superseded"
    assert working(world) == set()


def test_a_stage_that_is_done_once_more_reads_at_the_source(world: World) -> None:
    world.commit(a=world.write("a"))
    context, folder = world.context(), stopped(world)
    copied = stages.copy(context, folder, 0, quiet)
    localized = stages.localize(context, folder, copied, quiet, here)
    first = stages.publish(context, folder, copied, localized, quiet)
    assert working(world) == set()
    again = stages.publish(context, folder, copied, stages.localize(context, folder, copied, quiet, here), quiet)
    assert (again.outcome, again.replica_hash) == (first.outcome, first.replica_hash)


def test_a_store_that_refuses_the_deletion_hurts_nobody(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def dark(*args: Any, **options: Any) -> None:
        raise StoreUnreachable("is dark")

    world.commit(a=world.write("a"))
    monkeypatch.setattr(Objects, "delete", dark)
    assert run(world).outcome == "published"
    assert working(world)


def test_the_clean_up_takes_a_killed_runs_after_its_grace(world: World) -> None:
    world.commit(a=world.write("a"), b=gone(world, "b"))
    stopped(world)
    run(world)
    assert working(world)
    clean(world, after(hours=23))
    assert working(world), "it may go on"
    clean(world, after(hours=25))
    assert working(world) == set()
    assert "plan.json" in evidence(world), "evidence stays as long as the heads do"
