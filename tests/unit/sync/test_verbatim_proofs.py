"""A version's marker is written where what its plan left out is proven, by the version that the plan counted on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from sterna.catalog.model import Content, Delete, Put
from sterna.config.metadata_names import without_digest
from sterna.errors import CatalogUnreachable
from sterna.operations.status.gather import gather_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import StageReport
from sterna.replication.sync import stages, verbatim
from tests.support.small_world import World, here, quiet, run
from tests.support.verbatim import copies, keeping, markers, originals, without_first
from tests.unit.sync.test_bulk_copy import LARGE, begun, brought, small, with_lanes

KEY = ("ns", "a")


def shown_on_main(world: World) -> tuple[str, Content]:
    head = world.catalog.reference("main").hash
    return head, world.catalog.contents("main", head, [KEY])[KEY]


def overwritten(world: World) -> str:
    """Write a version whose list names no manifest of the one before: only that one's own list does."""
    table = world.writer.load_table(KEY)
    table.overwrite(table.scan().to_arrow())
    return table.metadata_location


def lose_manifest(world: World, unreadable: list[str]) -> None:
    """The first version's only manifest has no copy any more, and can't be read."""
    (lost,) = (world.folder / "eu/replica/_sterna/verbatim").rglob("*-m0.avro")
    lost.unlink()
    unreadable[:] = [lost.name]


def localized(world: World, planned: stages.PlannedRun) -> tuple[StageReport, StageReport]:
    """The reports of the stages between the plan and its publication."""
    context = world.context()
    copied = sum((stages.copy(context, planned.run, batch.number, quiet) for batch in planned.batches), StageReport())
    return copied, stages.localize(context, planned.run, copied, quiet, here)


def test_a_version_that_is_published_again_is_complete_only_with_what_it_lacks(
    world: World, unreadable: list[str]
) -> None:
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    unreadable.append("avro")
    run(kept)
    lose_manifest(kept, unreadable)
    head, content = shown_on_main(kept)
    changed = Content.of({**content.payload, "schemaId": 1}).with_id(content.id)
    head = kept.catalog.commit("main", head, [Put(KEY, changed)], "the entry changes, and not the metadata.json")
    assert run(kept).published == ("ns.a",)
    assert (markers(kept), gather_status(kept.context()).uncopied) == (set(), ("ns.a",))
    unreadable.clear()
    kept.catalog.commit("main", head, [Delete(KEY), Put(("ns", "b"), changed)], "rename")
    assert "ns.b" in run(kept).published
    assert copies(kept) == without_first(originals(kept))
    assert len(markers(kept)) == 1


def test_what_a_bulk_runs_version_lacks_is_missing_in_one_that_a_later_bulk_run_copies(
    world: World, unreadable: list[str]
) -> None:
    kept = with_lanes(keeping(world, "eu"))
    kept.commit(a=kept.write("a", LARGE))
    unreadable.append("avro")
    small(kept)
    brought(kept, begun(kept))
    assert markers(kept) == set()
    lose_manifest(kept, unreadable)
    kept.commit(a=overwritten(kept))
    brought(kept, begun(kept))
    assert markers(kept) == set()
    assert small(kept).published == ("ns.a",)
    assert (markers(kept), gather_status(kept.context()).uncopied) == (set(), ("ns.a",))
    unreadable.clear()
    run(kept, full=True)
    assert gather_status(kept.context()).uncopied == ()
    assert {path for path in originals(kept) if path.endswith(".avro")} <= set(copies(kept))


def test_a_bulk_runs_version_that_no_plan_counts_on_has_no_files_looked_up(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The record of a bulk run stays, and clean-ups delete its versions' markers."""
    kept = with_lanes(keeping(world, "eu"))
    kept.commit(a=kept.write("a", LARGE))
    small(kept)
    brought(kept, begun(kept))
    folder = kept.folder / "eu/replica/_sterna/verbatim"
    (marker,) = (path for path in folder.rglob("*.json") if without_digest(path.name) != path.name)
    for _ in range(2):
        kept.commit(a=kept.write("a"))
        small(kept)
    assert len(markers(kept)) == 3
    marker.unlink()
    looked_up: list[str] = []
    plain = verbatim.read_metadata

    def read(context: Any, uri: str) -> Any:
        looked_up.append(uri)
        return plain(context, uri)

    monkeypatch.setattr(verbatim, "read_metadata", read)
    kept.commit(a=kept.write("a"))
    assert small(kept).published == ("ns.a",)
    assert looked_up == []
    assert gather_status(kept.context()).uncopied == ()


def test_localizing_asks_no_catalog_for_what_the_plan_counted_on(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = keeping(world, "eu")
    for _ in range(2):
        kept.commit(a=kept.write("a"))
        planned = stages.plan(kept.context(), SyncOptions(), quiet)
        with monkeypatch.context() as patched:
            for name in ("contents", "entries"):
                patched.setattr(type(kept.catalog), name, no_answer)
            localized(kept, planned)
        run(kept)
    assert len(markers(kept)) == 2


def no_answer(*_: Any) -> Any:
    raise CatalogUnreachable("no answer")


def test_a_plan_of_a_region_without_copies_is_as_versions_before_read_it(world: World) -> None:
    for _ in range(2):
        world.commit(a=world.write("a"))
        planned = stages.plan(world.context(), SyncOptions(), quiet)
        document = json.loads(Path(f"{planned.run}/plan.json".removeprefix("file://")).read_text())
        assert [action["key"] for action in document["actions"]][-1] == "ns.a"
        assert document.keys() == _golden("plan-short").keys()
        assert {name for action in document["actions"] for name in action} == _golden("plan")["actions"][0].keys()
        run(world)


def _golden(name: str) -> dict[str, Any]:
    folder = Path(__file__).parents[2] / "data/written-2026-11/records"
    document: dict[str, Any] = json.loads((folder / f"{name}.json").read_text())
    return document


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_plan_that_doesnt_say_what_it_counted_on_has_all_files_looked_up(
    world: World, unreadable: list[str], is_lost: bool
) -> None:
    """As plans of versions before say nothing of it."""
    kept = keeping(world, "eu")
    kept.commit(a=kept.write("a"))
    run(kept)
    lost = next((kept.folder / "eu/replica/_sterna/verbatim").rglob("*-m0.avro"))
    if is_lost:
        lost.unlink()
        unreadable.append(lost.name)
    kept.commit(a=overwritten(kept))
    planned = stages.plan(kept.context(), SyncOptions(), quiet)
    path = Path(f"{planned.run}/plan.json".removeprefix("file://"))
    document = json.loads(path.read_text())
    for action in document["actions"]:
        assert action.pop("proven_by")
    path.write_text(json.dumps(document))
    reports = localized(kept, planned)
    assert len(markers(kept)) == 1
    stages.publish(kept.context(), planned.run, *reports, quiet)
    assert len(markers(kept)) == (1 if is_lost else 2)
