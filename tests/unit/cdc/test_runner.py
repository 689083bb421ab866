"""What a runner brings into tables next, and what it says of a source that isn't read.

A stopped table gets all complete data from before its stop. What else falls under it: a stop in the first rows or in
the drop that completes them (a part of a table is never applied), a stop in the drop behind that, a table that is read
again and became empty, one that never had a row, a mark that waits for nothing any more, a drop that the journal has
lost, and stops of a version that didn't write down from where on.

A table on `main` belongs to one table of the source, and not to its name: one of that name in another schema doesn't
take its place. What else falls under it: the other one was dropped, renamed, or left out of `tables`; it wrote in an
epoch long ago; its snapshots are expired; the journal is lost, or both are; a newcomer without a table on `main`.

A check looks at what a run needs. What else falls under it: rows of others on `main`, and a Spark Connect server. Names
of columns are in `test_unfit_tables`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest

from sterna.config.sections.cdc import CdcSource
from sterna.errors import (
    BadDrop,
    DatabaseUnreachable,
    NeedsClassicSpark,
    NeedsResync,
    NotRead,
    PurgeNear,
    SourceUnreachable,
    TableMoved,
    UnfitSource,
    UsageError,
)
from sterna.pipelines.cdc.capture import Capture
from sterna.pipelines.cdc.database import LogRetention
from sterna.pipelines.cdc.journal import CaptureSpec, Journal, Part, Segment, StoppedTable, TableResync
from sterna.pipelines.cdc.plan import MAX_STEP_BYTES, Target, Work, channel, next_work
from sterna.pipelines.cdc.run import CaptureRunner, CompactionQueue, min_applied_segment, read_main_tables
from sterna.pipelines.cdc.sources import SourceContext
from sterna.pipelines.cdc.status import ResyncSummary, check, read_sources, resync, table_statuses
from sterna.pipelines.ingest.columns import Column
from sterna.pipelines.publish.model import SnapshotState, TableState
from sterna.pipelines.publish.protocol import PublishOutcome
from sterna.runtime.status import ConditionType
from sterna.text.reconcilers import status_text
from tests.support.small_world import World, make_world

_SOURCE = CdcSource(
    name="shop", region="eu", hosts=["db:1"], database="d", credential_id="c", tables=["public.*"], into="acme.shop"
)
_WAY = channel("eu", "shop")


@dataclass(frozen=True)
class FakeDatabase:
    """A source's database, which answers or doesn't."""

    answers: bool

    def list_tables(self, unfit: Any = None, captured: Any = ()) -> dict[str, tuple[str, ...]]:
        if not self.answers:
            raise DatabaseUnreachable("the source shop at db:1 does not answer")
        return {"public.a": ("id",), "public.b": ("id",)}

    def jars(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


@dataclass(frozen=True)
class Marked(SourceContext):
    """A source whose tables on `main` have marks, and nothing else."""

    marks: Mapping[str, str] = field(default_factory=dict)
    answers: bool = False

    def database(self) -> Any:
        return FakeDatabase(self.answers)

    def target(self, name: str, key: Any) -> Target:
        return Target(name, name, tuple(key), False, "")

    def read_table_state(self, target: Target) -> TableState:
        return TableState((), None, {_WAY.position_property: self.marks[target.name]})


def marked(world: World, journal: Journal, marks: Mapping[str, str]) -> Marked:
    return Marked(world.context(), cast(Any, None), _SOURCE, journal, marks)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


def journal_of(world: World, drops: int, complete: int, size: int = MAX_STEP_BYTES) -> Journal:
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    keys = {"public.a": ("id",)}
    assert journal.create_spec(CaptureSpec(1, keys))
    for number in range(1, drops + 1):
        parts = {"public.a": (Part(f"s3://x/{number}", 1, size, ()),)}
        assert journal.commit_segment(Segment(1, number, {}, {}, parts, complete=number == complete))
    return journal


@pytest.mark.parametrize("known", [1_000, 0])
def test_a_runner_that_begins_amid_the_first_rows_takes_none_of_them_away(world: World, known: int) -> None:
    """The last of several steps takes away what no first drop has: so it has to know all of them."""
    journal, runner = journal_of(world, 4, complete=3), CaptureRunner([], lambda line: None, max_cached_segments=known)
    for mark in ("1/1", "1/2"):
        epoch, drops = runner.load_segments(marked(world, journal, {"public.a": mark}))
        assert epoch is not None
    work = next_work(_WAY, "public.a", "1/2", 1, drops)
    assert work is not None
    assert work.key_segments is not None
    assert [drop.number for drop in work.key_segments] == [1, 2, 3]
    _, drops = runner.load_segments(marked(world, journal, {"public.a": "1/3"}))
    assert [drop.number for drop in drops] == ([3, 4] if not known else [1, 2, 3, 4])


def test_a_table_that_never_had_a_row_needs_no_old_drop(world: World) -> None:
    """Else each run would read all drops there ever were, and miss those that the store has deleted."""
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    keys, columns = {"public.a": ("id",), "public.void": ("id",)}, (Column("id", "int"),)
    assert journal.create_spec(CaptureSpec(1, keys))
    columns_by_table = {"public.a": columns}
    for number in range(1, 8):
        tables = ("public.a",) if number < 7 else ("public.a", "public.void")
        columns_by_table |= dict.fromkeys(tables, columns)
        parts = {table: (Part(f"s3://x/{number}", 1, 1, columns),) for table in tables}
        assert journal.commit_segment(
            Segment(1, number, {}, {}, parts, complete=number == 1, columns=dict(columns_by_table))
        )
    for old in range(1, 5):
        name = f"{10**12 - old:012}.json"
        (world.folder / "eu" / "lake" / "inbox" / "_cdc" / "drops" / "shop" / "000001" / name).unlink()
    followed = marked(world, journal, {"public.a": "1/6", "public.void": ""})
    assert min_applied_segment(followed, CaptureSpec(1, keys)) == 6
    _, drops = CaptureRunner([], lambda line: None).load_segments(followed)
    assert [drop.number for drop in drops] == [6, 7]
    work = next_work(_WAY, "public.void", "", 1, drops, is_empty=True)
    assert work is not None
    assert (work.step.previous, work.step.position, [drop.number for drop in work.segments]) == ("", "1/7", [7])
    # One that had rows and is gone from `main` lacks them.
    with pytest.raises(NeedsResync, match="segment 1 of capture 1 is gone"):
        next_work(_WAY, "public.a", "", 1, drops, is_empty=True)
    assert (
        min_applied_segment(marked(world, journal, {"public.a": "", "public.void": "1/7"}), CaptureSpec(1, keys)) == 0
    )


def test_without_all_first_drops_nothing_is_taken_away(world: World) -> None:
    drops = journal_of(world, 3, complete=3).segments(1, after=1)
    with pytest.raises(NeedsResync, match="segment 1 of capture 1"):
        next_work(_WAY, "public.a", "1/2", 1, drops)


def test_drops_are_in_their_order_whatever_the_store_lists_first(world: World) -> None:
    journal = journal_of(world, 30, complete=3)
    assert [drop.number for drop in journal.segments(1)] == list(range(1, 31))
    last = journal.last_segment(1)
    assert last is not None
    assert last.number == 30


def test_an_epoch_is_known_though_the_store_has_deleted_what_is_old(world: World) -> None:
    journal = journal_of(world, 2, complete=1)
    (world.folder / "eu" / "lake" / "inbox" / "_cdc" / "drops" / "shop" / "000001" / "999999999999.json").unlink()
    assert journal.read_spec(1) == CaptureSpec(1, {"public.a": ("id",)})
    assert [drop.number for drop in journal.segments(1, after=1)] == [2]


@dataclass
class Scripted:
    """A reader whose engine starts and then ends, or reads first rows for some steps."""

    ends: bool
    runner: CaptureRunner
    over: int = 0
    steps: int = 0
    words: str = "no slot is free"
    failed: list[bool] = field(default_factory=list)
    has_output: bool = False
    is_beginning: bool = False

    def __call__(self, *args: Any) -> Scripted:
        return self

    def step(self, seconds: float) -> int:
        self.steps += 1
        self.failed.append(bool(self.runner.failures.snapshot()))
        if self.steps == 30:
            self.runner.stop()
        if self.ends and self.steps % 3 == 0:
            raise SourceUnreachable(f"the engine that reads the source ended: {self.words} at {self.steps}")
        if not self.ends:
            self.runner.finish()  # its time is over at once
            self.has_output, self.is_beginning = True, self.steps < self.over
        return 0

    def close(self) -> None:
        pass


def scripted(**options: Any) -> Scripted:
    capture = Scripted(runner=CaptureRunner([], lambda line: None, pause_seconds=0.0), **options)
    capture.runner.open_capture = cast(Any, capture)
    return capture


def test_an_engine_that_starts_and_ends_again_is_told_all_the_time(world: World) -> None:
    capture = scripted(ends=True)
    capture.runner.read(marked(world, cast(Any, None), {}))
    assert capture.failed == [False] * 3 + [True] * 27
    assert list(capture.runner.failures.snapshot()) == ["shop: reading"]


def test_an_engine_that_ends_again_at_the_same_place_needs_a_person(world: World) -> None:
    """Where the source itself answers, another start cures nothing; the table is named where the engine names it."""
    capture = scripted(ends=True, words="no place for public.b")
    followed = Marked(world.context(), cast(Any, None), _SOURCE, cast(Any, None), {}, answers=True)
    capture.runner.read(followed)
    (error,) = capture.runner.failures.snapshot().values()
    assert capture.steps == 9
    assert (type(error).__name__, error.table) == ("UnfitSource", "public.b")
    assert "ended 3 times at the same place" in str(error)


def test_a_table_that_is_stopped_keeps_no_old_drop(world: World) -> None:
    """The others come up without it: it is read again in the next epoch, or never."""
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    keys, columns = {"public.a": ("id",), "public.b": ("id",)}, (Column("id", "int"),)
    assert journal.create_spec(CaptureSpec(1, keys))
    stopped = {"public.b": StoppedTable("UnfitSource", "a value of column v has no place")}
    for number in range(1, 8):
        parts = {"public.a": (Part(f"s3://x/{number}", 1, 1, columns),)}
        segment = Segment(1, number, {}, {}, parts, complete=number == 1, stopped=stopped if number > 3 else {})
        assert journal.commit_segment(segment)
    followed = marked(world, journal, {"public.a": "1/6", "public.b": "1/2"})
    assert min_applied_segment(followed, CaptureSpec(1, keys)) == 6
    (drop,) = CaptureRunner([], lambda line: None).load_segments(followed)[1][-1:]
    error = drop.stopped["public.b"].to_error("public.b", "shop")
    assert (type(error).__name__, error.exit_code, error.table) == ("UnfitSource", 2, "public.b")
    assert "sterna cdc resync shop" in str(error)


def test_first_rows_are_read_to_their_end_though_the_time_is_over(world: World) -> None:
    """Who ends before begins anew: a source that takes longer than a run would never come."""
    capture = scripted(ends=False, over=20)
    capture.runner.read(marked(world, cast(Any, None), {}))
    assert capture.steps == 20
    capture = scripted(ends=False, over=100)
    capture.runner.read(marked(world, cast(Any, None), {}))
    assert capture.steps == 30  # it was stopped


@dataclass(frozen=True)
class FakeRegionSettings:
    """The settings of a region's ingestion."""

    spark: str = "local[1]"


@dataclass(frozen=True)
class FakeRegionIngest:
    """What a runner asks of a region's ingestion."""

    region_settings: FakeRegionSettings = field(default_factory=FakeRegionSettings)
    objects: Any = None

    def refusal(self, key: str) -> str:
        return ""


class Moving(Marked):
    """A source whose tables have a snapshot as soon as they have a mark."""

    def read_table_state(self, target: Target) -> TableState:
        mark = self.marks[target.name]
        return TableState((), 1 if mark else None, {_WAY.position_property: mark} if mark else {})


def stepped(
    world: World, drops: list[Segment], marks: dict[str, str], **options: Any
) -> tuple[dict[str, str], CaptureRunner, Moving]:
    """Let a runner apply a journal until nothing is left; return which drops came into each table, and the rest."""
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    epoch = drops[0].capture_id
    assert journal.create_spec(CaptureSpec(epoch, dict.fromkeys(marks, ("id",))))
    for segment in drops:
        assert journal.commit_segment(segment)
    applied: dict[str, str] = {}

    def apply(catalog: Any, objects: Any, target: Target, work: Work) -> PublishOutcome:
        assert marks[target.name] == work.step.previous
        marks[target.name] = work.step.position
        numbers = " ".join(str(drop.number) for drop in work.segments)
        applied[target.name] = (
            f"{applied.get(target.name, '')} {numbers}{' cleared' if work.key_segments else ''}".strip()
        )
        return PublishOutcome(1, "", True, 1)

    followed = Moving(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, journal, marks)
    options = {"compact_table": lambda *_: None, **options}
    runner = CaptureRunner([followed], lambda line: None, apply_work=apply, **options)
    for _ in range(20):
        if not runner.apply(cast(Any, None)):
            break
    return applied, runner, followed


def make_segment(
    number: int, *tables: str, epoch: int = 1, stops: Mapping[str, int] | None = None, **more: Any
) -> Segment:
    """A drop with rows of some tables; stops say the last drop that has all of a table's rows."""
    columns = (Column("id", "int"),)
    parts = {table: (Part(f"s3://x/{number}", 1, 1, columns),) for table in tables}
    stopped = {
        table: StoppedTable("UnfitSource", "a value has no place", last) for table, last in (stops or {}).items()
    }
    return Segment(epoch, number, {}, {}, parts, complete=number == 2, stopped=stopped, **more)


def test_tables_are_compacted_behind_all_steps_and_changes_go_on_where_that_fails(world: World) -> None:
    compacted: list[str] = []

    def compact(catalog: Any, target: Target) -> None:
        compacted.append(target.name)
        raise TableMoved("the table was changed by others each time", table=target.key)

    drops = [make_segment(1, "public.a"), make_segment(2, "public.a"), make_segment(3, "public.a", "public.b")]
    marks = {"public.a": "", "public.b": ""}
    applied, runner, _ = stepped(world, drops, marks, compact_table=compact)
    assert (applied, runner.failures.snapshot()) == ({"public.a": "1 2 3", "public.b": "3"}, {})
    assert sorted(compacted) == ["public.a", "public.b"]


def test_each_table_gets_its_turn_and_one_that_fails_is_tried_after_ever_more_steps() -> None:
    good, bad = (Target(f"public.{name}", f"shop.{name}", ("id",), False, "") for name in ("good", "bad"))
    queue, attempts = CompactionQueue(), list[tuple[int, str]]()

    def compact(number: int, target: Target) -> None:
        attempts.append((number, target.key))
        if target is bad:
            raise TableMoved("the table was changed by others each time", table=target.key)

    for number in range(40):
        for target in (bad, good):
            queue.add_step(target)
        for _ in range(2):
            queue.compact_next(partial(compact, number))
    assert [number for number, key in attempts if key == good.key] == list(range(40))
    assert [number for number, key in attempts if key == bad.key] == [0, 2, 6, 14, 30]


def test_what_came_before_a_tables_stop_is_applied(world: World) -> None:
    columns = {"public.a": (Column("id", "int"),), "public.b": (Column("id", "int"),)}
    drops = [
        make_segment(1, "public.a", "public.b"),
        make_segment(2, "public.a"),
        make_segment(3, "public.b"),
        make_segment(4, "public.a"),
    ]
    drops += [make_segment(number, "public.a", stops={"public.b": 4}, columns=columns) for number in (5, 6)]
    marks = {"public.a": "", "public.b": ""}
    applied, runner, followed = stepped(world, drops, marks)
    assert (applied["public.b"], marks) == ("1 3", {"public.a": "1/6", "public.b": "1/4"})
    (error,) = runner.failures.snapshot().values()
    assert (type(error).__name__, error.table) == ("UnfitSource", "public.b")
    # It keeps no drop any more, and no step is left.
    assert min_applied_segment(followed, CaptureSpec(1, dict.fromkeys(marks, ("id",)))) == 6


def test_a_stopped_table_that_lacks_drops_keeps_them(world: World) -> None:
    """Else a run that begins later, or one of many drops, wouldn't have them any more."""
    columns = {"public.a": (Column("id", "int"),), "public.b": (Column("id", "int"),)}
    drops = [make_segment(1, "public.a", "public.b", columns=columns), make_segment(2, columns=columns)]
    drops += [make_segment(number, "public.a", "public.b", columns=columns) for number in (3, 4)]
    drops += [make_segment(number, "public.a", stops={"public.b": 4}, columns=columns) for number in range(5, 9)]
    marks = {"public.a": "1/8", "public.b": "1/2"}
    applied, _, _ = stepped(world, drops, marks, max_cached_segments=0)
    assert (applied, marks["public.b"]) == ({"public.b": "3 4"}, "1/4")


@pytest.mark.parametrize("mark", ["", "1/9"], ids=["new", "read again"])
@pytest.mark.parametrize("stop", [1, 2])
def test_of_first_rows_that_were_not_complete_nothing_is_applied(world: World, mark: str, stop: int) -> None:
    """A part of them would be a table that never was; and of one that is read again, all other rows would go."""
    stops = {"public.b": 0}
    parts = ("public.a",) if stop == 1 else ("public.a", "public.b")
    drops = [make_segment(1, *parts, epoch=2, stops=stops if stop == 1 else {})]
    drops += [make_segment(2, "public.a", epoch=2, stops=stops), make_segment(3, "public.a", epoch=2, stops=stops)]
    marks = {"public.a": mark, "public.b": mark}
    applied, runner, followed = stepped(world, drops, marks)
    assert ("public.b" in applied, marks) == (False, {"public.a": "2/3", "public.b": mark})
    assert [str(error.table) for error in runner.failures.snapshot().values()] == ["public.b"]
    assert min_applied_segment(followed, CaptureSpec(2, dict.fromkeys(marks, ("id",)))) == 3


@pytest.mark.parametrize(("mark", "came", "became"), [("", None, ""), ("1/9", " cleared", "2/2")])
def test_a_table_without_a_row_before_its_stop_is_as_the_source(
    world: World, mark: str, came: str | None, became: str
) -> None:
    drops = [
        make_segment(1, "public.a", epoch=2),
        make_segment(2, epoch=2),
        make_segment(3, "public.a", epoch=2, stops={"public.b": 2}),
    ]
    marks = {"public.a": mark, "public.b": mark}
    applied, _, followed = stepped(world, drops, marks)
    assert (applied.get("public.b"), marks["public.b"]) == (came and came.strip(), became)
    assert min_applied_segment(followed, CaptureSpec(2, dict.fromkeys(marks, ("id",)))) == 3


@pytest.mark.parametrize("asked", [False, True], ids=["the epoch's first rows ended", "a resync was asked for"])
def test_a_table_that_was_followed_is_never_left_out_silently(world: World, asked: bool) -> None:
    """It would stay on `main` as it was, with every alarm green. One that never was followed may be left out."""

    class Unfit:
        def list_tables(self, unfit: Any, captured: Any = ()) -> dict[str, tuple[str, ...]]:
            unfit["public.a"] = UnfitSource("a key cascades", table="public.a")
            return {"public.b": ("id",)}

        def identities(self, *args: Any) -> dict[str, Any]:
            return {}

        def prepare(self, capture_id: int, tables: Any) -> None:
            pass

    fresh = Journal(world.context().objects, f"file://{world.folder}/eu/lake/other", "shop")
    assert list(Capture(_SOURCE, cast(Any, Unfit()), fresh).begin_capture()[0].tables) == ["public.b"]
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    assert journal.create_spec(CaptureSpec(1, {"public.a": ("id",), "public.b": ("id",)}))
    if asked:
        journal.request_capture(2)
    with pytest.raises(UnfitSource, match="cascades"):
        Capture(_SOURCE, cast(Any, Unfit()), journal).begin_capture()


@pytest.mark.parametrize("known", [1_000, 0], ids=["all drops are remembered", "few are"])
@pytest.mark.parametrize("mark", ["1/2", "1/3", ""])
def test_a_table_that_is_read_again_alone_begins_with_those_rows(world: World, known: int, mark: str) -> None:
    """It was stopped behind drop 3; its rows are in drops 5 and 6, with which it isn't stopped any more."""
    columns = {"public.a": (Column("id", "int"),), "public.b": (Column("id", "int"),)}
    drops = [
        make_segment(1, "public.a", "public.b", columns=columns),
        make_segment(2, columns=columns),
        make_segment(3, "public.b", columns=columns),
    ]
    drops += [make_segment(4, "public.a", columns=columns, stops={"public.b": 3})]
    drops += [make_segment(5, "public.b", columns=columns, stops={"public.b": 3})]
    again = {"public.b": TableResync(5, 6, ("other",), "7:9:", 100)}
    drops += [make_segment(6, "public.b", columns=columns, resyncs=again, handled_requests=1)]
    drops += [make_segment(7, "public.a", "public.b", columns=columns, resyncs=again, handled_requests=1)]
    marks = {"public.a": "1/4", "public.b": mark}
    followed = Moving(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, Journal(*journal_for(world)), marks)
    applied, runner, _ = stepped(world, drops, marks, max_cached_segments=known)
    cleared = " cleared" if mark else ""
    assert (applied, marks) == (
        {"public.a": "7", "public.b": f"5 6{cleared} 7"},
        {"public.a": "1/7", "public.b": "1/7"},
    )
    assert runner.failures.snapshot() == {}
    epoch = followed.journal.read_spec(1)
    assert epoch is not None
    assert epoch.with_keys_at(followed.journal.last_segment(1)).tables["public.b"] == ("other",)
    assert min_applied_segment(followed, epoch) == 7
    marks |= {"public.a": "1/7", "public.b": "1/5"}  # amid its rows it needs all of them
    assert min_applied_segment(followed, epoch) == 4


def journal_for(world: World) -> tuple[Any, str, str]:
    return world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop"


@dataclass(frozen=True)
class Written(Marked):
    """A source whose tables on `main` have the snapshots of steps."""

    steps: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def target(self, name: str, key: Any) -> Target:
        return Target(name, f"acme.shop.{name.partition('.')[2]}", tuple(key), False, "")

    def read_table_state(self, target: Target) -> TableState | None:
        ids = self.steps.get(target.key)
        if ids is None:
            return None
        line = tuple(SnapshotState(at, at - 1 or None, at, "append", wap_id=id) for at, id in enumerate(ids, 1))
        return TableState(line, len(ids), {_WAY.position_property: self.marks[target.key]})


@pytest.mark.parametrize("expired", [False, True], ids=["snapshots tell", "the journal tells"])
def test_a_table_on_main_is_filled_by_one_table_of_the_source(world: World, expired: bool) -> None:
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    key = ("id",)
    assert journal.create_spec(CaptureSpec(1, {"public.a": key, "public.b": key}))
    ids = ("foreign/1",) if expired else ("foreign/1", f"{_WAY}/public.a/0-1.2", f"{_WAY}/public.a/1.2-1.9", "")
    marks, steps = {"acme.shop.a": "1/9"}, {"acme.shop.a": ids}
    followed = Written(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, journal, marks, steps=steps)
    main_tables = read_main_tables(followed, {"public.a": key, "other.a": key, "other.new": key})
    assert (main_tables.latest_capture_id, list(main_tables.conflicts)) == (1, ["other.a"])
    error = main_tables.conflicts["other.a"]
    assert "are of public.a, which has the same name in another schema" in str(error)
    assert (type(error).__name__, error.table) == ("UnfitSource", "other.a")
    # What is in the journal already comes no further, and the table says why; that one goes on.
    assert journal.create_spec(CaptureSpec(2, {"other.a": key, "public.b": key}))
    assert journal.commit_segment(make_segment(1, "other.a", epoch=2))
    assert journal.commit_segment(make_segment(2, epoch=2))
    runner = CaptureRunner([followed], lambda line: None)
    assert not runner.apply(cast(Any, None))
    assert [(name, str(failure.table)) for name, failure in runner.failures.snapshot().items()] == [
        ("shop: other.a", "other.a")
    ]


def test_what_no_run_could_apply_is_told_by_a_check_by_the_same_words(world: World) -> None:
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    marks, steps = {"acme.shop.a": ""}, {"acme.shop.a": ("foreign/1",)}
    followed = Written(
        world.context(), cast(Any, FakeRegionIngest()), _SOURCE, journal, marks, answers=True, steps=steps
    )
    with pytest.raises(UnfitSource) as checked:
        check(followed)
    assert journal.create_spec(CaptureSpec(1, {"public.a": ("id",)}))
    assert journal.commit_segment(make_segment(1, "public.a"))
    runner = CaptureRunner([followed], lambda line: None)
    assert not runner.apply(cast(Any, None))
    (error,) = runner.failures.snapshot().values()
    assert str(checked.value) == str(error)
    assert str(error).startswith("the table has rows, and they aren't those of source shop [table acme.shop.a]")
    # An empty table is as good as none.
    empty = Written(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, journal, {"acme.shop.a": ""}, answers=True)
    assert [name for name, _, _ in check(empty).tables] == ["public.a", "public.b"]
    remote = replace(empty, ingest=cast(Any, FakeRegionIngest(FakeRegionSettings("sc://spark:15002"))))
    with pytest.raises(NeedsClassicSpark, match=r"set ingest\.regions\.eu\.spark"):
        check(remote)


@pytest.mark.parametrize(("tables", "fits"), [(["public.*"], True), (["public.*", "other.*"], False)])
def test_whose_rows_nobody_can_tell_are_those_of_a_source_of_one_schema(
    world: World, tables: list[str], fits: bool
) -> None:
    """The journal is lost, and all snapshots of the source are expired."""
    source = _SOURCE.model_copy(update={"tables": tables})
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    marks, steps = {"acme.shop.a": "3/9"}, {"acme.shop.a": ("foreign/1",)}
    followed = Written(world.context(), cast(Any, FakeRegionIngest()), source, journal, marks, steps=steps)
    main_tables = read_main_tables(followed, {"public.a": ("id",)})
    assert (main_tables.latest_capture_id, list(main_tables.conflicts)) == (3, [] if fits else ["public.a"])


def test_what_a_stopped_table_will_never_have_is_not_told_as_waiting(world: World) -> None:
    """Its mark is one of the epoch before: nothing of the new one comes, though drops have a part of its first rows."""
    journal = Journal(world.context().objects, f"file://{world.folder}/eu/lake/inbox", "shop")
    key = ("id",)
    for number in (1, 2):
        assert journal.create_spec(CaptureSpec(number, {"public.a": key, "public.b": key}))
    assert journal.commit_segment(make_segment(1, "public.a", "public.b", epoch=2))
    for number in (2, 3):
        assert journal.commit_segment(make_segment(number, "public.a", epoch=2, stops={"public.b": 0}))
    marks = {"public.a": "1/8", "public.b": "1/9"}
    followed = Moving(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, journal, marks)
    standings = table_statuses(followed, journal.read_spec(2), journal.last_segment(2))
    assert [(standing.details["table"], standing.position, standing.lag) for standing in standings] == [
        ("public.a", "1/8", 3),
        ("public.b", "1/9", 0),
    ]


def test_one_table_is_asked_for_again(world: World) -> None:
    journal = Journal(*journal_for(world))
    followed = Marked(world.context(), cast(Any, None), _SOURCE, journal, {})
    assert journal.create_spec(CaptureSpec(1, {"public.a": ("id",)}))
    assert journal.commit_segment(replace(make_segment(1, "public.a"), offset=None))
    with pytest.raises(UsageError, match="first rows of shop aren't complete"):
        resync(followed, act=True, table="public.a")
    assert journal.commit_segment(make_segment(2, "public.a"))
    with pytest.raises(UsageError, match=r"follows no table public\.x: public\.a"):
        resync(followed, act=True, table="public.x")
    assert resync(followed, act=False, table="public.a").asked is False
    assert journal.resync_requests(1, 0) == []
    assert resync(followed, act=True, table="public.a") == ResyncSummary("shop", 1, True, "public.a")
    assert (journal.resync_requests(1, 0), journal.latest_capture_id()) == ([(1, "public.a")], 1)
    other = replace(followed, source=_SOURCE.model_copy(update={"kind": "mariadb"}))
    with pytest.raises(UsageError, match="of a mariadb isn't read again alone"):
        resync(other, act=True, table="public.a")


def test_a_source_whose_newest_segment_is_malformed_is_read_again_as_a_whole(world: World) -> None:
    """That is the remedy for a malformed journal; one table alone needs the segment."""
    journal = Journal(*journal_for(world))
    followed = Marked(world.context(), cast(Any, None), _SOURCE, journal, {})
    assert journal.create_spec(CaptureSpec(1, {"public.a": ("id",)}))
    assert journal.commit_segment(make_segment(1, "public.a"))
    (segment,) = (world.folder / "eu/lake/inbox/_cdc/drops/shop").rglob("*.json")
    segment.write_text("{")
    with pytest.raises(BadDrop):
        resync(followed, act=True, table="public.a")
    assert resync(followed, act=True) == ResyncSummary("shop", 2, True)
    assert journal.latest_capture_id() == 2


def test_a_table_that_was_read_again_with_another_key_is_no_alarm(world: World) -> None:
    """Nobody could end that alarm but by reading the whole source again."""
    journal, asked = Journal(*journal_for(world)), dict[str, tuple[str, ...]]()

    class Keyed:
        def list_tables(self, *args: Any) -> dict[str, tuple[str, ...]]:
            return {"public.a": ("code",)}

        def identities(self, tables: Mapping[str, tuple[str, ...]], *args: Any) -> dict[str, Any]:
            asked.update(tables)
            return {}

        def log_retention(self, last_segment: Segment) -> LogRetention:
            return LogRetention(0)

        def validate_not_recreated(self, *args: Any) -> None:
            pass

        def close(self) -> None:
            pass

    class Fresh(Marked):
        def database(self) -> Any:
            return Keyed()

    assert journal.create_spec(CaptureSpec(1, {"public.a": ("id",)}))
    assert journal.commit_segment(
        make_segment(1, "public.a", resyncs={"public.a": TableResync(1, 1, ("code",), "7:9:", 100)}, handled_requests=1)
    )
    followed = Fresh(world.context(), cast(Any, None), _SOURCE, journal, {"public.a": "1/1"})
    standing, table = read_sources([followed])
    assert (standing.blocked, standing.exit_code, asked) == (None, 0, {"public.a": ("code",)})
    assert (table.name, table.blocked) == ("shop/public.a", None)


def test_a_status_names_alarms_and_what_is_left_out(world: World) -> None:
    journal = Journal(*journal_for(world))

    class Full(FakeDatabase):
        def list_tables(self, unfit: Any = None, captured: Any = ()) -> dict[str, tuple[str, ...]]:
            unfit["public.x"] = UnfitSource("without a primary key")
            return {"public.a": ("id",), "public.new": ("id",)}

        def log_retention(self, last_segment: Segment) -> LogRetention:
            return LogRetention(_SOURCE.log_alarm + 1, 7.5)

        def validate_not_recreated(self, *args: Any) -> None:
            pass

        def identities(self, *args: Any) -> dict[str, Any]:
            return {}

    class Source(Moving):
        def database(self) -> Any:
            return Full(True)

    marks = {"public.a": "", "public.new": ""}
    followed = Source(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, journal, marks)
    (begin,) = read_sources([followed])
    assert (begin.position, begin.exit_code, begin.conditions[0].reason) == ("", NotRead.exit_code, "NotBegun")
    assert journal.create_spec(CaptureSpec(1, {"public.a": ("id",)}))
    assert journal.commit_segment(make_segment(1, "public.a"))
    source, table = read_sources([followed])
    assert [(condition.type, condition.reason) for condition in source.conditions] == [
        (ConditionType.READY, "Following"),
        (ConditionType.READY, "NewTable"),
        (ConditionType.READY, "UnfitSource"),
        (ConditionType.BLOCKED, "PurgeNear"),
    ]
    assert (source.position, source.lag, source.exit_code) == ("1/1", _SOURCE.log_alarm + 1, PurgeNear.exit_code)
    assert (source.details["left"], source.details["new"]) == (7, ["public.new"])
    assert source.details["unfit"] == {"public.x": "without a primary key"}
    assert (table.position, table.message) == ("", "no row yet")
    lines = status_text([source, table]).splitlines()
    assert "public.x can't be captured: without a primary key" in lines[0]
    assert lines[1].startswith("shop/public.a: public.a → public.a: ")


def test_what_nobody_foresees_of_one_table_ends_no_other(world: World) -> None:
    marks = {"public.a": "", "public.b": ""}
    followed = Moving(world.context(), cast(Any, FakeRegionIngest()), _SOURCE, Journal(*journal_for(world)), marks)
    assert followed.journal.create_spec(CaptureSpec(1, dict.fromkeys(marks, ("id",))))
    assert followed.journal.commit_segment(replace(make_segment(1, *marks), complete=True))
    came: list[str] = []

    def apply(catalog: Any, objects: Any, target: Target, work: Work) -> PublishOutcome:
        if target.name == "public.a":
            raise KeyError("code")
        came.append(target.name)
        marks[target.name] = work.step.position
        return PublishOutcome(1, "", True, 1)

    runner = CaptureRunner([followed], lambda line: None, apply_work=apply, compact_table=lambda *_: None)
    assert runner.apply(cast(Any, None)) is True
    assert runner.apply(cast(Any, None)) is False
    ((what, error),) = runner.failures.snapshot().items()
    assert (what, came) == ("shop: public.a", ["public.b"])
    assert "an unexpected error: KeyError" in error.message
    assert error.exit_code != 0
