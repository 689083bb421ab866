"""Which files are rewritten: small ones together, never what is being written, no more than a day may cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.config.sections.maintenance import MaintenanceRule
from sterna.maintenance.tables.bin_packing import count_output_files, fit_budget, plan_groups
from sterna.maintenance.tables.model import DUE, OVER_BUDGET, TOO_RECENT, Group, LiveFile

NOON = 1_000_000_000
MIB = 1 << 20
RULE = MaintenanceRule.model_validate({"match": ["**"], "target": "100MiB", "min_age": "10m"})


def file(name: int, size: int = 1 * MIB, **more: Any) -> LiveFile:
    base = LiveFile(f"s3://us/{name}", size, 1000, size - 1000, 0, "", "us", "us-lake", 0.0, 0)
    return replace(base, **more)


def chosen(*files: LiveFile) -> list[tuple[str, str, int, int, str]]:
    return [(g.region, g.partition, g.files, g.new_files, g.when) for g in plan_groups(files, RULE, NOON)]


def test_many_small_files_become_one_and_few_stay() -> None:
    assert chosen(*map(file, range(5))) == [("us", "", 5, 1, DUE)]
    assert chosen(*map(file, range(4))) == []
    assert chosen(*(file(n, 36 * MIB) for n in range(3))) == [("us", "", 3, 1, DUE)]
    assert chosen(*(file(n, 74 * MIB) for n in range(2))) == []  # they would be two again
    assert chosen(*(file(n, 80 * MIB) for n in range(9))) == []
    assert chosen(*(file(n, 500 * MIB) for n in range(9))) == []


def test_after_a_conflict_groups_are_smaller_but_never_too_small() -> None:
    files = [file(n) for n in range(40)]
    sizes = {parts: [group.files for group in plan_groups(files, RULE, NOON, parts)] for parts in (1, 4, 16)}
    assert sizes == {1: [40], 4: [10] * 4, 16: [5] * 8}


def test_a_file_many_of_whose_rows_are_deleted_is_written_anew_alone() -> None:
    group = plan_groups([file(1, 90 * MIB, deleted_ratio=0.5), file(2, 90 * MIB, deleted_ratio=0.1)], RULE, NOON)
    assert [(g.files, g.new_files) for g in group] == [(1, 1)]
    assert group[0].new_bytes == pytest.approx(45 * MIB, rel=0.01)


def test_what_deletes_seem_to_take_away_wholly_is_not_free() -> None:
    # Equality deletes: as many as rows, and perhaps none of them meets one.
    (group,) = plan_groups([file(1, column_bytes=-1, deleted_ratio=1.5)], RULE, NOON)
    assert group.new_bytes > 0, "what is written in the end is priced by it"


def test_regions_partitions_and_specs_are_never_mixed() -> None:
    places = [{"region": "eu", "location": "eu-lake"}, {"partition": "day=1"}, {"spec_id": 1}, {}]
    files = [file(10 * at + n, **place) for at, place in enumerate(places) for n in range(5)]
    assert sorted(chosen(*files)) == [
        ("eu", "", 5, 1, DUE),
        ("us", "", 5, 1, DUE),
        ("us", "", 5, 1, DUE),
        ("us", "day=1", 5, 1, DUE),
    ]


@pytest.mark.parametrize(("seconds", "when"), [(599, TOO_RECENT), (600, DUE), (-5, TOO_RECENT)])
def test_what_was_written_within_quiet_waits(seconds: int, when: str) -> None:
    files = [file(n, last_changed_ms=NOON - seconds * 1000 if n == 3 else 0) for n in range(5)]
    assert chosen(*files) == [("us", "", 5, 1, when)]
    # A write into another region's files of the partition counts, too: it is one partition.
    elsewhere = file(9, region="eu", last_changed_ms=NOON - seconds * 1000)
    assert chosen(*map(file, range(5)), elsewhere)[0][-1] == when


def test_the_price_of_a_day_goes_to_what_saves_most() -> None:
    dear = Group("us", "a", 0, 10, 0, 1, 0, {}, 9.0, paths=frozenset("a"))
    cheap = Group("us", "b", 0, 10, 0, 1, 0, {}, 2.0, paths=frozenset("b"))
    quiet = Group("us", "c", 0, 10, 0, 1, 0, {}, 0.1, TOO_RECENT, frozenset("c"))
    affordable, left = fit_budget([dear, cheap, quiet], 10.0)
    assert [group.when for group in affordable] == [OVER_BUDGET, DUE, TOO_RECENT]
    assert left == 8.0
    assert [group.when for group in fit_budget([dear, cheap, quiet], None)[0]] == [DUE, DUE, TOO_RECENT]
    assert [group.when for group in fit_budget([dear], float("-inf"))[0]] == [OVER_BUDGET]


def test_how_many_files_iceberg_makes() -> None:
    assert [count_output_files(size, 100) for size in (1, 99, 100, 109, 150, 176, 205, 250, 280)] == [
        1,
        1,
        1,
        1,
        2,
        2,
        2,
        3,
        3,
    ]


@given(
    st.lists(
        st.builds(
            file,
            st.integers(0, 10**6),
            st.integers(1, 300 * MIB),
            region=st.sampled_from(["us", "eu"]),
            partition=st.sampled_from(["", "p=1"]),
            deleted_ratio=st.floats(0, 2),
            last_changed_ms=st.integers(0, 2 * NOON),
        ),
        max_size=40,
        unique_by=lambda live_file: live_file.path,
    ),
    st.floats(0, 10),
)
def test_no_file_is_in_two_groups_and_no_byte_crosses(files: list[LiveFile], money: float) -> None:
    by_path = {live_file.path: live_file for live_file in files}
    groups = [replace(group, price=group.new_bytes / 1e9) for group in plan_groups(files, RULE, NOON)]
    paths = [path for group in groups for path in group.paths]
    assert len(paths) == len(set(paths))
    for group in groups:
        mine = [by_path[path] for path in group.paths]
        assert {(live_file.region, live_file.spec_id, live_file.partition) for live_file in mine} == {
            (group.region, 0, group.partition)
        }
        assert group.bytes == sum(live_file.size for live_file in mine) >= group.new_bytes >= 0
        young = [
            live_file
            for live_file in files
            if live_file.partition == group.partition and NOON - live_file.last_changed_ms < 600_000
        ]
        assert (group.when == TOO_RECENT) == bool(young)
    affordable, left = fit_budget(groups, money)
    assert left is not None and left >= -1e-9
    assert sum(group.price for group in affordable if group.when == DUE) <= money + 1e-9
