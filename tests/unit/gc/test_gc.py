"""Clean-ups of a real folder with the in-memory catalog: exactly the garbage goes."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.config.sections.model import Services
from sterna.errors import EngineError, ReplicaBroken, StoreUnreachable, UsageError
from sterna.maintenance.deletion import file_lists as cleaning_files
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.feature_position import read_feature_view_position, write_feature_view_position
from sterna.replication.replica.head import read_head
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync
from sterna.storage.objects import Objects
from tests.support.gc import after, assert_closed, clean, files, later, much_later, rewritten, strict
from tests.support.replica_paths import LOCALIZED_FOLDER
from tests.support.small_world import World, here, quiet, run, with_registry


def evidence(world: World, folder: str) -> set[str]:
    """Runs' folders, or what clean-ups go by: not what they only tell."""
    paths = (world.folder / "eu/replica/_sterna" / folder).glob("*")
    return {path.name for path in paths if path.suffix != ".json"}


def with_reset_watermark(world: World) -> set[str]:
    """What a replica has that was made from nothing right now."""
    fresh = World(world.folder, world.catalog, world.writer, _fresh_registry(world))
    run(fresh)
    root = world.folder / "eu" / "fresh"
    return {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file() and "_sterna" not in path.parts}


def _fresh_registry(world: World) -> Any:
    """Region eu anew, at another branch and another root."""
    document = world.registry.model_dump(mode="json")
    next(region for region in document["regions"] if region["name"] == "eu").update(
        replica_branch="fresh", replica_root=f"file://{world.folder}/eu/fresh"
    )
    document["locations"].append(
        {**document["locations"][-1], "id": "eu-fresh", "prefix": f"file://{world.folder}/eu/fresh"}
    )
    return type(world.registry).model_validate(document)


def test_evidence_goes_last_so_that_its_age_tells_whether_clean_ups_get_to_their_end(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    rewritten(world)
    clean(world)
    asked: list[str] = []
    delete, listing = Objects.delete, Objects.list

    def evidence_first(self: Objects, uri: str, **options: Any) -> Any:
        return iter(sorted(listing(self, uri, **options), key=lambda item: "/_sterna/" not in item[0]))

    monkeypatch.setattr(Objects, "list", evidence_first)
    monkeypatch.setattr(cleaning_files, "MAX_CHUNK_FILES", 3)
    monkeypatch.setattr(
        Objects, "delete", lambda self, uris, **options: asked.extend(uris) or delete(self, uris, **options)
    )
    clean(world, much_later())
    kinds = ["/_sterna/" in uri for uri in asked]
    assert set(kinds) == {True, False}
    assert kinds == sorted(kinds)


def test_exactly_the_garbage_goes_in_two_passes(world: World):
    world.commit(b=world.write("b"))
    rewritten(world)
    everything = files(world)
    first = clean(world)
    assert (first.garbage.files, first.deleted.files) == (0, 0), "no pass before"
    assert first.unreachable.files > 0
    assert files(world) == everything
    second = clean(world, much_later())
    assert second.failures == ()
    assert second.deleted == second.garbage
    assert files(world) < everything
    assert_closed(world)
    data = {path for path in files(world) if path.endswith((".parquet", ".avro"))}
    assert data == {path for path in with_reset_watermark(world) if path.endswith((".parquet", ".avro"))}
    assert run(world).outcome == "idle"


def test_heads_of_the_last_days_keep_their_files(world: World):
    rewritten(world)
    before = files(world)
    for hours in (30, 60, 90):
        assert clean(world, after(hours=hours)).unreachable.files == 0
    assert files(world) == before


def test_the_head_at_the_windows_start_is_kept(world: World):
    rewritten(world)
    # Every commit is older than the window: the newest of them was the head when it began.
    report = clean(world, later(), delete=False)
    shown = {version.metadata_location for version in world.replica().values() if version.metadata_location}
    root = f"file://{world.folder}/eu/replica/"
    assert {uri.removeprefix(root) for uri in shown} <= files(world)
    assert 0 < report.unreachable.files < report.objects.files


def test_what_the_head_at_the_windows_start_shows_stays_whichever_commit_put_it(
    world: World, monkeypatch: pytest.MonkeyPatch
):
    world.commit(a=world.write("a"))
    run(world)
    world.commit(b=world.write("b"))
    run(world)
    monkeypatch.setattr(world.catalog, "clock", lambda: after(days=6))
    world.commit(a=None)
    run(world)
    before = files(world, "/a/")
    for days, stay in ((9, True), (11, True), (14, True), (16, False)):
        clean(world, after(days=days))
        assert (files(world, "/a/") == before) == stay, days
    assert_closed(world)


def test_a_dry_run_deletes_nothing_and_commits_nothing(world: World):
    rewritten(world)
    clean(world)
    before, head = files(world), world.catalog.reference("main_replica_eu").hash
    report = clean(world, much_later(), delete=False)
    assert report.dry_run
    assert report.garbage.files > 0
    assert report.deleted.files == 0
    assert files(world) == before
    assert world.catalog.reference("main_replica_eu").hash == head
    assert clean(world, much_later()).deleted.files == report.garbage.files, "and it does not put off what it found"


def test_what_writers_own_and_strange_files_stay(world: World):
    rewritten(world)
    lake = {path: path.read_bytes() for path in (world.folder / "us").rglob("*") if path.is_file()}
    root = world.folder / "eu" / "replica"
    own = [
        root / "notes.txt",
        root / "somebody" / "x.parquet",
        root / "_sterna" / "other" / "x",
        world.folder / "eu" / "lake" / "w.parquet",
    ]
    for path in own:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("mine")
    clean(world)
    report = clean(world, much_later())
    assert report.deleted.files > 0
    assert report.strange.files == 3
    assert all(path.read_text() == "mine" for path in own)
    assert {path: path.read_bytes() for path in (world.folder / "us").rglob("*") if path.is_file()} == lake


def test_old_runs_and_records_go_and_needed_ones_stay(world: World):
    rewritten(world)
    runs = evidence(world, "runs")
    assert len(runs) == 3
    write_feature_view_position(world.context(), "user", "ns.a", 1)
    clean(world)
    clean(world, much_later())
    assert not [path for path in (world.folder / "eu/replica/_sterna/runs").rglob("*") if path.is_file()]
    assert len(evidence(world, "collect")) == 2
    where = world.context()
    assert read_feature_view_position(where.objects, where.region.replica_root, "user", "ns.a") == 1, (
        "however old it is"
    )


@pytest.mark.parametrize("kind", ["metadata.json", "snap-", "m0.avro"])
@pytest.mark.parametrize("damage", [None, b"", b"no such file"])
def test_metadata_that_can_not_be_read_stops_everything(world: World, kind: str, damage: bytes | None):
    rewritten(world)
    clean(world)
    before = clean(world, later(), delete=False)
    shown = {(item.metadata_location or "").rpartition("/")[2] for item in world.replica().values()}
    root = world.folder / "eu/replica" / LOCALIZED_FOLDER
    paths = [path for path in root.rglob("*") if path.is_file() and kind in path.name]
    live = [path for path in paths if path.name in shown or kind != "metadata.json"]
    # The newest list and manifest are those of the table as it is now.
    broken = max(live, key=lambda path: path.stat().st_mtime_ns)
    if damage is None:
        broken.unlink()
    else:
        broken.write_bytes(damage)
    left = files(world)
    with pytest.raises(ReplicaBroken) as caught:
        clean(world, much_later())
    assert (caught.value.table, caught.value.file) == ("ns.a", f"file://{broken}")
    assert files(world) == left
    assert before.garbage.files > 0, "there was something to delete"


def test_a_tag_on_an_older_head_keeps_its_files(world: World):
    world.commit(a=world.write("a"))
    run(world)
    old = world.catalog.reference("main_replica_eu").hash
    before = files(world)
    world.catalog.create_branch("audit", old)
    world.commit(a=None)
    run(world)
    clean(world)
    clean(world, much_later())
    assert files(world) == before


def test_without_a_replica_branch_nothing_is_touched(world: World):
    world.commit(a=world.write("a"))
    folder = stages.plan(world.context(), SyncOptions(), quiet).run
    for _ in range(2):
        with pytest.raises(UsageError, match="no replica branch"):
            clean(world, much_later())
    assert Path(folder.removeprefix("file://"), "plan.json").exists()


def test_a_branch_that_was_emptied_is_no_replica(world: World):
    rewritten(world)
    before = files(world)
    world.catalog.assign("main_replica_eu", world.catalog.no_ancestor())
    with pytest.raises(UsageError, match="what must be kept is unknown"):
        clean(world, much_later())
    assert files(world) == before


def test_eviction_is_at_once_and_of_refused_tables_alone(world: World):
    world.commit(a=world.write("a"), secret=world.write("secret"))
    run(world)
    ruling = strict(world)
    early = clean(ruling, after(), evict=True)
    assert (early.still_shown, early.deleted.files) == (("ns.secret",), 0)
    run(ruling)
    kept = clean(ruling, after())
    assert (kept.deleted.files, kept.refused.files, kept.still_shown) == (0, len(files(world, "/secret/")), ())
    assert kept.refused.bytes > 0
    a = files(world, "/a/")
    report = clean(ruling, after(), evict=True)
    assert report.deleted == report.refused == kept.refused
    assert files(world) == a
    assert_closed(ruling)
    again = clean(ruling, after())
    assert (again.refused.files, again.failed) == (0, 0), "what was evicted is not missed"


def test_eviction_finds_versions_that_no_kept_head_has(world: World):
    world.commit(a=world.write("a"), secret=world.write("secret"))
    run(world)
    ruling = strict(world)
    run(ruling)
    assert clean(ruling, later(), delete=False).refused.files == 0, "without --evict these are garbage as any other"
    assert clean(ruling, later(), evict=True).deleted.files > 0
    assert not files(world, "/secret/")


def test_a_file_that_an_allowed_table_shares_is_not_evicted(world: World):
    location = world.write("secret")
    world.commit(secret=location, a=location)
    run(world)
    ruling = strict(world)
    run(ruling)
    before = files(world)
    assert clean(ruling, after(), evict=True).deleted.files == 0
    assert files(world) == before
    assert_closed(ruling)


def locking(is_locked: Callable[[str], bool]) -> Callable[..., Any]:
    """Deletions that fail for some files."""
    delete = Objects.delete

    def locked(self: Objects, uris: list[str], **options: Any) -> Any:
        held = {uri: StoreUnreachable("locked", file=uri) for uri in uris if is_locked(uri)}
        return {**delete(self, [uri for uri in uris if uri not in held], **options), **held}

    return locked


def first_of(stuck: list[str]) -> Callable[[str], bool]:
    """What is asked about first, which is put into a list."""

    def is_first(uri: str) -> bool:
        stuck[:] = stuck or [uri]
        return uri in stuck

    return is_first


def test_files_that_can_not_be_deleted_are_named_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    stuck: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", locking(first_of(stuck)))
        report = clean(world, much_later())
    assert (report.failed, [item.file for item in report.failures]) == (1, stuck)
    assert report.deleted.files == report.garbage.files - 1
    assert clean(world, much_later() + timedelta(days=2)).deleted.files > 0
    assert not Path(stuck[0].removeprefix("file://")).exists()


def test_a_file_that_stays_undeletable_keeps_no_later_garbage(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    monkeypatch.setattr(Objects, "delete", locking(first_of([])))
    assert clean(world, much_later()).failed == 1
    before = files(world)
    rewritten(world)
    later = files(world)
    with pytest.raises(StoreUnreachable, match="locked"):  # the only file that is garbage since the last pass
        clean(world, much_later())
    report = clean(world, much_later())
    assert (report.failed, report.deleted.files > 1) == (1, True)
    assert before < later and files(world) < later


def test_evidence_goes_though_no_other_garbage_can_be_deleted(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", locking(lambda uri: "/_sterna/" not in uri))
        report = clean(world, much_later())
    assert report.failed and report.deleted.files and report.failed + report.deleted.files == report.garbage.files
    assert clean(world, much_later()).deleted.files == report.failed


def test_a_full_disk_is_no_fault_of_the_replica(world: World, monkeypatch: pytest.MonkeyPatch):
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    rewritten(world)
    before = files(world)
    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    with pytest.raises(EngineError, match="No space left"):
        clean(world)
    assert files(world) == before


def test_a_store_that_deletes_nothing_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", lambda self, uris, **_: {uri: StoreUnreachable("dark") for uri in uris})
        with pytest.raises(StoreUnreachable):
            clean(world, much_later())
    assert not read_head(world.catalog, "main_replica_eu").is_gc_running, "syncs go on"
    assert clean(world, much_later()).deleted.files > 0


def test_what_was_brought_for_a_table_in_transit_stays_however_long_that_takes(world: World):
    regions = [{**region, "bulk_copy_threshold": 1} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    context, small = world.context(), SyncOptions(lane="small")
    world.commit(b=world.write("b"))
    sync(context, SyncOptions(), quiet, engine=here)
    world.commit(a=world.write("a", 9))
    sync(context, small, quiet, engine=here)
    planned = stages.plan(context, SyncOptions(lane="large"), quiet)
    for batch in planned.batches:
        stages.copy(context, planned.run, batch.number, quiet)
    brought = files(world, "us-lake/a")
    assert brought
    clean(world, later())
    clean(world, much_later())
    assert files(world, "us-lake/a") == brought
    world.commit(a=None)
    sync(context, small, quiet, engine=here)
    clean(world, much_later() + timedelta(days=9))
    clean(world, much_later() + timedelta(days=19))
    assert not files(world, "us-lake/a")


def test_a_table_that_was_in_transit_and_has_a_fault_stops_no_clean_up_for_ever(world: World):
    regions = [{**region, "bulk_copy_threshold": 1} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    context, small = world.context(), SyncOptions(lane="small")
    sync(context, SyncOptions(), quiet, engine=here)
    world.commit(c=world.write("c", 9))
    sync(context, small, quiet, engine=here)
    world.commit(c=f"file://{world.folder}/us/lake/c/metadata/00009-gone.metadata.json")
    sync(context, small, quiet, engine=here)
    (held,) = read_head(world.catalog, "main_replica_eu").held
    assert held.kind == "SourceGone" and held.bytes > 0
    rewritten(world)
    before = files(world, "us-lake/a")
    clean(world, later())
    clean(world, much_later())
    assert 0 < len(files(world, "us-lake/a")) < len(before)
    assert_closed(world)


def test_the_newest_round_of_the_large_lane_is_never_spent(world: World):
    rewritten(world)
    round = world.folder / "eu/replica/_sterna/transit/round.json"
    round.parent.mkdir(parents=True)
    for path in (round, round.with_name("other.json")):
        path.write_text("{}")
    clean(world, later())
    clean(world, much_later())
    assert [path.name for path in round.parent.iterdir()] == ["round.json"]


def test_a_large_lane_at_work_is_not_waited_for(world: World):
    regions = [{**region, "bulk_copy_threshold": 1} for region in world.registry.model_dump()["regions"]]
    world = with_registry(world, regions=regions)
    rewritten(world)
    clean(world)
    world.commit(b=world.write("b"))
    sync(world.context(), SyncOptions(lane="small"), quiet, engine=here)
    assert stages.plan(world.context(), SyncOptions(lane="large"), quiet).batches
    assert clean(world, much_later()).in_flight == ()


@pytest.mark.parametrize(("keep_heads", "is_short"), [("7d", True), ("14d", False), ("30d", False), (None, False)])
def test_a_clean_up_warns_where_maintenance_keeps_less_than_its_heads_need(
    world: World, keep_heads: str | None, is_short: bool
) -> None:
    world.commit(a=world.write("a"))
    run(world)
    maintenance = {"tables": [{"match": ["**"]}], "keep_heads": keep_heads} if keep_heads else None
    services = Services.model_validate({"maintenance": maintenance} if maintenance else {})
    options, lines = GcOptions(keep=timedelta(days=14), keep_heads=services.keep_heads), list[str]()
    run_gc(world.context(), options, lines.append)
    warnings = [line for line in lines if line.startswith("warning: ")]
    assert bool(warnings) == is_short == bool(options.short_retention)
    assert all("maintenance.keep_heads" in line and "7 days" in line for line in warnings)
