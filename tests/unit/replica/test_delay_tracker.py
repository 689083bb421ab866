"""The delays that commits of both branches make, against their definition, worked out version by version."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.replication.replica.delay_tracker import (
    MAX_OPEN_ENTRIES,
    Ahead,
    DelayState,
    DelayTracker,
    OpenCommits,
    ReplicaCommit,
    SourceCommit,
    initial_state,
)
from sterna.replication.replica.delays import bucket_of

TABLES = ("a", "b", "c")
STEP = 10_000  # milliseconds


@dataclass(frozen=True)
class History:
    """Commits of both branches, in the order of time."""

    main: tuple[SourceCommit, ...]
    replica: tuple[ReplicaCommit, ...]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """A main, and a branch that follows it: with tables held or in transit, chosen ones ahead, and lost lists."""
    main = [SourceCommit("m0", 0, ())]
    replica = [ReplicaCommit("r0", 0, "m0", "m0", frozenset(), {})]
    watermark, shown = 0, dict.fromkeys(TABLES, 0)
    for step in range(1, draw(st.integers(1, 25))):
        at = step * STEP
        action = draw(st.sampled_from(["commit", "commit", "sync", "chosen"]))
        head = len(main) - 1
        if action == "commit":
            put = tuple(sorted(draw(st.sets(st.sampled_from(TABLES), min_size=1))))
            main.append(SourceCommit(f"m{head + 1}", at, put))
        elif action == "sync":
            watermark = draw(st.integers(watermark, head))
            staying = draw(st.sets(st.sampled_from(TABLES)))
            for table in set(TABLES) - staying:
                shown[table] = max(shown[table], watermark)
            replica.append(_replica_commit(main, len(replica), at, watermark, watermark, (), shown))
        else:
            planned = draw(st.integers(watermark, head))
            chosen = draw(st.sampled_from(TABLES))
            changed = any(chosen in commit.tables for commit in main[shown[chosen] + 1 : planned + 1])
            if changed and planned > watermark:
                shown[chosen] = planned
                replica.append(_replica_commit(main, len(replica), at, watermark, planned, (chosen,), shown))
    return History(tuple(main), tuple(replica))


def _replica_commit(
    main: Sequence[SourceCommit],
    number: int,
    at: int,
    watermark: int,
    planned: int,
    put: tuple[str, ...],
    shown: dict[str, int],
) -> ReplicaCommit:
    held = {}
    for table in TABLES:
        missing = [commit.at for commit in main[shown[table] + 1 : watermark + 1] if table in commit.tables]
        if missing:
            held[table] = missing[0]
    return ReplicaCommit(f"r{number}", at, f"m{watermark}", f"m{planned}", frozenset(put), held)


def expected(history: History) -> tuple[Counter[tuple[str, int, int]], Counter[tuple[str, int]]]:
    """Return the delays (table, shown, bucket) and what is open (table, commit time), by the definition."""
    ended: Counter[tuple[str, int, int]] = Counter()
    opened: Counter[tuple[str, int]] = Counter()
    numbers = {commit.hash: number for number, commit in enumerate(history.main)}
    for number, commit in enumerate(history.main):
        for table in commit.tables:
            shown = next((step.at for step in history.replica if _shows(step, numbers, number, commit, table)), None)
            if shown is None:
                opened[table, commit.at] += 1
            elif number <= numbers[history.replica[-1].watermark]:  # of what is ahead of it they are counted later
                ended[table, shown, bucket_of((shown - commit.at) / 1000)] += 1
    return ended, opened


def _shows(step: ReplicaCommit, numbers: dict[str, int], number: int, commit: SourceCommit, table: str) -> bool:
    if table in step.put and number <= numbers[step.planned]:
        return True
    if number > numbers[step.watermark]:
        return False
    since = (step.held or {}).get(table)
    return since is None or commit.at < since


def followed(history: History, cuts: Sequence[int]) -> tuple[Counter[tuple[str, int, int]], Counter[tuple[str, int]]]:
    """Follow a history in parts, each from the state that the one before ended with."""
    state = initial_state(history.replica[0])
    ended: Counter[tuple[str, int, int]] = Counter()
    opened: dict[str, tuple[OpenCommits, ...]] = {}
    positions = {commit.hash: number for number, commit in enumerate(history.main)}
    bounds = [1, *sorted(cuts), len(history.replica)]
    for begin, end in pairwise(bounds):
        tracker = DelayTracker(state, history.main[positions[state.source] + 1 :])
        for step in history.replica[begin:end]:
            for delay in tracker.apply(step):
                ended[delay.table, delay.shown, delay.bucket] += delay.count
        state, opened = tracker.state, tracker.open_at_head()
    counts: Counter[tuple[str, int]] = Counter()
    for table, entries in opened.items():
        for entry in entries:
            counts[table, entry.at] += entry.count
    return ended, counts


@settings(max_examples=60)
@given(histories(), st.data())
def test_each_version_is_counted_once_by_the_definition(history: History, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(1, len(history.replica)), max_size=3))
    assert followed(history, cuts) == expected(history)


def test_a_version_of_a_held_table_is_open_until_a_later_commit_shows_it() -> None:
    main = [SourceCommit("m1", 1_000, ("a", "b")), SourceCommit("m2", 2_000, ("a",))]
    tracker = DelayTracker(DelayState(0, "r0", "m0"), main)
    assert [(delay.table, delay.bucket) for delay in tracker.apply(_held("r1", 5_000, {"a": 1_000}))] == [("b", 4)]
    assert tracker.open_at_head() == {"a": (OpenCommits(1_000, 1), OpenCommits(2_000, 1))}
    assert [delay.bucket for delay in tracker.apply(_held("r2", 9_000, {"a": 2_000}))] == [8]
    assert [delay.bucket for delay in tracker.apply(_held("r3", 10_000, {}))] == [8]


def test_where_the_list_of_held_tables_is_lost_nothing_counts_as_shown() -> None:
    tracker = DelayTracker(
        DelayState(0, "r0", "m0"), [SourceCommit("m1", 1_000, ("a",)), SourceCommit("m2", 2_000, ())]
    )
    assert list(tracker.apply(_held("r1", 5_000, None))) == []
    assert tracker.open_at_head() == {"a": (OpenCommits(1_000, 1),)}
    assert [delay.bucket for delay in tracker.apply(_held("r2", 9_000, {}))] == [8]


def test_a_table_that_was_ahead_at_a_commit_that_main_lost_counts_as_any_other() -> None:
    state = DelayState(0, "r0", "m0", {}, {"a": (Ahead("lost", 500),)})
    tracker = DelayTracker(state, [SourceCommit("m1", 1_000, ("a",)), SourceCommit("m2", 2_000, ("a",))])
    assert tracker.open_at_head() == {"a": (OpenCommits(1_000, 1), OpenCommits(2_000, 1))}
    assert [delay.bucket for delay in tracker.apply(_held("r1", 9_000, {}))] == [8, 7]
    assert tracker.state.ahead == {}


def _held(hash: str, at: int, held: dict[str, int | None] | None) -> ReplicaCommit:
    return ReplicaCommit(hash, at, "m2", "m2", frozenset(), held)


def test_a_table_that_is_held_for_a_week_keeps_no_long_list() -> None:
    commits = [SourceCommit(f"m{minute}", minute * 60_000, ("a",)) for minute in range(1, 10_081)]
    tracker = DelayTracker(DelayState(0, "r0", "m0"), commits)
    now = 10_080 * 60_000
    list(tracker.apply(ReplicaCommit("r1", now, "m10080", "m10080", frozenset(), {"a": 60_000})))
    kept = tracker.state.open["a"]
    assert sum(entry.count for entry in kept) == 10_080
    assert (kept[0].at, len(kept) <= 2 * MAX_OPEN_ENTRIES + 128) == (60_000, True)
    whole = Counter(bucket_of((now - commit.at) / 1000) for commit in commits)
    merged: Counter[int] = Counter()
    for entry in kept:
        merged[bucket_of((now - entry.at) / 1000)] += entry.count
    middle = [sorted(counts.elements())[5_040] for counts in (whole, merged)]
    assert abs(middle[0] - middle[1]) <= middle[0] / 32
