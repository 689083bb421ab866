"""A store of somebody else's that can't be used delays the tables that need it, and no others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from sterna.errors import CredentialError, SternaError, StoreDenied, StoreUnreachable
from sterna.replication.plan import quarantine, sharded_listing
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.sharded_listing import ShardingLimits
from sterna.replication.replica.model import StageReport
from sterna.replication.sync.run import sync
from sterna.replication.sync.stages import copy, localize, plan, publish
from sterna.replication.verify.run import verify_structure
from sterna.storage.objects import Objects
from tests.support.small_world import (
    World,
    here,
    planned,
    quiet,
    refusing,
    run,
    with_third_region,
    written_elsewhere,
)
from tests.unit.sync.test_bulk_copy import LARGE, small, with_lanes

OUTAGES = (StoreUnreachable, StoreDenied, CredentialError)


@pytest.fixture
def three(world: World) -> World:
    """Tables of us, one of which has one file in ap; all committed apart."""
    world = with_third_region(world)
    for name in "abc":
        location = world.write(name)
        world.commit(**{name: written_elsewhere(world, name) if name == "b" else location})
    return world


def ap(world: World) -> str:
    return f"file://{world.folder}/ap/"


@pytest.mark.parametrize("error", OUTAGES)
def test_one_file_in_a_place_that_can_not_be_used_holds_its_table_alone(three: World, error: type[SternaError]):
    with refusing(ap(three), error):
        report = run(three)
        assert {"ns.a", "ns.c"} <= set(report.published)
        assert [(item.key, item.kind, item.file.rpartition("/")[2]) for item in report.held] == [
            ("ns.b", error.__name__, "b-elsewhere.parquet")
        ]
        three.commit(c=three.write("c"))
        report = run(three)
        assert (report.published, [item.key for item in report.held]) == (("ns.c",), ["ns.b"])
    assert run(three).held == ()
    assert verify_structure(three.context()).findings == ()


@pytest.mark.parametrize("error", OUTAGES)
def test_where_nothing_else_is_left_it_is_an_error_that_changes_nothing(three: World, error: type[SternaError]):
    run(three)
    before = three.catalog.reference("main_replica_eu").hash
    location = three.write("b")
    (three.folder / "ap" / "lake" / "b-elsewhere.parquet").rename(three.folder / "ap" / "lake" / "old.parquet")
    three.commit(b=written_elsewhere_again(three))
    assert location
    with refusing(ap(three), error), pytest.raises(error):
        run(three)
    assert three.catalog.reference("main_replica_eu").hash == before


@pytest.mark.parametrize("error", OUTAGES)
@pytest.mark.parametrize("what", ["data", "metadata"])
def test_another_table_s_place_keeps_no_large_table_from_coming_into_transit(
    three: World, what: str, error: type[SternaError], monkeypatch: pytest.MonkeyPatch
):
    three = with_lanes(three)
    run(three)
    if what == "data":
        big, place = three.write("big", LARGE), ap(three)
    else:  # a table that the large lane is to list
        monkeypatch.setattr(sharded_listing, "LIMITS", ShardingLimits(min_manifests=4))
        big, place = [three.write("big") for _ in range(5)][-1], f"file://{three.folder}/us/lake/b/metadata/"
    three.commit(big=big)
    (three.folder / "ap" / "lake" / "b-elsewhere.parquet").rename(three.folder / "ap" / "lake" / "old.parquet")
    three.commit(b=written_elsewhere_again(three))
    with refusing(place, error):
        report = small(three)
        assert [(item.key, item.kind) for item in report.held] == [("ns.b", error.__name__)]
        assert ([item.key for item in report.transit], report.large) == (["ns.big"], True)
        before = three.catalog.reference("main_replica_eu").hash
        assert small(three).outcome == "idle"
        assert three.catalog.reference("main_replica_eu").hash == before
        assert run(three).published == ("ns.big",), "with both lanes"
    assert run(three).published == ("ns.b",)
    assert verify_structure(three.context()).findings == ()


def written_elsewhere_again(world: World) -> str:
    table = world.writer.load_table(("ns", "b"))
    table.add_files([f"file://{world.folder}/ap/lake/old.parquet"])
    return world.writer.load_table(("ns", "b")).metadata_location


def test_a_dark_place_is_asked_for_once_in_a_sync(three: World):
    for name in ("d", "e"):
        three.write(name)
        three.commit(**{name: written_elsewhere(three, name)})
    with refusing(ap(three), StoreUnreachable) as requests:
        report = run(three, files_per_batch=1)
    assert {item.key for item in report.held} == {"ns.b", "ns.d", "ns.e"}
    assert len(requests) == 2  # for a file, and whether it answers at all


def test_a_dark_place_where_copies_broke_off_is_asked_once_whether_it_answers(three: World):
    broke_off(three, "b", "d", "e")
    with refusing(ap(three), StoreUnreachable) as requests:
        assert {item.key for item in run(three).held} == {"ns.b", "ns.d", "ns.e"}
    assert len(probes(requests)) == 1


def test_a_store_that_answers_is_not_asked_again_for_the_same_failure(three: World, monkeypatch: pytest.MonkeyPatch):
    requests: list[str] = []
    size = Objects.size
    monkeypatch.setattr(Objects, "size", lambda self, uri: requests.append(uri) or size(self, uri))
    broke_off(three, "b", "d", "e")
    with refusing(ap(three), StoreUnreachable, "*-elsewhere*"):
        planned(three)
    assert len(probes(requests)) == 1 + 3  # for all at once, and for each table alone


def test_a_dark_place_of_metadata_is_asked_once_whether_it_answers(three: World, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(quarantine, "MAX_TABLE_CONCURRENCY", 1)
    with refusing(f"file://{three.folder}/us/lake", StoreUnreachable) as requests:
        assert {item.key for item in planned(three).held} == {"ns.a", "ns.b", "ns.c"}
    assert len(requests) == 2  # for the first one's metadata, and whether it answers at all


def broke_off(world: World, *names: str) -> None:
    """Copies of files in ap were killed: each is here with a wrong size."""
    for name in names:
        if name != "b":
            world.write(name)
            world.commit(**{name: written_elsewhere(world, name)})
        target = Path(
            world.context().mapping.content_uri(f"{ap(world)}lake/{name}-elsewhere.parquet").removeprefix("file://")
        )
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"half")


def probes(requests: list[str]) -> list[str]:
    """The requests that only asked whether a store answers."""
    return [uri for uri in requests if uri.endswith("/_sterna-is-anybody-there")]


@pytest.mark.parametrize("error", [StoreUnreachable, StoreDenied])
def test_a_store_that_fails_at_one_tables_files_brings_anothers(three: World, error: type[SternaError]):
    three.write("d")
    three.commit(d=written_elsewhere(three, "d"))
    with refusing(ap(three), error, "*b-elsewhere*"):
        report = run(three)
    assert [item.key for item in report.held] == ["ns.b"]
    assert "ns.d" in report.published


@pytest.mark.parametrize("error", OUTAGES)
def test_metadata_in_a_place_that_can_not_be_used_holds_its_table_alone(three: World, error: type[SternaError]):
    with refusing(f"file://{three.folder}/us/lake/a/metadata", error, "*/a/*"):
        report = run(three)
    assert [(item.key, item.kind) for item in report.held if not item.waits_for][:1] == [("ns.a", error.__name__)]
    assert {"ns.b", "ns.c"} <= set(report.published)


@pytest.mark.parametrize("error", OUTAGES)
def test_localizing_reports_a_place_that_can_not_be_used(three: World, error: type[SternaError]):
    context = three.context()
    sync_plan = plan(context, SyncOptions(), quiet)
    copied = sum((copy(context, sync_plan.run, batch.number, quiet) for batch in sync_plan.batches), StageReport())
    shutil.rmtree(f"{sync_plan.run.removeprefix('file://')}/fetched")
    with refusing(f"file://{three.folder}/us/lake/b", error):
        localized = localize(context, sync_plan.run, copied, quiet, here)
    assert [(item.table, item.kind) for item in localized.failed] == [("ns.b", error.__name__)]
    report = publish(context, sync_plan.run, copied, localized, quiet)
    assert {"ns.a", "ns.c"} <= set(report.published)


@pytest.mark.parametrize("error", OUTAGES)
def test_the_regions_own_store_stops_the_sync(three: World, error: type[SternaError]):
    with refusing(f"file://{three.folder}/eu/replica", error), pytest.raises(error):
        run(three)
    assert "main_replica_eu" not in {reference.name for reference in three.catalog.references()}


def test_a_store_that_tells_sizes_and_refuses_contents_holds_its_tables(three: World, monkeypatch: pytest.MonkeyPatch):
    from sterna.replication.execution import copy as copying
    from sterna.storage.objects import Objects
    from sterna.storage.rclone.transfer import Transfer

    real, readable = copying.copy_files, Objects.require_readable

    def copy_files(origin, replica, names, **more):
        if origin.location.id == "ap-lake":
            return Transfer(0, 0, "403 Forbidden")
        return real(origin, replica, names, **more)

    def prove_readable(self, uri):
        if uri.startswith(ap(three)):
            raise StoreDenied("refused", file=uri)
        readable(self, uri)

    monkeypatch.setattr(copying, "copy_files", copy_files)
    monkeypatch.setattr(Objects, "require_readable", prove_readable)
    report = run(three)
    assert [(item.key, item.kind) for item in report.held] == [("ns.b", "StoreDenied")]
    monkeypatch.setattr(Objects, "require_readable", readable)
    three.commit(a=three.write("a"))
    report = run(three)
    assert [(item.key, item.kind) for item in report.held] == [("ns.b", "EngineError")]
    assert report.published == ("ns.a",)
    with pytest.raises(SternaError, match="403 Forbidden"):
        sync(three.context(), SyncOptions(), quiet, engine=here)


@pytest.mark.parametrize("trouble", ["another file of its own", "another size"])
def test_a_file_of_two_tables_is_sent_again_for_the_one_that_has_no_trouble(
    three: World, trouble: str, monkeypatch: pytest.MonkeyPatch
):
    """The first try brings nothing: what explains that for one table explains nothing for the other."""
    from sterna.replication.execution import copy as copying
    from sterna.replication.execution.copy_file import CopyFile
    from sterna.storage.rclone.transfer import Transfer

    context, lake = three.context(), three.folder / "ap" / "lake"
    (lake / "other.parquet").write_bytes(b"x" * 9)

    def file(table: str, name: str, off: int = 0) -> CopyFile:
        source = f"file://{lake}/{name}.parquet"
        size = (lake / f"{name}.parquet").stat().st_size
        return CopyFile(table, source, context.mapping.content_uri(source), size + off)

    well = file("ns.b", "b-elsewhere")
    if trouble == "another size":
        files = [well, file("ns.a", "b-elsewhere", off=1)]
    else:
        files = [well, file("ns.a", "b-elsewhere"), file("ns.a", "other")]
    real, tries = copying.copy_files, []

    def copy_files(origin, replica, names, **more):
        tries.append(names)
        return Transfer(0, 0, "") if len(tries) == 1 else real(origin, replica, names, **more)

    monkeypatch.setattr(copying, "copy_files", copy_files)
    with refusing(f"file://{lake}/other.parquet", StoreDenied):
        result = copying.copy_batch(files, context.mapping, context.secrets, context.objects)
    assert {failure.table for failure in result.failures} == {"ns.a"}
    assert context.objects.size(well.target) == well.size


def test_a_key_that_no_store_takes_is_its_tables_trouble(three: World):
    """A name that the store itself refuses says nothing of the store."""
    long = "x/" * 2200
    three.commit(d=f"file://{three.folder}/us/lake/{long}00001-x.metadata.json")
    report = run(three)
    assert [item.key for item in report.held] == ["ns.d"]
    assert {"ns.a", "ns.b", "ns.c"} <= set(report.published)
    assert all(len(item.file) <= 2000 for item in report.held)
