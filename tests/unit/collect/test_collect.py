"""Clean-ups of a real folder with the in-memory catalog: exactly the garbage goes, whatever syncs do meanwhile."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.collect import delete as deleting
from sterna.collect.fence import fence
from sterna.collect.model import Collected, Options
from sterna.collect.run import collect
from sterna.edges.catalog import Unchanged
from sterna.edges.objects import Objects
from sterna.errors import Busy, CatalogStateUnknown, ReplicaBroken, StoreUnreachable, UsageError
from sterna.sync import run as stages
from sterna.sync.head import read_head
from sterna.sync.model import Options as SyncOptions
from sterna.sync.model import Report, StageReport
from sterna.sync.plan import make_plan
from sterna.verify.structure import verify_structure
from tests.unit.sync.test_policies import ruled
from tests.unit.sync.test_sync import here, quiet, run
from tests.unit.sync.world import World

START = datetime.now(UTC)
LATER = START + timedelta(days=9)  # than `keep` and `grace`
MUCH_LATER = LATER + timedelta(days=2)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.sync.run._PATIENCE", 0.0)


def clean(world: World, now: datetime = LATER, **options: Any) -> Collected:
    return collect(world.context(), Options(**{"delete": True, "patience": 0.0, **options}), now=now)


def files(world: World, part: str = "") -> set[str]:
    """What lies below the replica root, but for evidence."""
    root = world.folder / "eu" / "replica"
    found = {str(path.relative_to(root)) for path in root.rglob("*") if path.is_file()}
    return {path for path in found if not path.startswith("_sterna/") and part in path}


def evidence(world: World, folder: str) -> set[str]:
    return {path.name for path in (world.folder / "eu/replica/_sterna" / folder).glob("*")}


def assert_closed(world: World) -> None:
    verified = verify_structure(world.context())
    assert verified.findings == ()
    assert verified.tables > 0


def reseeded(world: World) -> set[str]:
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
    document["locations"].append({**document["locations"][-1], "id": "eu-fresh", "prefix": f"file://{world.folder}/eu/fresh"})
    return type(world.registry).model_validate(document)


def rewritten(world: World, name: str = "a") -> None:
    """A table all of whose old files are garbage once nobody reads its older heads."""
    world.commit(**{name: world.write(name)})
    run(world)
    identifier = ("ns", name)
    world.writer.drop_table(identifier)
    world.commit(**{name: None})
    run(world)
    world.commit(**{name: world.write(name, 7)})
    run(world)


def test_exactly_the_garbage_goes_in_two_passes(world: World):
    world.commit(b=world.write("b"))
    rewritten(world)
    everything = files(world)
    first = clean(world)
    assert (first.garbage.files, first.deleted.files) == (0, 0), "no pass before"
    assert first.unreachable.files > 0
    assert files(world) == everything
    second = clean(world, MUCH_LATER)
    assert second.failures == ()
    assert second.deleted == second.garbage
    assert files(world) < everything
    assert_closed(world)
    data = {path for path in files(world) if path.endswith((".parquet", ".avro"))}
    assert data == {path for path in reseeded(world) if path.endswith((".parquet", ".avro"))}
    assert run(world).outcome == "idle"


def test_heads_of_the_last_days_keep_their_files(world: World):
    rewritten(world)
    before = files(world)
    for hours in (30, 60, 90):
        assert clean(world, START + timedelta(hours=hours)).unreachable.files == 0
    assert files(world) == before


def test_the_head_at_the_windows_start_is_kept(world: World):
    rewritten(world)
    # Every commit is older than the window: the newest of them was the head when it began.
    found = clean(world, LATER, delete=False)
    shown = {version.metadata_location for version in world.replica().values() if version.metadata_location}
    root = f"file://{world.folder}/eu/replica/"
    assert {uri.removeprefix(root) for uri in shown} <= files(world)
    assert 0 < found.unreachable.files < found.objects.files


def test_a_dry_run_deletes_nothing_and_commits_nothing(world: World):
    rewritten(world)
    clean(world)
    before, head = files(world), world.catalog.reference("main_replica_eu").hash
    found = clean(world, MUCH_LATER, delete=False)
    assert found.dry_run
    assert found.garbage.files > 0
    assert found.deleted.files == 0
    assert files(world) == before
    assert world.catalog.reference("main_replica_eu").hash == head
    assert clean(world, MUCH_LATER).deleted.files == found.garbage.files, "and it does not put off what it found"


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
    found = clean(world, MUCH_LATER)
    assert found.deleted.files > 0
    assert found.strange.files == 3
    assert all(path.read_text() == "mine" for path in own)
    assert {path: path.read_bytes() for path in (world.folder / "us").rglob("*") if path.is_file()} == lake


def test_old_runs_and_records_go_and_needed_ones_stay(world: World):
    rewritten(world)
    runs = evidence(world, "runs")
    assert len(runs) == 3
    clean(world)
    clean(world, MUCH_LATER)
    assert not [path for path in (world.folder / "eu/replica/_sterna/runs").rglob("*") if path.is_file()]
    assert len(evidence(world, "collect")) == 2


def in_flight(world: World) -> str:
    """A sync that is between plan and publication; its run's folder."""
    world.commit(b=world.write("b"))
    return stages.plan(world.context(), SyncOptions(), quiet).run


def finish(world: World, folder: str) -> Report:
    context = world.context()
    made = stages._plan_of(context, folder)
    copied = sum((stages.copy(context, folder, batch.number, quiet) for batch in made.batches), StageReport())
    return stages.publish(context, folder, copied, stages.localize(context, folder, copied, quiet, here), quiet)


def soon(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let files look old and heads be out of the window, so that a clean-up of right now has something to do."""
    listing = Objects.list

    def older(self: Objects, prefix: str):
        for uri, size, modified in listing(self, prefix):
            yield uri, size, modified if "/_sterna/runs/" in uri else modified - timedelta(days=3)

    monkeypatch.setattr(Objects, "list", older)


def now_clean(world: World, **options: Any) -> Collected:
    return clean(world, datetime.now(UTC), keep=timedelta(0), **options)


def test_nothing_is_deleted_while_a_sync_is_in_flight(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    soon(world, monkeypatch)
    now_clean(world, delete=False)
    run_id = in_flight(world).rpartition("/")[2]
    before = files(world)
    assert now_clean(world, delete=False).in_flight == (run_id,)
    with pytest.raises(Busy, match=run_id):
        now_clean(world)
    assert files(world) == before
    assert finish(world, f"file://{world.folder}/eu/replica/_sterna/runs/{run_id}").outcome == "published"
    assert now_clean(world).deleted.files > 0
    assert_closed(world)


def test_a_sync_that_was_planned_for_another_head_is_not_waited_for(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    soon(world, monkeypatch)
    now_clean(world, delete=False)
    in_flight(world)
    run(world)
    found = now_clean(world)
    assert found.in_flight == ()
    assert found.deleted.files > 0


def old_file_reused(world: World) -> tuple[Path, Callable[[], None]]:
    """A data file that is garbage here, and a commit that makes `main` name it again."""
    first = world.write("a")
    world.commit(a=first)
    run(world)
    (data,) = (world.folder / "eu/replica/us-lake").rglob("*.parquet")
    world.commit(a=None)
    run(world)
    return data, lambda: world.commit(a=first) and None


def test_a_sync_that_found_an_old_file_before_the_deletion_is_not_published(world: World, monkeypatch: pytest.MonkeyPatch):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    now_clean(world, delete=False)
    again()
    context = world.context()
    made, listed = make_plan(context, SyncOptions())
    assert made.present == 1, "the plan counts on the old file"
    # Its plan isn't written down yet, so that the clean-up can't know of it.
    assert now_clean(world).deleted.files > 0
    assert not data.exists()
    folder = stages.store.save_plan(context, made, listed)
    report = finish(world, folder)
    assert report.outcome == "superseded"
    assert report.more, "somebody has to plan again"
    assert run(world).outcome == "published"
    assert data.exists()
    assert_closed(world)


def test_a_sync_between_its_look_and_its_plan_goes_on_by_itself(world: World, monkeypatch: pytest.MonkeyPatch):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    now_clean(world, delete=False)
    again()
    save = stages.store.save_plan
    swept: list[Collected] = []

    def slow(*args: Any) -> str:
        if not swept:
            swept.append(now_clean(world))
        return save(*args)

    monkeypatch.setattr(stages.store, "save_plan", slow)
    report = run(world)
    assert swept[0].deleted.files > 0
    assert report.outcome == "published"
    assert data.exists()
    assert_closed(world)


def test_an_old_file_that_a_sync_took_up_again_before_the_deletion_stays(world: World, monkeypatch: pytest.MonkeyPatch):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    now_clean(world, delete=False)
    still = deleting.Deletion._still

    def published_meanwhile(self: deleting.Deletion, *args: Any) -> Any:
        if world.catalog.reference("main_replica_eu").hash == args[1].head:
            again()
            run(world)
        return still(self, *args)

    monkeypatch.setattr(deleting.Deletion, "_still", published_meanwhile)
    now_clean(world)
    assert data.exists()
    assert_closed(world)


def test_no_sync_is_planned_while_files_are_being_deleted(world: World, monkeypatch: pytest.MonkeyPatch):
    data, again = old_file_reused(world)
    soon(world, monkeypatch)
    now_clean(world, delete=False)
    again()
    delete, seen = Objects.delete, []

    def watched(self: Objects, uris: Any, **options: Any) -> Any:
        with pytest.raises(Busy, match="collect-"):
            run(world)
        seen.append(uris)
        return delete(self, uris, **options)

    monkeypatch.setattr(Objects, "delete", watched)
    now_clean(world)
    assert seen
    assert run(world).outcome == "published"
    assert data.exists()
    assert_closed(world)


def test_a_clean_up_that_was_killed_stops_counting_and_the_next_one_finishes(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    delete = Objects.delete

    def killed(self: Objects, uris: list[str], **options: Any) -> Any:
        delete(self, uris[: len(uris) // 2], **options)
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", killed)
        # The process is gone before it can take its fence down.
        patched.setattr("sterna.collect.fence._commit", _first_only(world))
        with pytest.raises((KeyboardInterrupt, CatalogStateUnknown)):
            clean(world, MUCH_LATER)
    assert read_head(world.catalog, "main_replica_eu").deleting
    world.commit(b=world.write("b"))
    with pytest.raises(Busy):
        run(world)
    with pytest.raises(Busy, match="another clean-up"):
        clean(world, MUCH_LATER)
    monkeypatch.setattr("sterna.sync.head.COLLECTING_SECONDS", 0.0)
    assert clean(world, MUCH_LATER).deleted.files > 0
    assert clean(world, MUCH_LATER).garbage.files == 0
    assert run(world).outcome == "published"
    assert_closed(world)


def _first_only(world: World) -> Callable[..., str]:
    from sterna.collect import fence as module

    commit, calls = module._commit, []

    def once(*args: Any) -> str:
        calls.append(args)
        if len(calls) > 1:
            raise CatalogStateUnknown("killed")
        return commit(*args)

    return once


def test_a_fence_keeps_all_that_the_head_says(world: World):
    rewritten(world)
    context = world.context()
    before = read_head(world.catalog, "main_replica_eu")
    with fence(context, before.hash, "collect-x") as standing:
        inside = read_head(world.catalog, "main_replica_eu")
        assert inside.hash == standing.hash
        assert inside.deleting
    after = read_head(world.catalog, "main_replica_eu")
    assert after.hash == standing.hash
    assert (after.collecting, after.watermark, after.digest, after.bindings) == ("", before.watermark, before.digest, before.bindings)
    assert run(world).outcome == "idle"


def test_a_fence_whose_answer_was_lost_stands(world: World):
    rewritten(world)
    before = read_head(world.catalog, "main_replica_eu")
    world.catalog.lose_next_answer()
    with fence(world.context(), before.hash, "collect-x"):
        assert read_head(world.catalog, "main_replica_eu").deleting
        world.catalog.lose_next_answer()
    assert not read_head(world.catalog, "main_replica_eu").collecting


@pytest.mark.parametrize("kind", ["metadata.json", "snap-", "m0.avro"])
@pytest.mark.parametrize("damage", [None, b"", b"no such file"])
def test_metadata_that_can_not_be_read_stops_everything(world: World, kind: str, damage: bytes | None):
    rewritten(world)
    clean(world)
    before = clean(world, LATER, delete=False)
    shown = {(item.metadata_location or "").rpartition("/")[2] for item in world.replica().values()}
    root = world.folder / "eu/replica/_localized"
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
        clean(world, MUCH_LATER)
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
    clean(world, MUCH_LATER)
    assert files(world) == before


def test_what_is_published_while_the_store_is_listed_is_not_taken_for_unreachable(world: World, monkeypatch: pytest.MonkeyPatch):
    world.commit(a=world.write("a"))
    run(world)
    listing = Objects.list

    def slow(self: Objects, prefix: str) -> Any:
        if prefix.endswith("/replica") and not files(world, "/b/"):
            world.commit(b=world.write("b"))
            run(world)
        return listing(self, prefix)

    monkeypatch.setattr(Objects, "list", slow)
    found = clean(world, START, delete=False)
    assert files(world, "/b/")
    assert found.unreachable.files == 0


def test_without_a_replica_branch_nothing_is_touched(world: World):
    world.commit(a=world.write("a"))
    folder = stages.plan(world.context(), SyncOptions(), quiet).run
    for _ in range(2):
        with pytest.raises(UsageError, match="no replica branch"):
            clean(world, MUCH_LATER)
    assert Path(folder.removeprefix("file://"), "plan.json").exists()


def test_a_branch_that_was_emptied_is_no_replica(world: World):
    rewritten(world)
    before = files(world)
    world.catalog.assign("main_replica_eu", world.catalog.no_ancestor())
    with pytest.raises(UsageError, match="nobody knows"):
        clean(world, MUCH_LATER)
    assert files(world) == before


def strict(world: World) -> World:
    return ruled(world, residency=[{"tables": ["ns.secret"], "never": ["eu"]}])


def test_eviction_is_at_once_and_of_refused_tables_alone(world: World):
    world.commit(a=world.write("a"), secret=world.write("secret"))
    run(world)
    ruling = strict(world)
    early = clean(ruling, START, evict=True)
    assert (early.still_shown, early.deleted.files) == (("ns.secret",), 0)
    run(ruling)
    kept = clean(ruling, START)
    assert (kept.deleted.files, kept.refused.files, kept.still_shown) == (0, len(files(world, "/secret/")), ())
    assert kept.refused.bytes > 0
    a = files(world, "/a/")
    found = clean(ruling, START, evict=True)
    assert found.deleted == found.refused == kept.refused
    assert files(world) == a
    assert_closed(ruling)
    again = clean(ruling, START)
    assert (again.refused.files, again.failed) == (0, 0), "what was evicted is not missed"


def test_eviction_finds_versions_that_no_kept_head_has(world: World):
    world.commit(a=world.write("a"), secret=world.write("secret"))
    run(world)
    ruling = strict(world)
    run(ruling)
    assert clean(ruling, LATER, delete=False).refused.files == 0, "without --evict these are garbage as any other"
    assert clean(ruling, LATER, evict=True).deleted.files > 0
    assert not files(world, "/secret/")


def test_a_file_that_an_allowed_table_shares_is_not_evicted(world: World):
    location = world.write("secret")
    world.commit(secret=location, a=location)
    run(world)
    ruling = strict(world)
    run(ruling)
    before = files(world)
    assert clean(ruling, START, evict=True).deleted.files == 0
    assert files(world) == before
    assert_closed(ruling)


def test_files_that_can_not_be_deleted_are_named_and_tried_again(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    delete = Objects.delete
    stuck: list[str] = []

    def locked(self: Objects, uris: list[str], **options: Any) -> Any:
        stuck[:] = uris[:1]
        return {**delete(self, uris[1:], **options), uris[0]: StoreUnreachable("locked", file=uris[0])}

    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", locked)
        found = clean(world, MUCH_LATER)
    assert (found.failed, [item.file for item in found.failures]) == (1, stuck)
    assert found.deleted.files == found.garbage.files - 1
    assert clean(world, MUCH_LATER + timedelta(days=2)).deleted.files > 0
    assert not Path(stuck[0].removeprefix("file://")).exists()


def test_a_store_that_deletes_nothing_is_an_error(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    with monkeypatch.context() as patched:
        patched.setattr(Objects, "delete", lambda self, uris, **_: {uri: StoreUnreachable("dark") for uri in uris})
        with pytest.raises(StoreUnreachable):
            clean(world, MUCH_LATER)
    assert not read_head(world.catalog, "main_replica_eu").deleting, "syncs go on"
    assert clean(world, MUCH_LATER).deleted.files > 0


def test_a_branch_that_moves_at_every_try_is_given_up(world: World, monkeypatch: pytest.MonkeyPatch):
    rewritten(world)
    clean(world)
    real = deleting.fence

    def moved(context: Any, at: str, pass_id: str) -> Any:
        head = next(iter(world.catalog.history("main_replica_eu", operations=False)))
        world.catalog.commit("main_replica_eu", at, [Unchanged(("x",))], "another", head.properties)
        return real(context, at, pass_id)

    before = files(world)
    monkeypatch.setattr(deleting, "fence", moved)
    with pytest.raises(Exception, match="no more at"):
        clean(world, MUCH_LATER)
    assert files(world) == before
