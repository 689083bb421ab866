"""A sweep over real files on disk: two passes, only where it was opted in, and nothing where something isn't known."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.catalog.model import Content, Put
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import Busy, FilesGone, SternaError, StoreDenied, UnsafeUri, UpkeepBlocked, UsageError
from sterna.maintenance.deletion.references import ReferencePoller
from sterna.maintenance.restore import pins as restore_pins
from sterna.maintenance.restore.model import RestoreRequest
from sterna.maintenance.restore.run import restore
from sterna.maintenance.tables import gather
from sterna.maintenance.tables import orphan_files as sweeping
from sterna.maintenance.tables.orphan_files import POLLED_SECONDS, MainScope, sweep
from sterna.maintenance.tables.records import write_begin_marker
from sterna.maintenance.tables.results import SweepReport
from sterna.replication.failover import certain_term
from sterna.storage.objects import Objects
from tests.support.gc import after
from tests.support.patching import replace_functions
from tests.support.small_world import World, make_world, quiet, refusing, ruled, run, with_registry


@pytest.fixture
def world(tmp_path: Path) -> World:
    """The lake of us is swept; the table `a` is replicated to eu, and one of its files is nobody's."""
    world = opted_in(make_world(tmp_path))
    world.commit(a=world.write("a"))
    run(world)
    orphan(world)
    return world


def opted_in(world: World, **fields: Any) -> World:
    locations = world.registry.model_dump(mode="json")["locations"]
    for location in locations:
        location["sweep"] = location["id"] == "us-lake"
    return with_registry(world, locations=locations, **fields)


def orphan(world: World, path: str = "a/data/orphan.parquet") -> Path:
    file = world.folder / "us" / "lake" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"nobody's")
    return file


def swept(
    world: World, now: datetime | None = None, *, asked: bool = False, delete: bool = True, **more: Any
) -> SweepReport:
    """A sweep a day from now, or then, or when the clock says that it is, if `asked`."""
    fields = {"tables": [{"match": ["**"]}], "exclude_regions": ["us"], "keep_heads": "1h", "grace": "24h", **more}
    return sweep(
        world.context("us"),
        Maintenance.model_validate(fields),
        delete=delete,
        now=None if asked else now or after(hours=26),
    )


def files(world: World) -> set[str]:
    lake = world.folder / "us" / "lake"
    return {str(path.relative_to(lake)) for path in lake.rglob("*") if path.is_file()}


def test_garbage_goes_in_the_second_pass_and_nothing_else(world: World) -> None:
    before = files(world)
    assert swept(world, after(hours=2)).deleted.files == 0
    shown = swept(world, delete=False)
    assert (shown.dry_run, shown.garbage.files, shown.folders[0].uri) == (
        True,
        1,
        f"file://{world.folder}/us/lake/a/data",
    )
    assert files(world) == before
    done = swept(world)
    assert (done.deleted.files, done.failed, done.left.files) == (1, 0, 0)
    assert before - files(world) == {"a/data/orphan.parquet"}
    assert run(world).outcome == "idle"


def test_one_pass_is_not_enough_and_neither_is_age_alone(world: World) -> None:
    assert swept(world).deleted.files == 0, "old, and the first pass"
    swept(world, after(hours=2))
    orphan(world, "a/data/younger.parquet")
    report = swept(world)
    assert report.deleted.files == 1 and report.left.files == 1, "no earlier pass knew the younger one"


def test_a_clock_that_is_fast_makes_nothing_older(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    class Fast(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # type: ignore[override]
            return datetime.now(tz) + timedelta(days=2)

    monkeypatch.setattr(sweeping, "datetime", Fast)
    assert [swept(world, asked=True).deleted.files for _ in range(2)] == [0, 0], "a file's age is by the store's clock"


def test_what_is_dropped_goes_once_no_region_and_no_tag_shows_it(world: World) -> None:
    world.commit(b=world.write("b"))
    dropped = {name for name in files(world) if name.startswith("b/")}
    world.commit(b=None)
    swept(world, after(hours=2))
    assert swept(world).deleted.files == 1, "eu is behind: it needs what main showed since"
    assert dropped <= files(world)
    run(world)
    world.catalog.create_tag("kept", "main", world.catalog.reference("main").hash)
    report = swept(world, after(hours=27))
    assert (report.unreachable.files, report.deleted.files) == (len(dropped), 0), "found by this pass first"
    swept(world, after(days=3))
    assert not dropped & files(world)


def test_what_is_no_tables_file_or_not_opted_in_stays(world: World) -> None:
    names = ("raw/landing.csv", "a/_sterna/x.parquet", "models/model.bin")
    for name in names:
        orphan(world, name)
    other = world.folder / "eu" / "lake" / "x.parquet"
    other.write_bytes(b"not swept")
    swept(world, after(hours=2))
    report = swept(world)
    assert report.strange.files == 2
    assert set(names) <= files(world) and other.exists()
    with pytest.raises(UsageError):
        sweep(world.context("eu"), Maintenance.model_validate({"tables": [{"match": ["**"]}]}), delete=True)


def test_a_location_within_a_swept_one_is_left_alone(world: World) -> None:
    locations = world.registry.model_dump(mode="json")["locations"]
    inner = {**locations[0], "id": "inner", "prefix": f"file://{world.folder}/us/lake/inner", "sweep": False}
    changed_world = with_registry(world, locations=[*locations, inner])
    orphan(changed_world, "inner/x.parquet")
    swept(changed_world, after(hours=2))
    swept(changed_world)
    assert "inner/x.parquet" in files(changed_world)


def unread(world: World) -> None:
    next((world.folder / "us" / "lake" / "a").rglob("snap-*.avro")).unlink()


def never_synced(world: World) -> None:
    world.catalog.assign("main_replica_eu", world.catalog.no_ancestor())


def unknown_kind(world: World) -> None:
    put = Put(("ns", "delta"), Content.of({"type": "DELTA_LAKE_TABLE", "metadataLocationHistory": []}))
    world.catalog.commit("main", world.catalog.reference("main").hash, [put], "another kind")


@pytest.mark.parametrize("harm", [unread, never_synced, unknown_kind])
def test_what_is_not_known_keeps_everything(world: World, harm: Callable[[World], None]) -> None:
    swept(world, after(hours=2))
    harm(world)
    before = files(world)
    with pytest.raises(UpkeepBlocked):
        swept(world)
    assert files(world) == before


def test_a_store_that_refuses_keeps_everything(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(world, after(hours=2))

    def refusing(self: Objects, uris: Any, **options: Any) -> Any:
        return {uri: StoreDenied("says no", file=uri) for uri in uris}

    monkeypatch.setattr(Objects, "sweep", refusing)
    before = files(world)
    with pytest.raises(StoreDenied):
        swept(world)
    assert files(world) == before


def second_store(world: World) -> World:
    """The same with another store of us that is swept."""
    second = world.folder / "us" / "second"
    second.mkdir()
    place = {"id": "us-second", "prefix": f"file://{second}", "region": "us", "remote": {"type": "local"}}
    locations = [*world.registry.model_dump(mode="json")["locations"], {**place, "sweep": True}]
    return with_registry(world, locations=locations)


def test_a_store_that_refuses_leaves_a_report_and_no_records_that_are_needed_no_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    several = second_store(world)
    (several.folder / "us/second/t.parquet").write_bytes(b"nobody's")
    plain, folder = Objects.sweep, world.folder / "us/replica/_sterna/sweep"

    def refusing(self: Objects, uris: Sequence[str], **options: Any) -> dict[str, SternaError]:
        denied = {uri: StoreDenied("says no", file=uri) for uri in uris if "/second/" in uri}
        return plain(self, [uri for uri in uris if uri not in denied], **options) | denied

    monkeypatch.setattr(Objects, "sweep", refusing)
    swept(several, after(hours=2))
    for day in (1, 2, 3):
        with pytest.raises(StoreDenied):
            swept(several, after(days=day, hours=3))
    assert len(list(folder.glob("*.parquet"))) == 2, "the one that the last sweep went by, and its own"
    reports = [json.loads(path.read_text()) for path in folder.glob("*.json")]
    newest = max(reports, key=lambda report: report["at"])
    assert [failure["file"] for failure in newest["failures"]] == [f"file://{several.folder}/us/second/t.parquet"]
    assert newest["failed"] == newest["left"]["files"] == 1


def test_a_promotion_between_decision_and_deletion_ends_it(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    swept(world, after(hours=2))
    epochs = iter(["1-us", "1-us", "2-eu"])
    name = certain_term.require_certain_term.__name__
    for module in (gather, certain_term):
        monkeypatch.setattr(module, name, lambda context, without: next(epochs))
    before = files(world)
    with pytest.raises(Busy):
        swept(world)
    assert files(world) == before


def test_a_tag_that_is_set_before_the_deletion_is_seen(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.commit(b=world.write("b"))
    shown = world.catalog.reference("main").hash
    world.commit(b=None)
    run(world)
    swept(world, after(hours=2))
    real = MainScope.build_report

    def tagged(*arguments: Any, **options: Any) -> SweepReport:
        world.catalog.create_tag("late", "main", shown)
        return real(*arguments, **options)

    monkeypatch.setattr(MainScope, MainScope.build_report.__name__, tagged)
    assert swept(world).deleted.files == 1, "the orphan alone"
    assert any(name.startswith("b/data/") for name in files(world))


@pytest.mark.parametrize(("slow_polls", "ends"), [(4, False), (1_000, True)])
def test_a_sweep_reads_again_what_took_too_long_to_read(
    world: World, monkeypatch: pytest.MonkeyPatch, slow_polls: int, ends: bool
) -> None:
    swept(world, after(hours=2))
    polls, clock = [0], time.monotonic
    real: Callable[..., Any] = ReferencePoller.poll

    def slow(poller: ReferencePoller) -> Any:
        yield from real(poller)
        polls[0] += 1

    monkeypatch.setattr(ReferencePoller, real.__name__, slow)
    fast = SimpleNamespace(monotonic=lambda: clock() + 100 * min(polls[0], slow_polls))
    monkeypatch.setattr(sweeping, "time", fast)
    before = files(world)
    if ends:
        with pytest.raises(Busy, match="faster than it can be read"):
            swept(world)
        assert files(world) == before
    else:
        report = swept(world)
        assert (report.deleted.files, report.failed) == (1, 0)


def test_what_a_tag_shows_by_then_is_not_written_down_as_garbage(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    orphan(world).unlink()
    world.commit(b=world.write("b"))
    shown = world.catalog.reference("main").hash
    world.commit(b=None)
    run(world)
    swept(world, after(hours=2))
    real = MainScope.build_report

    def tagged(*arguments: Any, **options: Any) -> SweepReport:
        world.catalog.create_tag("late", "main", shown)
        return real(*arguments, **options)

    monkeypatch.setattr(MainScope, MainScope.build_report.__name__, tagged)
    report = swept(world)
    assert (report.deleted.files, report.left.files) == (0, 0)


@pytest.mark.parametrize("place", ["us/replica/us-lake/x.parquet", "eu/lake/x.parquet", "us/lake/_sterna/x.parquet"])
def test_the_stores_themselves_refuse_to_sweep_elsewhere(world: World, place: str) -> None:
    with pytest.raises(UnsafeUri):
        world.context("us").objects.sweep([f"file://{world.folder}/{place}"])


def test_a_swept_location_changes_no_replica(tmp_path: Path) -> None:
    plain = make_world(tmp_path)
    assert opted_in(plain).registry.digest() == plain.registry.digest()


def test_records_that_no_later_sweep_asks_for_are_forgotten(world: World) -> None:
    for day in range(4):
        swept(world, after(days=day, hours=2))
    folder = world.folder / "us" / "replica" / "_sterna" / "sweep"
    assert len(list(folder.glob("*.parquet"))) == 2, "the one that the last sweep went by, and its own"
    assert all(json.loads(path.read_text())["region"] == "us" for path in folder.glob("*.json"))


def test_a_store_that_cant_be_used_keeps_no_other_from_being_swept(world: World) -> None:
    several = second_store(world)
    second = f"file://{world.folder}/us/second"
    swept(several, after(hours=2))
    with refusing(second, StoreDenied):
        report = swept(several)
    assert (report.deleted.files, report.failed) == (1, 1)
    assert (report.failures[0].file, "says no" in report.failures[0].message) == (second, True)
    listings = refusing(f"file://{world.folder}/us/", StoreDenied, "*/us/*[ed]")  # of folders, and no metadata
    with listings, pytest.raises(StoreDenied):
        swept(several)


@pytest.mark.parametrize(("pattern", "stays"), [("ns.b", True), ("ns.other", False)])
def test_a_dropped_table_stays_in_place_for_as_long_as_its_policy_says(world: World, pattern: str, stays: bool) -> None:
    world = ruled(world, policies=[{"tables": [pattern], "keep_dropped": "30d"}])
    had = world.commit(b=world.write("b"))
    for region in ("us", "eu"):
        run(world, region)
    first_metadata = "b/metadata/00000-"  # of the empty table, which the writer's log doesn't name
    in_place = {path for path in files(world) if path.startswith("b/") and not path.startswith(first_metadata)}
    world.commit(b=None)
    for region in ("us", "eu"):
        run(world, region)
    for days in (20, 22):
        swept(world, after(days=days))
    assert in_place and (in_place <= files(world)) == stays
    if stays:
        request = RestoreRequest(had, ("ns.b",), source="home")
        assert restore(world.context("us"), request, quiet, apply=False).tables
    for days in (40, 42):
        swept(world, after(days=days))
    assert not in_place & files(world)


def found_by_sweeps(world: World) -> str:
    """A table that was dropped, and that the next sweep deletes; the commit of `main` that had it."""
    had = world.commit(b=world.write("b"))
    run(world)
    world.commit(b=None)
    run(world)
    swept(world, after(hours=27))
    return had


def restored_from_home(world: World, had: str) -> None:
    report = restore(world.context(), RestoreRequest(had, ("ns.b",), source="home"), quiet, apply=True)
    assert [it.files_from for it in report.tables] == ["home"]


def files_of(world: World, name: str) -> set[str]:
    return {file for file in files(world) if file.startswith(f"{name}/")}


@pytest.mark.parametrize("is_pinned", [True, False])
def test_a_sweep_between_a_restores_look_and_its_commit_keeps_what_comes_back(
    world: World, monkeypatch: pytest.MonkeyPatch, is_pinned: bool
) -> None:
    had, commit, sweeps = found_by_sweeps(world), world.catalog.commit, list[SweepReport]()
    before = files_of(world, "b")

    def race(branch: str, *arguments: Any, **options: Any) -> str:
        if branch == "main" and not sweeps:
            sweeps.append(swept(world, after(days=3)))
        return commit(branch, *arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", race)
    if not is_pinned:  # so that it is known what keeps them
        monkeypatch.setattr(restore_pins, "is_swept", lambda region: False)
        with pytest.raises(FilesGone, match="it was restored, and not all of its files"):
            restored_from_home(world, had)
        return
    restored_from_home(world, had)
    assert files_of(world, "b") == before and len(sweeps) == 1
    assert {it.kind for it in world.catalog.references()} == {"BRANCH"}, "the pin is gone"
    swept(world, after(days=5))
    assert files_of(world, "b") == before


@pytest.mark.parametrize("state", ["at work", "done", "unseen"])
def test_a_restore_waits_for_sweeps_that_may_not_have_seen_its_pin(
    world: World, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    had, waits = found_by_sweeps(world), list[float]()
    head = world.catalog.reference("main").hash
    victim = next((world.folder / "us" / "lake" / "b").rglob("*.parquet"))

    def sleep(seconds: float) -> None:
        waits.append(seconds)
        victim.unlink()  # by the poll of before, the sweep may

    replace_functions(monkeypatch, restore_pins, time, sleep=sleep)
    if state == "at work":
        write_begin_marker(world.context("us"), "sweep-at-work")
    if state == "done":
        restored_from_home(world, had)
        assert waits == []
        return
    records = f"file://{world.folder}/us/replica" if state == "unseen" else "file:///nowhere"
    with refusing(records, StoreDenied), pytest.raises(FilesGone, match="nothing was committed") as gone:
        restored_from_home(world, had)
    assert waits == [POLLED_SECONDS] and victim.name in gone.value.message
    assert world.catalog.reference("main").hash == head
