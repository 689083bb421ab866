"""Which snapshots stay, and a table's metadata without the others."""

from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.iceberg.metadata.history import all_snapshots, prune_snapshots, retained_snapshots
from sterna.iceberg.metadata.model import Snapshot, StatisticsFile, TableMetadata

DAY = 86_400_000


def snapshot(number: int, parent: int | None = None, *, at: int = 0, wap: str = "") -> Snapshot:
    return Snapshot(number, parent, at, f"s3://us/{number}.avro", 0, wap_id=wap)


def table(snapshots: list[Snapshot], current: int | None, log: tuple[int, ...] = (), **refs: int) -> TableMetadata:
    heads = refs if current is None else {"main": current, **refs}
    statistics = tuple(StatisticsFile(f"s3://us/{item.snapshot_id}.puffin", 1, item.snapshot_id) for item in snapshots)
    return TableMetadata(2, "u", "s3://us", current, 0, tuple(snapshots), statistics, {}, heads, log)


# 1 <- 2 <- 3 <- 4 (current), 5 orphaned by a rollback to 2, 6 on a branch, 7 staged from 4, 8 staged and published, 9
# no line at all.
LINE = table(
    [
        snapshot(1, at=0),
        snapshot(2, 1, at=1 * DAY),
        snapshot(5, 2, at=2 * DAY),
        snapshot(3, 2, at=3 * DAY),
        snapshot(8, 3, at=3 * DAY, wap="a"),
        snapshot(6, 1, at=4 * DAY),
        snapshot(4, 8, at=10 * DAY),
        snapshot(7, 4, at=11 * DAY, wap="b"),
        snapshot(9, 77, at=7 * DAY),
    ],
    4,
    (1, 2, 5, 2, 3, 8, 4),
    branch=6,
)


def test_full_history_keeps_all_but_staged_snapshots():
    assert retained_snapshots(LINE) == {1, 2, 3, 4, 5, 6, 8, 9}


@pytest.mark.parametrize(
    ("latest", "expected"), [(1, {4}), (2, {4, 8}), (3, {4, 8, 3}), (5, {4, 8, 3, 2, 1}), (99, {4, 8, 3, 2, 1})]
)
def test_latest_counts_along_the_line_of_the_current_snapshot(latest: int, expected: set[int]):
    assert retained_snapshots(LINE, latest=latest) == expected | {6}


@pytest.mark.parametrize(
    ("days", "expected"),
    [(0, {4}), (3, {4, 9}), (7, {4, 9, 3, 8}), (9, {4, 9, 3, 8, 5, 2}), (10, {4, 9, 3, 8, 5, 2, 1})],
)
def test_since_counts_back_from_the_current_snapshot(days: int, expected: set[int]):
    assert retained_snapshots(LINE, since_ms=days * DAY) == expected | {6}


def test_with_both_limits_either_keeps():
    assert retained_snapshots(LINE, latest=3, since_ms=3 * DAY) == {4, 8, 3, 9, 6}


def test_without_a_current_snapshot_limits_keep_the_refs_alone():
    empty = replace(LINE, current_snapshot_id=None, refs={"branch": 6})
    assert retained_snapshots(empty, latest=5) == retained_snapshots(empty, since_ms=99 * DAY) == {6}
    assert retained_snapshots(empty) == {1, 2, 3, 4, 5, 6, 8, 9}
    assert retained_snapshots(table([], None)) == retained_snapshots(table([], None), latest=1) == frozenset()


@pytest.mark.parametrize("published", [{"log": (1, 2)}, {"tag": 2}, {"branch": 3}, {"current": 3}, {"current": 2}])
def test_a_staged_snapshot_counts_once_it_was_published(published: dict[str, int]):
    snapshots = [snapshot(1), snapshot(2, 1, wap="a"), snapshot(3, 2)]
    assert retained_snapshots(table(snapshots, 1, (1,))) == {1, 3}
    assert 2 in retained_snapshots(table(snapshots, **({"current": 1, "log": (1,)} | published)))
    assert 2 in retained_snapshots(table(snapshots, **({"current": 1, "log": (1,)} | published)), since_ms=0)


def test_parents_in_a_circle_end():
    assert retained_snapshots(table([snapshot(1, 2), snapshot(2, 1)], 2), latest=9) == {1, 2}


def test_pruned_takes_out_snapshots_their_statistics_and_the_log_before_them():
    left = prune_snapshots(LINE, frozenset({2, 3, 4, 6, 8}))
    assert [item.snapshot_id for item in left.snapshots] == [2, 3, 8, 6, 4]
    assert [item.snapshot_id for item in left.statistics] == [2, 3, 8, 6, 4]
    assert left.snapshot_log == (2, 3, 8, 4)
    assert left.snapshots[0].parent_id == 1
    assert replace(left, snapshots=LINE.snapshots, statistics=LINE.statistics, snapshot_log=LINE.snapshot_log) == LINE


def test_pruned_changes_nothing_when_all_stay_but_statistics_of_snapshots_that_main_itself_lacks():
    gaps = replace(LINE, snapshot_log=(1, 55, 4))
    more = replace(gaps, statistics=(*LINE.statistics, StatisticsFile("s3://us/x", 1, 55)))
    assert prune_snapshots(gaps, all_snapshots(gaps)) == prune_snapshots(more, all_snapshots(more)) == gaps


def test_what_describes_a_snapshot_that_main_itself_lacks_goes():
    # Java clears the log before any entry whose snapshot is gone, as soon as a snapshot is removed.
    gaps = replace(LINE, snapshot_log=(1, 55, 4), statistics=(StatisticsFile("s3://us/x", 1, 55),))
    left = prune_snapshots(gaps, retained_snapshots(gaps))
    assert (left.snapshot_log, left.statistics) == ((4,), ())


@st.composite
def histories(draw: st.DrawFn) -> TableMetadata:
    """Draw any forest of snapshots, with parents that expired, refs anywhere, and a log that ends at the current
    snapshot.
    """
    ids = draw(st.lists(st.integers(1, 30), unique=True, max_size=9))
    snapshots = [
        snapshot(
            number,
            draw(st.none() | st.sampled_from([*ids[:index], 99])),
            at=draw(st.integers(0, 20)),
            wap=draw(st.sampled_from(["", "", "wap"])),
        )
        for index, number in enumerate(ids)
    ]
    if not ids:
        return table([], None)
    current = draw(st.none() | st.sampled_from(ids))
    refs = draw(st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sampled_from(ids)))
    log = tuple(draw(st.lists(st.sampled_from([*ids, 88]), max_size=6)))
    return table(snapshots, current, () if current is None else (*log, current), **refs)


LIMITS = st.sampled_from(
    [{}, *({"latest": n} for n in (1, 2, 5)), *({"since_ms": n} for n in (0, 5, 20)), {"latest": 2, "since_ms": 5}]
)


def ancestors(metadata: TableMetadata, number: int | None) -> list[int]:
    parents = {item.snapshot_id: item.parent_id for item in metadata.snapshots}
    return [number, *ancestors(metadata, parents[number])] if number in parents else []


@given(histories(), LIMITS)
def test_heads_and_the_current_snapshot_stay_and_a_staged_one_never(metadata: TableMetadata, limits: dict[str, int]):
    kept = retained_snapshots(metadata, **limits)
    published = set(metadata.snapshot_log).union(*(ancestors(metadata, head) for head in metadata.refs.values()))
    staged = {item.snapshot_id for item in metadata.snapshots if item.wap_id} - published
    assert kept <= all_snapshots(metadata)
    assert kept >= set(metadata.refs.values())
    assert not kept & staged
    assert bool(limits) or kept == all_snapshots(metadata) - staged


@given(histories(), LIMITS)
def test_limits_keep_what_they_say_and_no_more(metadata: TableMetadata, limits: dict[str, int]):
    line = ancestors(metadata, metadata.current_snapshot_id)
    times = {item.snapshot_id: item.timestamp_ms for item in metadata.snapshots}
    latest = set(line[: limits.get("latest", 0)])
    since = {
        number
        for number in times
        if line and "since_ms" in limits and times[number] >= times[line[0]] - limits["since_ms"]
    }
    allowed = retained_snapshots(metadata)
    assert (
        not limits or retained_snapshots(metadata, **limits) == (latest | since | set(metadata.refs.values())) & allowed
    )


@given(histories(), LIMITS)
def test_pruned_metadata_names_no_snapshot_that_is_gone(metadata: TableMetadata, limits: dict[str, int]):
    kept = retained_snapshots(metadata, **limits)
    left = prune_snapshots(metadata, kept)
    assert all_snapshots(left) == kept == {item.snapshot_id for item in left.statistics}
    assert left.refs == metadata.refs
    if kept != all_snapshots(metadata):
        assert set(left.snapshot_log) <= kept
    assert left.snapshot_log == metadata.snapshot_log[len(metadata.snapshot_log) - len(left.snapshot_log) :]
    assert metadata.current_snapshot_id is None or left.snapshot_log[-1] == metadata.current_snapshot_id
    assert prune_snapshots(left, kept) == left


def test_refs_and_log_decide_alone_for_every_small_history():
    # Every way that two staged snapshots in a line can be published.
    for logged, tagged in product([(), (1,), (2,), (1, 2)], [None, 1, 2]):
        metadata = table(
            [snapshot(1, wap="a"), snapshot(2, 1, wap="b")], None, logged, **({} if tagged is None else {"t": tagged})
        )
        assert retained_snapshots(metadata) == {*logged, *ancestors(metadata, tagged)}
