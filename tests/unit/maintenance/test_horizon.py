"""The horizon, row by row: each reason keeps what it must, and nothing else does."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from sterna.catalog.model import ICEBERG_TABLE
from sterna.iceberg.metadata.history import snapshot_log_start
from sterna.iceberg.metadata.model import Branch, Snapshot, TableMetadata
from sterna.maintenance.deletion.references import ReferenceVersions
from sterna.maintenance.tables.facts import (
    ConsumerPosition,
    MainCommit,
    RegionState,
    RetentionInputs,
    UnknownPosition,
)
from sterna.maintenance.tables.model import PRICE_PROPERTY
from sterna.maintenance.tables.retention import NeedReason, Retention, compute_retention, expirable_snapshots
from sterna.pipelines.publish.decide import is_rewound
from sterna.pipelines.publish.model import Channel, SnapshotState, TableState
from sterna.replication.replica.held import IN_TRANSIT, Held
from sterna.replication.replica.reachability import TableVersion

NOW = datetime(2026, 5, 20, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
PATIENCE = 7 * DAY
KEEP = HOUR


def at(number: int, key: str = "a") -> TableVersion:
    """A table's version whose current snapshot has a number."""
    return TableVersion(key, ICEBERG_TABLE, f"s3://us-lake/{key}/{number}.metadata.json", number)


def region(name: str = "eu", watermark: str = "c5", **more: object) -> RegionState:
    return replace(RegionState(name, watermark), **more)  # type: ignore[arg-type]


# Commit cN of `main` shows snapshot N of the table `a`, an hour after the one before.
COMMITS = tuple(MainCommit(f"c{number}", NOW - (5 - number) * HOUR, (at(number),)) for number in range(5, 0, -1))
FACTS = RetentionInputs(now=NOW, head="c5", main=(at(5),), commits=COMMITS, base=(at(1),), regions=(region(),))


def metadata(**more: object) -> TableMetadata:
    """A table with five snapshots in a line, a day apart, the youngest of them a day old."""
    snapshots = tuple(
        Snapshot(number, number - 1 or None, int((NOW - (6 - number) * DAY).timestamp() * 1000), f"l{number}", 0)
        for number in range(1, 6)
    )
    table_metadata = TableMetadata(2, "u", "s3://us-lake/a", 5, 0, snapshots, (), {}, {"main": 5}, (1, 2, 3, 4, 5))
    return replace(table_metadata, **more)  # type: ignore[arg-type]


def held(**more: object) -> Held:
    return Held("a", **{"kind": "SourceGone", "reason": "gone", "good": "c2", **more})  # type: ignore[arg-type]


def build_horizon(facts: RetentionInputs, **more: object) -> Retention:
    return compute_retention(facts, **{"max_wait": PATIENCE, **more})  # type: ignore[arg-type]


def tag(name: str, number: int, replica_of: str = "") -> ReferenceVersions:
    return ReferenceVersions(name, (at(number),), replica_of)


ROWS = {
    "nothing else: the current one stays": (FACTS, {5}),
    "a watermark": (replace(FACTS, regions=(region(watermark="c4"),)), {4, 5}),
    "the oldest of two watermarks, and all since": (
        replace(FACTS, regions=(region("us"), region("eu", "c3"))),
        {3, 4, 5},
    ),
    "a branch of somebody's": (replace(FACTS, references=(tag("dev", 2),)), {2, 5}),
    "a tag of somebody's": (replace(FACTS, references=(tag("2025", 1),)), {1, 5}),
    "a replica branch": (replace(FACTS, references=(tag("main_replica_eu", 3, "eu"),)), {3, 5}),
    "a hold": (replace(FACTS, references=(tag("sterna-hold-eu-20260601T000000Z-0", 2, "eu"),)), {2, 5}),
    "an outlet's position": (replace(FACTS, references=(tag("sterna-outlet-eu-pager", 3, "eu"),)), {3, 5}),
    "a head within keep, announced": (replace(FACTS, regions=(region(head_versions=(at(2), at(3))),)), {2, 3, 5}),
    "a held table: all since its last good commit": (replace(FACTS, regions=(region(held=(held(),)),)), {2, 3, 4, 5}),
    "a held table that was never here: all since it was": (
        replace(FACTS, regions=(region(held=(held(good="", since=(NOW - HOUR).isoformat()),)),)),
        {3, 4, 5},
    ),
    "a table in transit": (replace(FACTS, regions=(region(held=(held(kind=IN_TRANSIT, good="c3"),)),)), {3, 4, 5}),
    "a flow goes on from it, and needs the way since": (
        replace(FACTS, consumer_positions=(ConsumerPosition("a", 2, "dwd"),)),
        {2, 3, 4, 5},
    ),
    "a view of features goes on from it, and needs the way since": (
        replace(FACTS, consumer_positions=(ConsumerPosition("a", 3, "eu/user"),)),
        {3, 4, 5},
    ),
    "another table is held": (replace(FACTS, regions=(region(held=(replace(held(), key="b"),)),)), {5}),
    "a region that isn't entitled": (
        replace(FACTS, regions=(region(), region("ap", "c1", excluded_keys=frozenset({"a"})))),
        {5},
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_each_reason_keeps_what_it_must(row: str) -> None:
    facts, kept = ROWS[row]
    assert build_horizon(facts).blocks == ()
    gone = expirable_snapshots(metadata(), build_horizon(facts), keep=KEEP, now=NOW)
    assert {1, 2, 3, 4, 5} - set(gone) == kept


def _ms(length: timedelta) -> int:
    return int(length.total_seconds() * 1000)


def asking(*branches: Branch, **more: object) -> TableMetadata:
    """The table, with branches that ask for some of its history."""
    return metadata(branches=branches or (Branch(5),), **more)


TABLES = {
    "Iceberg's tag": (metadata(refs={"main": 5, "audit": 2}), {2, 5}),
    "staged and not published": (
        metadata(snapshots=(*metadata().snapshots, replace(metadata().snapshots[0], snapshot_id=6, wap_id="w"))),
        {5, 6},
    ),
    "rolled back: the current one stays, the one after it goes": (metadata(current_snapshot_id=3, refs={}), {3, 5}),
    "so many snapshots": (asking(properties={"history.expire.min-snapshots-to-keep": "3"}), {3, 4, 5}),
    "an age": (asking(properties={"history.expire.max-snapshot-age-ms": str(_ms(2.5 * DAY))}), {4, 5}),
    "both: what either keeps": (
        asking(
            properties={
                "history.expire.max-snapshot-age-ms": str(_ms(4.5 * DAY)),
                "history.expire.min-snapshots-to-keep": "2",
            }
        ),
        {2, 3, 4, 5},
    ),
    "a branch asks for less than the table": (
        asking(Branch(5, min_snapshots=2), properties={"history.expire.min-snapshots-to-keep": "4"}),
        {4, 5},
    ),
    "a branch of its own, by number": (asking(Branch(5), Branch(3, min_snapshots=2)), {2, 3, 5}),
    "a branch of its own, by age": (asking(Branch(5), Branch(4, max_age_ms=_ms(3.5 * DAY))), {3, 4, 5}),
    "a branch's limit that can't be read": (asking(Branch(5, has_invalid_retention=True)), {1, 2, 3, 4, 5}),
    "a number that is none": (asking(properties={"history.expire.min-snapshots-to-keep": "x"}), {1, 2, 3, 4, 5}),
    "an age below none": (asking(properties={"history.expire.max-snapshot-age-ms": "-1"}), {1, 2, 3, 4, 5}),
}


@pytest.mark.parametrize("row", TABLES)
def test_what_the_table_itself_says_keeps(row: str) -> None:
    table, kept = TABLES[row]
    gone = expirable_snapshots(table, build_horizon(FACTS), keep=KEEP, now=NOW)
    assert {item.snapshot_id for item in table.snapshots} - set(gone) == kept


def test_no_gap_comes_before_the_snapshot_of_a_mark_that_stays() -> None:
    channel = Channel("us", "acme", "rows")
    table = metadata(properties={channel.position_property: "7", channel.snapshot_property: "3/3"})
    facts = replace(FACTS, regions=(region(head_versions=(at(3),)),))
    gone = expirable_snapshots(table, build_horizon(facts), keep=KEEP, now=NOW)
    left = [SnapshotState(n, n - 1 or None, n) for n in range(1, 6) if n not in gone]
    assert not is_rewound(TableState(tuple(left), 5, table.properties), channel)
    assert gone == (1, 2)
    # Where nothing else needs it, it goes with all that is older.
    assert expirable_snapshots(table, build_horizon(FACTS), keep=KEEP, now=NOW) == (1, 2, 3, 4)


def test_what_was_staged_and_published_goes_once_no_head_shows_it() -> None:
    table = metadata(snapshots=tuple(replace(item, wap_id=f"w{item.snapshot_id}") for item in metadata().snapshots))
    facts = replace(FACTS, regions=(region(head_versions=(at(3),)),))
    gone = expirable_snapshots(table, build_horizon(facts), keep=KEEP, now=NOW)
    left = tuple(item for item in table.snapshots if item.snapshot_id not in gone)
    # As Iceberg does: what was current before a gap is in the log no more.
    log = table.snapshot_log[snapshot_log_start(table.snapshot_log, {item.snapshot_id for item in left}) :]
    after = replace(table, snapshots=left, snapshot_log=log)
    assert {item.snapshot_id for item in left} - set(
        expirable_snapshots(after, build_horizon(FACTS), keep=KEEP, now=NOW)
    ) == {5}


def test_keep_is_a_floor_and_nothing_more() -> None:
    assert expirable_snapshots(metadata(), build_horizon(FACTS), keep=2 * DAY + HOUR, now=NOW) == (1, 2, 3)
    behind = replace(FACTS, regions=(region(watermark="c1"),))
    assert expirable_snapshots(metadata(), build_horizon(behind), keep=timedelta(0), now=NOW) == ()


def test_what_upkeep_made_stays_for_the_day_whose_price_it_tells() -> None:
    table = metadata()
    marked = replace(table.snapshots[3], sterna_properties=((PRICE_PROPERTY, "0.5"),))
    table = replace(table, snapshots=(*table.snapshots[:3], marked, table.snapshots[4]))
    written = datetime.fromtimestamp(marked.timestamp_ms / 1000, UTC)
    nobody = build_horizon(replace(FACTS, commits=(), base=(), regions=()))
    assert 4 not in expirable_snapshots(table, nobody, keep=HOUR, now=written + DAY - HOUR)
    assert 4 in expirable_snapshots(table, nobody, keep=HOUR, now=written + DAY + HOUR)
    assert 4 in expirable_snapshots(metadata(), nobody, keep=HOUR, now=written + DAY - HOUR)


@pytest.mark.parametrize(("days", "gone"), [(1, (1, 2, 3, 4)), (2, (1, 2, 3)), (2.5, (1, 2)), (5, ()), (90, ())])
def test_what_was_current_within_the_time_to_reproduce_stays(days: float, gone: tuple[int, ...]) -> None:
    # Snapshot 4 is two days old: what was current two and a half days ago is snapshot 3.
    kept = expirable_snapshots(
        metadata(), build_horizon(FACTS), keep=timedelta(0), now=NOW, time_travel=timedelta(days=days)
    )
    assert kept == gone


def test_a_commit_that_brought_several_snapshots_keeps_all_of_them_while_a_region_has_none() -> None:
    commits = (MainCommit("c5", NOW, (at(5),)), MainCommit("c1", NOW - HOUR, (at(1),)))
    facts = replace(FACTS, commits=commits, regions=(region(watermark="c1"),))
    assert expirable_snapshots(metadata(), build_horizon(facts), keep=KEEP, now=NOW) == ()


BLOCKED = {
    "no watermark": (region(watermark=""), "it has no watermark"),
    "main left it": (region(watermark="other"), "is no commit of main's history"),
    "the list of what it holds is lost": (region(held_problem="can't be read"), "can't be read"),
    "a held table's last good commit is unknown": (region(held=(held(good="other"),)), "isn't known"),
    "a held table says nothing": (region(held=(held(good=""),)), "isn't known"),
}


@pytest.mark.parametrize("row", BLOCKED)
def test_what_is_not_known_blocks(row: str) -> None:
    fact, reason = BLOCKED[row]
    (block,) = build_horizon(replace(FACTS, regions=(fact,))).blocks
    assert (block.region, block.alarm) == ("eu", False)
    assert reason in block.reason
    assert build_horizon(replace(FACTS, regions=(replace(fact, excluded_keys=frozenset({"a"})),))).blocks == ()
    assert build_horizon(replace(FACTS, regions=(fact,)), exclude_regions=["eu"]).blocks == ()


def test_a_silent_region_is_an_alarm_and_blocks_until_it_is_left_out() -> None:
    old = tuple(replace(commit, at=commit.at - 6 * DAY) for commit in COMMITS)
    silent = replace(FACTS, commits=old, regions=(region(watermark="c1"), region("us")))
    assert build_horizon(silent).blocks == (), "six days and some hours"
    older = replace(silent, commits=tuple(replace(commit, at=commit.at - DAY) for commit in old))
    (block,) = build_horizon(older).blocks
    assert (block.region, block.alarm) == ("eu", True)
    assert build_horizon(older).blocks_of("a") == (block,)
    left_out = build_horizon(older, exclude_regions=["eu"])
    assert left_out.blocks == ()
    assert expirable_snapshots(metadata(), left_out, keep=KEEP, now=NOW) == (1, 2, 3, 4)
    idle = replace(older, regions=(region(), region("us")))
    assert build_horizon(idle).blocks == (), "nobody is silent who shows all that there is"


def test_a_view_of_which_nobody_can_tell_how_far_it_is_keeps_its_table_alone() -> None:
    facts = replace(FACTS, unknown_positions=(UnknownPosition("a", "eu", "its store is dark"),))
    horizon_ = build_horizon(facts)
    assert [(block.region, block.reason) for block in horizon_.blocks_of("a")] == [("eu", "its store is dark")]
    assert (horizon_.blocks_of("b"), horizon_.blocks) == ((), ())
    assert build_horizon(facts, exclude_regions=["eu"]).blocks_of("a") == ()


def test_what_files_are_needed_for_is_said() -> None:
    facts = replace(
        FACTS,
        regions=(region(watermark="c4", head_versions=(at(1),), held=(held(good="c3"),)),),
        references=(tag("main_replica_eu", 2, "eu"), tag("dev", 2)),
    )
    needed = build_horizon(facts).needed
    assert {shown.snapshot: need.reason for shown, need in needed.items()} == {
        5: NeedReason.MAIN,
        4: NeedReason.HISTORY,
        3: NeedReason.HELD,
        2: NeedReason.REFERENCE,
        1: NeedReason.HEAD,
    }
    assert needed[at(2)].replica_of == "", "a branch of somebody's shows it, too"
