"""Restoring, over real files on disk: from home, from a replica's copies, over what lives, and beside it."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

from sterna.catalog.model import ICEBERG_TABLE, Delete, Reference, key_name
from sterna.errors import (
    Busy,
    CatalogConflict,
    CatalogDenied,
    CatalogUnreachable,
    CredentialError,
    FilesGone,
    NothingToRestore,
    SternaError,
    StoreDenied,
    StoreUnreachable,
    TableLives,
    UsageError,
)
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.run import run_gc
from sterna.maintenance.restore import commit as restore_commit
from sterna.maintenance.restore import files as restore_files
from sterna.maintenance.restore import pins as restore_pins
from sterna.maintenance.restore import run as restore_run
from sterna.maintenance.restore.model import RestoreReport, RestoreRequest
from sterna.maintenance.restore.pins import Pins
from sterna.maintenance.restore.run import restore
from sterna.replication.replica.head import MOVED_TABLES, RESTORED_FROM
from sterna.replication.verify.findings import MISSING, Findings
from sterna.replication.verify.run import Depth, verify
from sterna.text.restore import restored_text
from tests.support.gc import after, clean
from tests.support.patching import replace_functions
from tests.support.regions import injected
from tests.support.small_world import World, make_world, no_secrets, quiet, refusing, ruled, run


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def restored(world: World, *names: str, as_of: str, apply: bool = True, **options: Any) -> RestoreReport:
    request = RestoreRequest(as_of, tuple(f"ns.{name}" for name in names), **options)
    return restore(world.context(), request, quiet, apply=apply)


def main(world: World) -> dict[str, str | None]:
    """The tables on `main`, with their metadata.json."""
    head = world.catalog.reference("main").hash
    return {
        key_name(key): content.metadata_location
        for key, content in world.catalog.entries("main", head)
        if content.kind == ICEBERG_TABLE
    }


def purged(world: World, name: str = "t") -> str:
    """A table that was replicated, dropped, and purged at home; the commit of `main` that had it."""
    had = world.commit(**{name: world.write(name)})
    run(world)
    world.commit(**{name: None})
    shutil.rmtree(world.folder / "us" / "lake" / name)
    run(world)
    return had


def assert_equal(world: World, region: str) -> None:
    run(world, region)
    verified = verify(world.context(region), Depth(deep=True))
    assert verified.findings == () and verified.tables > 0


def branches(world: World) -> set[str]:
    return {it.name for it in world.catalog.references()} - {"main", "main_replica_eu", "main_replica_us"}


def test_a_dropped_table_comes_back_from_home(world: World) -> None:
    uri = world.write("t", 5)
    had = world.commit(t=uri)
    run(world)
    world.commit(t=None)
    run(world)
    head = world.catalog.reference("main").hash
    shown = restored(world, "t", as_of=had, apply=False)
    assert world.catalog.reference("main").hash == head, "a dry run"
    assert (
        shown.commit == "" and shown.tables[0].dropped and (shown.tables[0].rows, shown.tables[0].data_files) == (5, 1)
    )
    report = restored(world, "t", as_of=had)
    assert [(it.key, it.files_from, it.replaces) for it in report.tables] == [("ns.t", "home", "")]
    assert main(world) == {"ns.t": uri} and report.commit == world.catalog.reference("main").hash
    commit = next(iter(world.catalog.history("main", operations=False)))
    assert commit.properties[RESTORED_FROM] == had and MOVED_TABLES not in commit.properties
    assert_equal(world, "eu")
    assert branches(world) == set()
    assert restored(world, "t", as_of=had).tables == (), "it is there"


def test_a_purged_table_comes_back_from_a_replicas_copies(world: World) -> None:
    had = purged(world)
    report = restored(world, "t", as_of=had)
    assert [(it.key, it.files_from) for it in report.tables] == [("ns.t", "eu")]
    assert "    not from home: missing file://" in restored_text(report), "with the file"
    assert str(main(world)["ns.t"]).startswith(f"file://{world.folder}/eu/replica/")
    assert next(iter(world.catalog.history("main", operations=False))).properties[MOVED_TABLES] == "1"
    assert branches(world) == set(), "the pin is gone"
    assert_equal(world, "eu")
    # Its home gets back what was purged there, and clean-ups keep what main names now.
    assert_equal(world, "us")
    assert list((world.folder / "us" / "lake" / "t").rglob("*.parquet"))
    clean(world, after(days=9))
    clean(world, after(days=11))
    assert_equal(world, "eu")


class RestoringCatalog:
    """A catalog in which a table comes back before one of a clean-up's steps, or while that lists all references: then
    `main` is in the list as before, and the tags as afterwards.
    """

    def __init__(self, world: World, restore: Callable[[], object], at: int) -> None:
        self._world, self._restore, self._at, self._listings = world, restore, at, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world.catalog, name)

    def references(self) -> list[Reference]:
        self._listings += 1
        before = self._world.catalog.references()
        if self._listings == self._at:
            self._restore()
            before = [reference for reference in before if reference.name == "main"]
            before += [reference for reference in self._world.catalog.references() if reference.name != "main"]
        return before


@pytest.mark.parametrize("listing", range(1, 7))
def test_what_comes_back_while_a_clean_up_is_at_work_stays(world: World, listing: int) -> None:
    had = purged(world)
    world.commit(x=world.write("x"))
    run(world)
    clean(world, after(days=9))
    outcomes: list[str] = []

    def come_back() -> None:
        try:
            restored(world, "t", as_of=had)
            outcomes.append("restored")
        except (Busy, FilesGone) as error:
            outcomes.append(type(error).__name__)

    catalog = RestoringCatalog(world, come_back, listing)
    context = injected(world.registry, "eu", no_secrets, catalog=catalog, primary=catalog)
    report = run_gc(context, GcOptions(delete=True, max_wait_seconds=0.0), now=after(days=11))
    if not outcomes:
        assert report.deleted.files > 0, "the clean-up had so many listings"
    elif outcomes == ["restored"]:
        table = StaticTable.from_metadata(str(main(world)["ns.t"]))
        assert table.scan().to_arrow().num_rows == 3


def test_a_pin_that_stays_behind_is_no_failure(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    had = purged(world)

    def fail(name: str, at_hash: str) -> None:
        raise CatalogUnreachable("no answer")

    monkeypatch.setattr(world.catalog, "delete_tag", fail)
    assert restored(world, "t", as_of=had).commit == world.catalog.reference("main").hash
    (pin,) = branches(world)
    monkeypatch.undo()
    clean(world, after(days=2))
    assert pin.startswith("sterna-hold-eu-") and branches(world) == set(), "it has expired"


def test_copies_that_main_named_are_kept_from_clean_ups_as_a_replicas_are(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    had = restored(world, "t", as_of=purged(world)).commit
    run(world)
    world.commit(t=None)
    run(world)
    pins, checked = set[str](), list[str]()
    home_fault = restore_run.home_fault

    def watched(*arguments: Any) -> Any:
        pins.update(branches(world))
        return home_fault(*arguments)

    monkeypatch.setattr(restore_run, "home_fault", watched)
    monkeypatch.setattr(restore_pins, "require_no_gc_since", lambda context, head: checked.append(context.region.name))
    assert [table.files_from for table in restored(world, "t", as_of=had).tables] == ["home"]
    (pin,) = pins
    assert pin.startswith("sterna-hold-eu-") and pin.endswith(had[:12]) and branches(world) == set()
    assert checked == ["eu"]


def test_two_restores_of_one_time_have_a_pin_each(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    purged(world)
    context, moment, delays = world.context("eu"), after(), [7, 8]
    commit = world.catalog.reference("main_replica_eu").hash
    replace_functions(monkeypatch, restore_pins, random, randrange=lambda seconds: delays.pop())
    with Pins(moment, quiet) as last:
        last.hold(context, [commit])
        with Pins(moment, quiet) as first:
            first.hold(context, [commit])
            assert len(branches(world)) == 2
        assert len(branches(world)) == 1
    assert branches(world) == set()


def test_a_region_without_copies_takes_another_regions(world: World) -> None:
    had = purged(world)
    request = RestoreRequest(had, ("ns.t",))
    report = restore(world.context("us"), request, quiet, apply=True)
    assert [it.files_from for it in report.tables] == ["eu"]
    assert_equal(world, "us")


@pytest.mark.parametrize("damage", ["gone", "size"])
def test_a_file_that_is_nowhere_is_named_and_nothing_is_committed(world: World, damage: str) -> None:
    other = world.commit(kept=world.write("kept"))
    had = purged(world)
    assert other != had
    copy = next((world.folder / "eu" / "replica").rglob("*/t/*/*.parquet"))
    if damage == "gone":
        copy.unlink()
    else:
        copy.write_bytes(copy.read_bytes() + b"!")
    head = world.catalog.reference("main").hash
    for apply in (False, True):
        with pytest.raises(FilesGone) as gone:
            restored(world, "t", as_of=had, apply=apply)
        assert copy.name in gone.value.message and "home: " in gone.value.message and "us: " in gone.value.message
    assert world.catalog.reference("main").hash == head and branches(world) == set()


@pytest.mark.parametrize("error", [StoreUnreachable, StoreDenied, CredentialError])
def test_main_leaves_a_home_that_can_not_be_seen_on_request_alone(world: World, error: type[SternaError]) -> None:
    had = world.commit(t=world.write("t"))
    run(world)
    world.commit(t=None)
    head = world.catalog.reference("main").hash
    with refusing(f"file://{world.folder}/us/lake", error):
        with pytest.raises(error, match="whether its files are at home can't be seen") as unseen:
            restored(world, "t", as_of=had)
        assert "--from REGION" in unseen.value.hint and unseen.value.table == "ns.t"
        assert world.catalog.reference("main").hash == head and branches(world) == set()
        report = restored(world, "t", as_of=had, source="eu")
    assert [(it.files_from, it.not_at_home) for it in report.tables] == [("eu", "")]


def test_what_a_files_name_has_in_it_stays_out_of_the_message(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    had = world.commit(t=world.write("t"))
    world.commit(t=None)

    def check(context: Any, places: Any, content: Any, findings: Findings, **options: Any) -> None:
        findings.add(MISSING, "s3://key:secret@lake/a\nb?signature=1", "named by s3://key:secret@lake/m?signature=1")

    monkeypatch.setattr(restore_files, "check_source", check)
    with pytest.raises(FilesGone) as gone:
        restored(world, "t", as_of=had, source="home")
    assert "missing s3://lake/a\\x0ab: named by s3://lake/m" in gone.value.message
    assert "secret" not in str(gone.value) and "signature" not in str(gone.value)


def test_a_chosen_source_is_the_only_one(world: World) -> None:
    had = world.commit(t=world.write("t"))
    run(world)
    world.commit(t=None)
    assert restored(world, "t", as_of=had, source="eu", apply=False).tables[0].files_from == "eu"
    with pytest.raises(FilesGone, match="main_replica_us never had"):
        restored(world, "t", as_of=had, source="us", apply=False)
    with pytest.raises(UsageError, match="home, us, eu"):
        restored(world, "t", as_of=had, source="mars", apply=False)


def test_what_lives_is_replaced_on_request_alone_and_kept_on_a_branch(world: World) -> None:
    old = world.write("t")
    had = world.commit(t=old)
    new = world.write("t")
    world.commit(t=new)
    head = world.commit(u=world.write("u"))
    with pytest.raises(TableLives):
        restored(world, "t", as_of=had)
    report = restored(world, "t", as_of=had, over=True)
    assert (report.tables[0].replaces, report.tables[0].commits_since) == (new, 1)
    assert main(world)["ns.t"] == old
    assert branches(world) == {report.kept_on} and world.catalog.reference(report.kept_on).hash == head
    assert_equal(world, "eu")


def test_files_that_are_gone_below_an_unchanged_entry_come_from_copies(world: World) -> None:
    uri = world.write("t")
    had = world.commit(t=uri)
    run(world)
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    assert restored(world, "t", as_of=had, over=True).left == {"ns.t": "it is as it was then"}
    report = restored(world, "t", as_of=had, over=True, source="eu")
    assert [(it.files_from, it.replaces) for it in report.tables] == [("eu", uri)]
    assert branches(world) == {report.kept_on}
    for region in ("eu", "us"):
        assert_equal(world, region)


def test_another_table_of_that_name_is_replaced_as_one(world: World) -> None:
    had = world.commit(t=world.write("t"))
    world.commit(t=None)
    world.writer.drop_table(("ns", "t"))
    world.commit(t=world.write("t", 9))
    run(world)
    restored(world, "t", as_of=had, over=True)
    assert_equal(world, "eu")


def test_a_table_is_put_beside_what_lives(world: World) -> None:
    old = world.write("t")
    had = world.commit(t=old)
    new = world.write("t")
    world.commit(t=new)
    report = restored(world, "t", as_of=had, new_name="ns.t_old")
    assert [(it.key, it.was) for it in report.tables] == [("ns.t_old", "ns.t")]
    assert main(world) == {"ns.t": new, "ns.t_old": old} and report.kept_on == ""
    assert_equal(world, "eu")


def test_everything_comes_back_with_its_namespaces(world: World) -> None:
    uris = {name: world.write(name) for name in ("t", "u")}
    had = world.commit(**uris)
    world.commit(t=None, u=None)
    head = world.catalog.reference("main").hash
    world.catalog.commit("main", head, [Delete(("ns",))], "write")
    request = RestoreRequest(had, everything=True)
    report = restore(world.context(), request, quiet, apply=True)
    assert report.namespaces == ("ns",) and main(world) == {f"ns.{name}": uri for name, uri in uris.items()}
    assert_equal(world, "eu")


def test_a_residency_rule_holds_for_the_new_name_and_the_copies(world: World) -> None:
    world = ruled(world, residency=[{"tables": ["ns.secret"], "never": ["eu"]}])
    had = world.commit(secret=world.write("secret"))
    run(world)
    world.commit(secret=None)
    with pytest.raises(NothingToRestore, match="could reach eu"):
        restored(world, "secret", as_of=had, new_name="ns.open")
    with pytest.raises(FilesGone, match="may not be there"):
        restored(world, "secret", as_of=had, source="eu")
    assert restored(world, "secret", as_of=had).tables[0].files_from == "home"


def test_a_table_that_was_held_then_is_refused_with_its_reason(world: World) -> None:
    world.commit(t=world.write("t"))
    run(world)
    uri = Path(world.write("t").removeprefix("file://"))
    content = uri.read_bytes()
    uri.unlink()
    had = world.commit(t=f"file://{uri}")
    run(world)
    uri.write_bytes(content)
    world.commit(t=None)
    with pytest.raises(FilesGone, match="it was held there: "):
        restored(world, "t", as_of=had, source="eu")


def test_a_change_of_main_in_between_is_no_surprise(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    had = world.commit(t=world.write("t"), u=world.write("u"))
    world.commit(t=None, u=None)
    commit = world.catalog.commit
    changes = [lambda: world.commit(v=world.write("v")), lambda: world.commit(t=world.write("t"))]

    def race(branch: str, *arguments: Any, **options: Any) -> str:
        if branch == "main" and changes and len(arguments) > 1 and arguments[2] != "write":
            changes.pop(0)()
        return commit(branch, *arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", race)
    with pytest.raises(TableLives):
        restored(world, "t", as_of=had)
    assert not changes and "ns.u" not in main(world)


def test_a_busy_main_keeps_no_restore_from_its_commit_and_is_not_read_again_as_a_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    uri = world.write("t")
    had = world.commit(t=uri)
    world.commit(t=None)
    commit, entries, heads, reads = world.catalog.commit, world.catalog.entries, list[str](), list[str]()

    def race(branch: str, *arguments: Any, **options: Any) -> str:
        if branch == "main" and len(heads) < 30 and arguments[2] != "write":
            heads.append(world.commit(**{f"v{len(heads)}": "file:///v"}))
        return commit(branch, *arguments, **options)

    def counted(ref: str, hash: str) -> Any:
        reads.append(hash)
        return entries(ref, hash)

    monkeypatch.setattr(world.catalog, "commit", race)
    monkeypatch.setattr(world.catalog, "entries", counted)
    replace_functions(monkeypatch, restore_commit, time, sleep=lambda seconds: None)
    report = restored(world, "t", as_of=had)
    assert len(heads) == 30 and len(reads) == 2, "the past, and the present once"
    assert main(world)["ns.t"] == uri and report.commit == world.catalog.reference("main").hash


def test_a_main_that_never_rests_ends_a_restore_by_name(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    had = world.commit(t=world.write("t"))
    world.commit(t=None)
    commit, seconds = world.catalog.commit, itertools.count(step=50)

    def race(branch: str, *arguments: Any, **options: Any) -> str:
        if branch == "main" and arguments[2] != "write":
            world.commit(**{f"v{next(seconds)}": "file:///v"})
        return commit(branch, *arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", race)
    replace_functions(monkeypatch, restore_commit, time, sleep=lambda _: None, monotonic=lambda: float(next(seconds)))
    with pytest.raises(CatalogConflict, match="main was committed to again and again") as starved:
        restored(world, "t", as_of=had)
    assert "nothing was restored" in starved.value.message and "ns.t" not in main(world)


def test_a_namespace_that_is_dropped_meanwhile_ends_a_restore(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    had = world.commit(t=world.write("t"))
    world.commit(t=None)
    commit, drops = world.catalog.commit, [Delete(("ns",))]

    def race(branch: str, head: str, operations: Any, *arguments: Any, **options: Any) -> str:
        if branch == "main" and drops:
            commit("main", head, [drops.pop()], "write")
        return commit(branch, head, operations, *arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", race)
    with pytest.raises(CatalogConflict, match="read it again; nothing was committed"):
        restored(world, "t", as_of=had)
    assert main(world) == {}


def test_a_branch_keeps_what_is_replaced_however_often_main_moves(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    had = world.commit(t=world.write("t"))
    first_head = world.commit(t=world.write("t"))
    commit, heads = world.catalog.commit, list[str]()

    def race(branch: str, *arguments: Any, **options: Any) -> str:
        if branch == "main" and len(heads) < 3 and arguments[2] != "write":
            heads.append(world.commit(v=world.write("v")))
        return commit(branch, *arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", race)
    report = restored(world, "t", as_of=had, over=True)
    assert len(heads) == 3 and branches(world) == {report.kept_on}
    assert world.catalog.reference(report.kept_on).hash == first_head


def test_where_no_branch_can_be_made_nothing_is_replaced(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    had = world.commit(t=world.write("t"))
    head = world.commit(t=world.write("t"))

    def refuse(name: str, at_hash: str | None = None) -> None:
        raise CatalogDenied("no right to make branches")

    monkeypatch.setattr(world.catalog, "create_branch", refuse)
    with pytest.raises(CatalogDenied, match=r"nothing was committed: no right to make branches"):
        restored(world, "t", as_of=had, over=True)
    assert world.catalog.reference("main").hash == head and branches(world) == set()


@pytest.mark.parametrize(("source", "place"), [("eu", "eu/replica"), ("home", "us/lake")])
def test_a_file_that_goes_with_the_commit_is_named(
    world: World, monkeypatch: pytest.MonkeyPatch, source: str, place: str
) -> None:
    had = world.commit(t=world.write("t"))
    run(world)
    world.commit(t=None)
    commit, pinned = world.catalog.commit, list[set[str]]()
    file = next(path for path in (world.folder / place).rglob("*.parquet") if "/t/" in str(path))

    def race(*arguments: Any, **options: Any) -> str:
        pinned.append(branches(world))
        file.unlink()
        return commit(*arguments, **options)

    monkeypatch.setattr(world.catalog, "commit", race)
    with pytest.raises(FilesGone, match="it was restored, and not all of its files") as gone:
        restored(world, "t", as_of=had, source=source)
    assert file.name in gone.value.message and "ns.t" in main(world)
    assert [len(names) for names in pinned] == [source == "eu"] and branches(world) == set()
