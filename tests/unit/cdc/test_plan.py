"""Which drops come into a table next."""

from __future__ import annotations

from dataclasses import replace

import pytest

from sterna.errors import NeedsResync, UnfitSource
from sterna.pipelines.cdc.journal import Part, Segment, TableResync
from sterna.pipelines.cdc.plan import MAX_STEP_BYTES, channel, is_compaction_due, next_work, parse_position

WAY = channel("eu", "shop")


def drop(number: int, *tables: str, complete: bool = False, bytes: int = 10, epoch: int = 1) -> Segment:
    parts = {table: (Part(f"s3://x/{number}", 1, bytes, ()),) for table in tables}
    return Segment(epoch, number, tables=parts, complete=complete)


def plan_step(
    mark: str, drops: list[Segment], *, epoch: int = 1, fresh: bool = False, table: str = "a"
) -> tuple[object, ...]:
    work = next_work(WAY, table, mark, epoch, drops, is_empty=fresh)
    if work is None:
        return ()
    keys = None if work.key_segments is None else [segment.number for segment in work.key_segments]
    return work.step.previous, work.step.position, [segment.number for segment in work.segments], keys


FIRST = [drop(1, "a"), drop(2, "a", "b", complete=True), drop(3, "b"), drop(4, "a")]


def test_nothing_comes_before_the_first_rows_are_complete() -> None:
    assert plan_step("", [drop(1, "a")], fresh=True) == ()
    assert plan_step("1/9", [drop(1, "a", epoch=2)], epoch=2) == ()


def test_first_all_rows_and_then_what_changed() -> None:
    assert plan_step("", FIRST, fresh=True) == ("", "1/2", [1, 2], None)
    assert plan_step("1/2", FIRST) == ("1/2", "1/4", [4], None)
    assert plan_step("1/4", FIRST) == ()


def test_a_table_that_is_read_again_loses_what_the_source_has_not() -> None:
    assert plan_step("1/9", FIRST, epoch=2) == ("1/9", "2/2", [1, 2], [1, 2])
    # One that has no row any more.
    assert plan_step("1/9", FIRST, epoch=2, table="c") == ("1/9", "2/2", [], [1, 2])


def test_many_rows_come_in_several_steps_and_only_the_last_takes_away() -> None:
    large = [drop(1, "a", bytes=MAX_STEP_BYTES), drop(2, "a", bytes=MAX_STEP_BYTES), drop(3, complete=True)]
    assert plan_step("1/9", large, epoch=2) == ("1/9", "2/1", [1], None)
    assert plan_step("2/1", large, epoch=2) == ("2/1", "2/3", [2], [1, 2, 3])


def test_a_table_that_began_without_a_row_comes_with_its_first() -> None:
    drops = [drop(1, complete=True), drop(2, "b"), drop(3, "a")]
    assert plan_step("", drops[:2], fresh=True) == ()
    assert plan_step("", drops, fresh=True) == ("", "1/3", [3], None)


def test_a_mark_follows_though_nothing_comes() -> None:
    drops = [drop(1, "a", complete=True), *(drop(number, "b") for number in range(2, 502))]
    assert plan_step("1/1", drops) == ("1/1", "1/501", [], None)
    assert plan_step("1/1", drops[:-1]) == ()


def test_a_drop_that_is_gone_is_told() -> None:
    with pytest.raises(NeedsResync, match="segment 2 of capture 1 is gone"):
        plan_step("1/1", FIRST[2:])


def test_a_step_of_other_drops_is_another_step() -> None:
    one, other = (next_work(WAY, "a", mark, 1, FIRST) for mark in ("1/2", "1/3"))
    assert one is not None
    assert other is not None
    assert one.step.id != other.step.id


@pytest.mark.parametrize(
    ("mark", "epoch", "whole"),
    [("", 1, True), ("1/9", 2, True), ("1/1", 1, False), ("1/2", 1, False), ("2/1", 2, False)],
)
def test_all_rows_come_again_with_the_step_that_begins_an_epoch(mark: str, epoch: int, whole: bool) -> None:
    for fresh in (False, True):
        work = next_work(WAY, "a", mark, epoch, FIRST, is_empty=fresh)
        assert work is not None
        assert work.step.is_full_reload is whole
    # One that had no row until an epoch was long under way, of which not all drops are there.
    late = next_work(WAY, "c", "", 1, [*FIRST[2:], drop(5, "c")], is_empty=True)
    assert late is not None
    assert not late.step.is_full_reload


def test_marks() -> None:
    assert (parse_position("", "shop"), parse_position("12/345", "shop")) == ((0, 0), (12, 345))
    with pytest.raises(UnfitSource):
        parse_position("12", "shop")


AGAIN = TableResync(4, 6, ("id",), "7:9:", 100)
"""Of a table that was read again amid an epoch, in three drops."""


def again(mark: str, drops: list[Segment], *, epoch: int = 1, fresh: bool = False) -> tuple[object, ...]:
    work = next_work(WAY, "a", mark, epoch, drops, is_empty=fresh, resync=AGAIN)
    if work is None:
        return ()
    keys = None if work.key_segments is None else [segment.number for segment in work.key_segments]
    return (
        work.step.previous,
        work.step.position,
        [segment.number for segment in work.segments],
        keys,
        work.step.is_full_reload,
    )


def test_a_table_that_is_read_again_alone_is_as_those_rows_and_what_came_behind() -> None:
    drops = [drop(1, "a", complete=True), drop(2, "a"), drop(3, "b"), drop(4, "a"), drop(5, "a"), drop(6, "a")]
    drops += [drop(7, "b"), drop(8, "a")]
    for mark in ("1/1", "1/2", "1/3"):  # what came in between counts no more
        assert again(mark, drops) == (mark, "1/6", [4, 5, 6], [4, 5, 6], True)
        assert again(mark, drops[3:]) == (mark, "1/6", [4, 5, 6], [4, 5, 6], True)
    assert again("", drops, fresh=True) == ("", "1/6", [4, 5, 6], None, True)
    assert again("1/6", drops) == ("1/6", "1/8", [8], None, False)
    # A mark of an epoch before, as where the table was stopped in this one's first rows.
    assert again("3/9", [replace(segment, capture_id=4) for segment in drops], epoch=4) == (
        "3/9", "4/6", [4, 5, 6], [4, 5, 6], True
    )  # fmt: skip


def test_rows_that_are_read_again_come_in_several_steps() -> None:
    drops = [
        drop(3, "b"),
        drop(4, "a", bytes=MAX_STEP_BYTES),
        drop(5, "a", bytes=MAX_STEP_BYTES),
        drop(6),
        drop(7, "a"),
    ]
    assert again("1/2", drops) == ("1/2", "1/4", [4], None, True)
    assert again("1/4", drops) == ("1/4", "1/6", [5], [4, 5, 6], False)
    assert again("1/6", drops) == ("1/6", "1/7", [7], None, False)
    # Without all of its rows nothing is taken away.
    with pytest.raises(NeedsResync, match="segment 4 of capture 1"):
        again("1/4", drops[2:])
    with pytest.raises(NeedsResync, match="segment 4 of capture 1 is gone"):
        again("1/2", drops[2:])


def test_a_table_that_is_read_again_and_has_no_row_becomes_empty() -> None:
    assert again("1/2", [drop(4), drop(5), drop(6), drop(7, "b")]) == ("1/2", "1/6", [], [4, 5, 6], True)


@pytest.mark.parametrize(
    ("records", "deleted", "size", "is_due"),
    [
        (1_200, 200, 1_000, False),
        (1_201, 201, 1_000, True),
        (1_201, 201, MAX_STEP_BYTES, True),
        (1_201, 201, MAX_STEP_BYTES + 1, False),  # its rewrite would make changes late
        (1_000, 1_000, 1_000, True),
        (0, 0, 0, False),
    ],
)
def test_a_table_is_compacted_when_a_fifth_of_its_rows_are_dead(
    records: int, deleted: int, size: int, is_due: bool
) -> None:
    totals = {"total-records": records, "total-position-deletes": deleted, "total-files-size": size}
    assert is_compaction_due({name: str(total) for name, total in totals.items()}) is is_due
    assert is_compaction_due({}) is False
