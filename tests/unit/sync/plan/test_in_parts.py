"""Tables of very many new files are listed in parts: the same files are brought as when one process lists them."""

from __future__ import annotations

import errno
import signal
import tempfile
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from sterna.errors import CredentialError, EngineError, StoreUnreachable, UsageError
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.plan import planner, sharded_listing
from sterna.replication.plan.options import SyncOptions
from sterna.replication.plan.parts import LIST_STEP, STEPS, PartStore
from sterna.replication.plan.planner import make_plan
from sterna.replication.plan.sharded_listing import ShardingLimits
from sterna.replication.replica import run_folder
from sterna.replication.replica.bulk_state import read_bulk_state
from sterna.replication.replica.model import Plan, Report, StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.replication.sync.explain import explain
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from tests.support.gc import after, clean
from tests.support.small_world import World, here, quiet, refusing, with_registry, with_third_region, written_elsewhere

FILES = 9
OPTIONS = SyncOptions(files_per_batch=2)
FEW = ShardingLimits(min_manifests=FILES - 2, max_group_manifests=2, cut_rows=1)
Work = Callable[[str], str]


@pytest.fixture
def many(world: World, monkeypatch: pytest.MonkeyPatch) -> World:
    """A table that counts as large, and a small one."""
    monkeypatch.setattr(sharded_listing, "LIMITS", FEW)
    for _ in range(FILES):
        location = world.write("a")
    world.commit(a=location, b=world.write("b"))
    return world


def plan(world: World, engine: Engine = here) -> stages.PlannedRun:
    return stages.plan(world.context(), OPTIONS, quiet, engine=engine)


def brought(world: World, engine: Engine = here) -> Report:
    return sync(world.context(), OPTIONS, quiet, engine=engine)


def listed(world: World, planned: stages.PlannedRun) -> set[tuple[str, str, str, int]]:
    """What the lists of all batches say: table, source, target and size."""
    listed_files = []
    for batch in planned.batches:
        rows = run_folder.load_files(
            world.context(), planned.run, batch=batch.number, list_name=batch.list_name
        ).to_pylist()
        assert (len(rows), sum(row["size"] for row in rows)) == (batch.files, batch.bytes)
        listed_files += [(row["table"], row["source"], row["target"], row["size"]) for row in rows]
    assert len(listed_files) == len(set(listed_files))
    return set(listed_files)


def expected(world: World) -> set[tuple[str, str, str, int]]:
    """The same, as one process lists it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded_listing, "LIMITS", replace(FEW, min_manifests=1_000))
        _, files = make_plan(world.context(), OPTIONS)
    if files is None:
        return set()
    rows = files.filter(pc.greater_equal(files.column("batch"), 0)).to_pylist()
    return {(row["table"], row["source"], row["target"], row["size"]) for row in rows}


def parts(world: World) -> list[Path]:
    return sorted((world.folder / "eu/replica/_sterna/runs").rglob("parts/*.parquet"))


def closed(world: World) -> bool:
    return verify_structure(world.context()).findings == ()


def test_the_lists_are_those_that_one_process_makes(many: World) -> None:
    wanted = expected(many)
    planned = plan(many)
    assert {row[0] for row in wanted} == {"ns.a", "ns.b"}
    assert listed(many, planned) == wanted
    assert [batch.number for batch in planned.batches] == list(range(len(planned.batches)))
    assert len([batch for batch in planned.batches if batch.table == "ns.a"]) == -(-FILES // 2)
    counts = {action.key: (action.files, action.localize) for action in planned.explained.actions if action.files}
    assert counts == {"ns.a": (FILES, 2 * FILES + 1), "ns.b": (1, 3)}


def facts(planned: Plan) -> dict[str, Any]:
    """What a plan decides, but for how its batches are cut."""
    batches = [(batch.origin, batch.files, batch.bytes) for batch in planned.batches]
    totals = {name: [sum(column) for column in zip(*group, strict=True)] for name, group in by_origin(batches).items()}
    return {"totals": totals, **{name: getattr(planned, name) for name in ("actions", "held", "present_files", "idle")}}


def by_origin(batches: list[tuple[str, int, int]]) -> dict[str, list[tuple[int, int]]]:
    groups: dict[str, list[tuple[int, int]]] = {}
    for origin, files, size in batches:
        groups.setdefault(origin, []).append((files, size))
    return groups


@pytest.mark.parametrize("seed", range(3))
def test_plans_in_parts_and_in_memory_are_alike_on_random_histories(
    world: World, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    chance, in_parts = Random(seed), replace(FEW, min_manifests=1, max_range_rows=2)
    for _ in range(7):
        step = chance.choice(["write", "write", "write", "bring", "lose", "cut", "spoil"])
        copies = sorted((world.folder / "eu/replica/us-lake").rglob("*.parquet"))
        if step == "bring":
            brought(world)
        elif step in ("lose", "cut") and copies:
            path = chance.choice(copies)
            (lost if step == "lose" else cut)(path)
        elif step == "spoil" and (sources := sorted((world.folder / "us/lake").rglob("*.avro"))):
            cut(chance.choice(sources))
        else:
            name = chance.choice("ab")
            world.commit(**{name: world.write(name, chance.randint(1, 4))})
        in_memory, _ = make_plan(world.context(), OPTIONS)
        wanted = expected(world)
        with monkeypatch.context() as patch:
            patch.setattr(sharded_listing, "LIMITS", in_parts)
            assert facts(make_plan(world.context(), OPTIONS)[0]) == facts(in_memory)
            planned = plan(world)
            assert listed(world, planned) == wanted


def test_requests_are_dealt_out_in_portions(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    dealt: list[tuple[str, int]] = []

    def engine(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
        dealt.append((label, len(items)))
        return here(function, items, label)

    monkeypatch.setattr(sharded_listing, "LIMITS", replace(FEW, max_request_characters=1))
    wanted = expected(many)
    assert listed(many, plan(many, engine)) == wanted
    assert dealt == [("list files", 1)] * 5 + [("look up files", 1)] * 5


def test_a_table_in_parts_is_published(many: World) -> None:
    report = brought(many)
    assert (set(report.published), report.held, report.copied.files) == ({"ns", "ns.a", "ns.b"}, (), FILES + 1)
    assert closed(many)
    assert brought(many).outcome == "idle"
    assert parts(many) == [], "the run is over"


def test_files_of_several_places_have_batches_of_their_own(many: World) -> None:
    world = with_third_region(many)
    world.commit(a=written_elsewhere(world, "a"))
    wanted, planned = expected(world), plan(world)
    assert listed(world, planned) == wanted
    assert {batch.origin for batch in planned.batches} == {"us-lake", "ap-lake"}
    assert brought(world).held == ()
    assert closed(world)


def test_what_is_here_is_not_brought_again_and_what_is_cut_is(many: World) -> None:
    first = plan(many)
    for batch in range(3):
        stages.copy(many.context(), first.run, batch, quiet)
    (there, *_) = sorted((many.folder / "eu/replica/us-lake/a").rglob("*.parquet"))
    there.write_bytes(there.read_bytes()[:-1])
    wanted, planned = expected(many), plan(many)
    assert listed(many, planned) == wanted
    assert len(wanted) < FILES + 1
    assert there.as_uri() in {target for _, _, target, _ in wanted}
    assert brought(many).held == ()
    assert closed(many)


def test_a_file_that_several_manifests_list_is_brought_once(many: World) -> None:
    table = many.writer.load_table(("ns", "a"))
    with table.transaction() as change:
        change.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    many.commit(a=many.write("a"))
    wanted, planned = expected(many), plan(many)
    assert len({source for _, source, _, _ in wanted}) == FILES + 2
    assert listed(many, planned) == wanted


def twice(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
    """Each item is done by two at once, and the later answer counts."""
    with ThreadPoolExecutor(4) as pool:
        return list(pool.map(function, [*items, *items]))[len(items) :]


def test_items_that_are_done_twice_at_once_give_the_same(many: World) -> None:
    wanted, planned = expected(many), plan(many, twice)
    assert listed(many, planned) == wanted
    assert len(parts(many)) == -(-(FILES) // 2)
    assert brought(many, twice).held == ()
    assert closed(many)


def dying_at(label: str, error: BaseException) -> Engine:
    """Workers that die when half of the items are done."""

    def engine(function: Work, items: Sequence[str], named: str) -> Iterable[str]:
        done = [function(item) for item in items[: len(items) // 2 if named.startswith(label) else None]]
        if len(done) < len(items):
            raise error
        return done

    return engine


DIED = EngineError("a worker died", hint="a later run resumes")


@pytest.mark.parametrize("label", ["list", "look up"])
def test_workers_that_die_hold_the_table_alone_and_the_next_sync_goes_on(many: World, label: str) -> None:
    report = brought(many, dying_at(label, DIED))
    assert [(item.key, item.kind) for item in report.held] == [("ns.a", "EngineError")]
    assert report.held[0].reason == "its files can't be listed in parts: a worker died"
    assert set(report.published) == {"ns", "ns.b"}
    assert closed(many)
    assert brought(many).published == ("ns.a",)
    assert closed(many)


def test_a_credential_that_workers_would_need_for_other_tables_holds_the_table_alone(many: World) -> None:
    report = brought(many, dying_at("list", CredentialError("there is no connection `elsewhere`")))
    assert [(item.key, item.kind) for item in report.held] == [("ns.a", "EngineError")]
    assert set(report.published) == {"ns", "ns.b"}


def test_an_engine_that_fails_is_an_error_where_nothing_else_goes_on(many: World) -> None:
    brought(many, dying_at("list", DIED))
    with pytest.raises(EngineError, match="a worker died"):
        plan(many, dying_at("list", DIED))


def test_an_engine_that_fails_for_two_tables_is_not_asked_for_a_third(many: World) -> None:
    labels: list[str] = []

    def failing(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
        labels.append(label)
        raise EngineError("nobody answers")

    for name in ("c", "d", "e"):
        for _ in range(FILES):
            location = many.write(name)
        many.commit(**{name: location})
    planned = plan(many, failing)
    assert len(labels) == 2
    assert {action.key for action in planned.explained.actions if action.files} == {"ns.b"}


@pytest.mark.parametrize("label", ["list", "look up"])
def test_a_plan_that_is_killed_leaves_what_the_next_one_and_the_clean_up_take(many: World, label: str) -> None:
    with pytest.raises(KeyboardInterrupt):
        plan(many, dying_at(label, KeyboardInterrupt()))
    assert parts(many)
    assert brought(many).copied.files == FILES + 1
    assert closed(many)
    clean(many, after(days=1))
    clean(many, after(days=3))
    assert parts(many) == []
    assert closed(many)


def lost(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-9])


def changed(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 0xFF
    path.write_bytes(bytes(data))


def misleading(path: Path) -> None:
    """Let its footer say that none of its rows are among those that are looked for; its pages stay as they were."""
    path.write_bytes(path.read_bytes().replace(b"file:", b"aile:"))


@pytest.mark.parametrize("harm", [lost, cut, changed, misleading])
def test_a_part_that_is_harmed_holds_its_table_and_no_file_is_left_out(
    many: World, harm: Callable[[Path], None]
) -> None:
    def harming(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
        for part in parts(many) if label.startswith("look up") else ():
            harm(part)
        return [function(item) for item in items]

    report = brought(many, harming)
    (held,) = report.held
    assert (held.key, held.kind, "/parts/" in held.file) == ("ns.a", "EngineError", True)
    assert "gone or damaged" in held.reason
    assert set(report.published) == {"ns", "ns.b"}
    assert brought(many).copied.files == FILES
    assert closed(many)


@pytest.mark.parametrize("harm", [lost, cut, changed])
def test_a_list_that_is_harmed_ends_the_copy(many: World, harm: Callable[[Path], None]) -> None:
    planned = plan(many)
    batch = next(batch for batch in planned.batches if batch.list_name)
    harm(Path(f"{planned.run}/{batch.list_name}".removeprefix("file://")))
    with pytest.raises(UsageError, match="start a new sync"):
        stages.copy(many.context(), planned.run, batch.number, quiet)
    assert brought(many).copied.files == FILES + 1
    assert closed(many)


def test_a_batch_that_was_left_out_is_not_published(many: World) -> None:
    planned, context = plan(many), many.context()
    copies = (stages.copy(context, planned.run, batch.number, quiet) for batch in planned.batches[:-1])
    copied = sum(copies, StageReport())
    localized = stages.localize(context, planned.run, copied, quiet, here)
    with pytest.raises(UsageError, match="left out"):
        stages.publish(context, planned.run, copied, localized, quiet)


def test_a_manifest_that_is_gone_holds_its_table_alone(many: World) -> None:
    next((many.folder / "us/lake/a/metadata").glob("*-m0.avro")).unlink()
    report = brought(many)
    assert [(item.key, item.kind) for item in report.held if not item.waits_for] == [("ns.a", "SourceGone")]


def grown(world: World) -> None:
    """Let the replica's readers have the table, then add as many files again."""
    brought(world)
    for _ in range(FILES):
        location = world.write("a")
    world.commit(a=location)


def test_new_files_of_a_table_that_somebody_reads_are_listed_in_parts(many: World) -> None:
    grown(many)
    wanted, planned = expected(many), plan(many)
    assert listed(many, planned) == wanted
    assert {row[0] for row in wanted} == {"ns.a"}
    assert len(wanted) == FILES, "what the replica has proves the other files"
    assert parts(many)
    report = brought(many)
    assert (report.published, report.copied.files) == (("ns.a",), FILES)
    assert closed(many)


def named_again(world: World) -> str:
    """Let new manifests name all files of the table once more, so that the replica's own prove none of them."""
    table = world.writer.load_table(("ns", "a"))
    for path in sorted((world.folder / "us/lake/a/data").rglob("*.parquet")):
        table.add_files([path.as_uri()], check_duplicate_files=False)
    return str(table.metadata_location)


@pytest.mark.parametrize("harmed", [1, 3])
def test_a_file_of_a_wrong_size_that_readers_have_is_damage_though_many_others_are_wrong(
    many: World, monkeypatch: pytest.MonkeyPatch, harmed: int
) -> None:
    brought(many)
    copies = sorted((many.folder / "eu/replica/us-lake/a").rglob("*.parquet"))
    many.commit(a=named_again(many))
    for path in copies[-harmed:]:
        path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(sharded_listing, "LIMITS", replace(FEW, max_size_mismatches=0))
    report = brought(many)
    assert [(item.key, item.kind) for item in report.held] == [("ns.a", "Damaged")]
    assert report.held[0].reason == f"{harmed} files that the replica's readers use have a wrong size"
    assert all(path.stat().st_size for path in copies)


def test_a_stretch_of_many_files_gives_several_batches(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sharded_listing, "LIMITS", replace(FEW, min_ranges=1))
    wanted, labels = expected(many), dict[str, int]()

    def counting(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
        labels[label] = len(items)
        return [function(item) for item in items]

    planned = plan(many, counting)
    assert labels["look up files"] == 1
    assert len([batch for batch in planned.batches if batch.table]) == -(-FILES // 2)
    assert listed(many, planned) == wanted
    assert brought(many).held == ()


def test_the_large_lane_publishes_it_when_all_its_batches_are_here(many: World) -> None:
    regions = [{**region.model_dump(), "bulk_copy_threshold": 1} for region in many.registry.regions]
    world = with_registry(many, regions=regions)
    lines: list[str] = []
    report = sync(world.context(), OPTIONS, lines.append, engine=here)
    assert (set(report.published), report.held, report.transit) == ({"ns", "ns.a", "ns.b"}, (), ())
    assert len([line for line in lines if "in parts" in line]) == 1, "it is listed once"
    assert closed(world)


def test_a_round_of_the_large_lane_names_the_batches_of_a_table_in_parts(many: World) -> None:
    regions = [{**region.model_dump(), "bulk_copy_threshold": 1} for region in many.registry.regions]
    world = with_registry(many, regions=regions)
    context = world.context()
    sync(context, replace(OPTIONS, lane="small"), quiet, engine=here)
    planned = stages.plan(context, replace(OPTIONS, lane="large"), quiet, engine=here)
    moving = read_bulk_state(context.objects, context.region)
    assert moving
    of_a = tuple(batch.number for batch in planned.batches if batch.table == "ns.a")
    assert {item.key: item.batches for item in moving.run.tables} == {"ns.a": of_a, "ns.b": (0,)}
    reports = [stages.copy(context, planned.run, number, quiet) for number in range(len(planned.batches) - 1)]
    assert [report.here for report in reports] == [("ns.b",), *[()] * (len(reports) - 1)]


def test_who_leaves_large_plans_to_others_needs_no_spark(many: World) -> None:
    planned = stages.plan(many.context(), OPTIONS, quiet, lambda *_: "too large", engine=dying_at("", DIED))
    assert planned.deferred == "too large"
    assert list((many.folder / "eu/replica/_sterna/runs").rglob("*.parquet")) == [], "nor lists that no plan names"


def test_where_nothing_is_for_spark_the_plan_lists_the_parts_itself(many: World) -> None:
    regions = [{**region.model_dump(), "localize": "here"} for region in many.registry.regions]
    world, lines = with_registry(many, regions=regions), list[str]()
    wanted = expected(world)
    planned = stages.plan(world.context(), OPTIONS, lines.append, engine=dying_at("", DIED))
    assert listed(world, planned) == wanted
    assert any("in parts" in line for line in lines)
    assert brought(world, dying_at("", DIED)).held == ()
    assert closed(world)


def test_a_plan_that_is_only_looked_at_says_the_same_and_leaves_nothing(
    many: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch, context = tmp_path / "scratch", many.context()
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    before, lines = sorted((many.folder / "eu").rglob("*")), list[str]()
    looked = explain(context, *make_plan(context, OPTIONS, lines.append))
    assert any("in parts" in line for line in lines)
    assert sorted((many.folder / "eu").rglob("*")) == before
    assert list(scratch.iterdir()) == []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sharded_listing, "LIMITS", replace(FEW, min_manifests=1_000))
        at_once = explain(context, *make_plan(context, OPTIONS))
    assert replace(looked, origins={}) == replace(at_once, origins={})
    sums = [(origin.files, origin.bytes) for origin in looked.origins.values()]
    assert sums == [(origin.files, origin.bytes) for origin in at_once.origins.values()]


def test_a_full_disk_holds_the_table_alone(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(**_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)
    planned, _ = make_plan(many.context(), OPTIONS)
    assert [(item.key, item.kind) for item in planned.held] == [("ns.a", "EngineError")]
    assert "No space left" in planned.held[0].reason and "damaged" not in planned.held[0].reason


def test_a_plan_that_is_over_begins_no_part(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []

    def interrupted(context: RegionContext, shelf: PartStore, item: dict[str, Any]) -> dict[str, Any]:
        done.append(item["table"])
        dealings[0].stop()
        return {"parts": [], "position": []}

    def new_listing(*args: Any) -> sharded_listing.ShardedListing:
        dealings.append(sharded_listing.ShardedListing(*args))
        return dealings[-1]

    dealings: list[sharded_listing.ShardedListing] = []
    monkeypatch.setitem(STEPS, LIST_STEP, interrupted)
    monkeypatch.setattr(planner, "ShardedListing", new_listing)
    planned, _ = make_plan(many.context(), OPTIONS)
    assert done == ["ns.a"]
    assert [(item.key, item.reason) for item in planned.held] == [("ns.a", "the plan is over")]


def test_a_plan_that_is_over_begins_no_job(many: World, monkeypatch: pytest.MonkeyPatch) -> None:
    labels: list[str] = []

    def interrupted(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
        labels.append(label)
        dealings[-1].stop()
        return [function(item) for item in items]

    def new_listing(*args: Any) -> sharded_listing.ShardedListing:
        dealings.append(sharded_listing.ShardedListing(*args))
        return dealings[-1]

    dealings: list[sharded_listing.ShardedListing] = []
    monkeypatch.setattr(planner, "ShardedListing", new_listing)
    report = brought(many, interrupted)
    assert labels == ["list files"]
    assert [(item.key, item.reason) for item in report.held] == [("ns.a", "the plan is over")]


def test_an_interrupted_plan_waits_for_no_job(many: World) -> None:
    begun, released, returned = threading.Event(), threading.Event(), threading.Event()

    def endless(function: Work, items: Sequence[str], label: str) -> Iterable[str]:
        begun.set()
        released.wait(30)
        returned.set()
        return []

    def interrupt() -> None:
        begun.wait(30)
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            plan(many, endless)
        assert not returned.is_set()
    finally:
        released.set()


def test_of_several_tables_in_parts_the_smallest_is_brought_first(many: World) -> None:
    for _ in range(FILES - 2):
        location = many.write("c")
    many.commit(c=location)
    planned = plan(many)
    tables = [batch.table for batch in planned.batches if batch.table]
    assert tables == sorted(tables, reverse=True) and set(tables) == {"ns.a", "ns.c"}
    assert [batch.number for batch in planned.batches] == list(range(len(planned.batches)))
    assert set(brought(many).published) == {"ns", "ns.a", "ns.b", "ns.c"}


def test_a_table_that_is_left_to_the_large_lane_leaves_no_lists(many: World) -> None:
    grown(many)
    regions = [{**region.model_dump(), "bulk_copy_threshold": 1} for region in many.registry.regions]
    world, runs = with_registry(many, regions=regions), many.folder / "eu/replica/_sterna/runs"
    before = set(runs.rglob("copy-*"))
    report = sync(world.context(), replace(OPTIONS, lane="small"), quiet, engine=here)
    assert [item.key for item in report.transit] == ["ns.a"]
    assert set(runs.rglob("copy-*")) == before


def test_a_file_below_a_replica_root_holds_its_table(many: World) -> None:
    path = many.folder / "us/replica/eu-lake/strange.parquet"
    path.parent.mkdir(parents=True)
    pq.write_table(pa.table({"id": pa.array([1], pa.int64())}), path)
    table = many.writer.load_table(("ns", "a"))
    table.add_files([f"file://{path}"])
    many.commit(a=many.writer.load_table(("ns", "a")).metadata_location)
    assert [(item.key, item.kind, item.file) for item in brought(many).held] == [
        ("ns.a", "Unsupported", f"file://{path}")
    ]


@pytest.mark.parametrize("kind", ["SourceGone", "SizeDiffers"])
def test_a_file_of_this_region_is_proven(many: World, kind: str) -> None:
    many.commit(a=written_elsewhere(many, "a", region="eu"))
    path = many.folder / "eu/lake/a-elsewhere.parquet"
    lost(path) if kind == "SourceGone" else cut(path)
    assert [(item.key, item.kind, item.file) for item in brought(many).held] == [("ns.a", kind, f"file://{path}")]


def test_a_store_that_is_dark_holds_its_table_alone(many: World) -> None:
    with refusing(f"file://{many.folder}/us/lake/a/metadata", StoreUnreachable, "*-m0.avro"):
        report = brought(many)
    assert [(item.key, item.bytes > 0) for item in report.transit] == [("ns.a", True)]
    assert "the last time: " in report.transit[0].reason
    assert set(report.published) == {"ns", "ns.b"}
    assert brought(many).published == ("ns.a",)
    assert closed(many)


def test_a_store_of_ones_own_that_takes_no_part_ends_the_plan(many: World) -> None:
    with (
        refusing(f"file://{many.folder}/eu/replica/_sterna/runs", StoreUnreachable, "*/parts/*"),
        pytest.raises(StoreUnreachable),
    ):
        brought(many)
    assert brought(many).held == ()
    assert closed(many)
