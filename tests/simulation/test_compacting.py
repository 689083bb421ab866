"""Compaction brings no row back and loses none, whoever deletes meanwhile; bugs put in on purpose are found.

python3 run.py test tests/simulation/test_compacting.py --simulation-seeds 20000     more than the 30 of each run
python3 run.py test tests/simulation/test_compacting.py --simulation-seed 4711       one seed again
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

import pytest

from sterna.errors import CatalogStateUnknown
from sterna.maintenance.tables.model import TableReport
from sterna.spark import rewrite_data_files
from sterna.spark.main_catalog import TableChanged
from sterna.spark.rewrite_data_files import TableRewrite
from tests.simulation.compacting import CompactedWorld, Row, Writers, read
from tests.simulation.store import Violation
from tests.simulation.tables import File
from tests.simulation.turns import Faults

_ENOUGH = 150  # seeds
_ABOUT = 12  # seeds: six of them do
_SHARE = 0.3  # of the seeds that the whole simulation plays
_BLOCKS = 2
# The simulation's own words, and none of what sterna says.
_HAPPENS = (
    *map(Writers.word, Writers.KINDS),
    *("a rewrite:", "a rewrite, without an answer", "thrown away"),
    *("dies before", "dies after", "no answer", "0 in conflict", "1 in conflict"),
)


def play(seed: int) -> CompactedWorld:
    """Play a seed; what goes wrong says which it was."""
    world = CompactedWorld(seed)
    try:
        world.play()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return world


@pytest.mark.parametrize("block", range(_BLOCKS))
def test_rows_stay_whoever_deletes_beside_a_compaction(block: int, pytestconfig: pytest.Config) -> None:
    only, count = pytestconfig.getoption("simulation_seed"), pytestconfig.getoption("simulation_seeds")
    for seed in range(int(count * _SHARE)) if only is None else [only]:
        if only is not None or seed % _BLOCKS == block:
            play(seed)


def under_the_number_that_was_read() -> AbstractContextManager[object]:
    """New files are as old as the snapshot that was read, as Iceberg's default has it (apache/iceberg#10312)."""
    return patch.object(rewrite_data_files, "KEEP_SEQUENCE_NUMBER", True)


def looked_for_conflicts_since_the_head() -> AbstractContextManager[object]:
    """A commit is checked against what came since it was begun, and not since its files were read."""
    real = TableRewrite.replace_files

    def replace_files(self: TableRewrite, *arguments: Any) -> None:
        self.refresh()
        self.snapshot_id = self.table.currentSnapshot().snapshotId()
        real(self, *arguments)

    return patch.object(TableRewrite, TableRewrite.replace_files.__name__, replace_files)


@contextmanager
def no_answer_counts_as_no() -> Iterator[None]:
    """What was written is thrown away when a commit's answer is lost."""
    real = TableRewrite.replace_files

    def replace_files(self: TableRewrite, *arguments: Any) -> None:
        try:
            real(self, *arguments)
        except CatalogStateUnknown as error:
            raise TableChanged(str(error)) from error

    with patch.object(TableRewrite, TableRewrite.replace_files.__name__, replace_files):
        yield


@pytest.mark.parametrize(
    ("bug", "broken", "first"),
    [
        (under_the_number_that_was_read, "compaction: rows are back after a rewrite", 77),
        (looked_for_conflicts_since_the_head, "compaction: rows are back after a rewrite", 2),
        (no_answer_counts_as_no, "compaction: a file is thrown away that main shows", 1),
    ],
)
def test_a_bug_put_in_on_purpose_is_found(
    bug: Callable[[], AbstractContextManager[object]], broken: str, first: int
) -> None:
    """The search begins at the seed that last was the first to find the bug; another change may move it."""
    for seed in range(first, first + _ENOUGH):
        try:
            with bug():
                CompactedWorld(seed).play()
        except Violation as error:
            if str(error).startswith(broken):
                print(f"{bug.__name__}: seed {seed}")
                play(seed)  # without the bug nothing is wrong with it
                return
    pytest.fail(f"{_ENOUGH} seeds did not find that {bug.__name__} breaks {broken!r}")


def test_a_seed_is_the_same_each_time() -> None:
    assert play(1).trace == play(1).trace


def test_the_seeds_get_about() -> None:
    """A simulation in which nothing happens finds nothing."""
    traces = "\n".join("\n".join(play(seed).trace) for seed in range(_ABOUT))
    assert [text for text in _HAPPENS if text not in traces] == []


def upserted(every: int) -> tuple[CompactedWorld, TableReport]:
    """A run over 24 small files, while rows are upserted during the first write of a group, and each so-manieth then.

    A write takes longer than the table has to be quiet.
    """
    world = CompactedWorld(0)
    for _ in range(24):
        world.commit("append", world.writers.append_rows(world.table))
    writes, write_rows = iter(range(1, 1_000)), world.write_rows

    def disturbed(rows: list[Row]) -> File:
        if next(writes) % every == 1 % every:
            world.commit("upsert", world.writers.upsert(world.table))
        world.clock.go_on(60)
        return write_rows(rows)

    world.clock.go_on(60)
    world.actors[0].turn.faults = Faults()
    with patch.object(world, world.write_rows.__name__, disturbed), world.doubles():
        (done,) = world.actors[0].once().tables
    return world, done


def test_a_table_that_is_upserted_all_the_time_is_compacted_between_two_upserts() -> None:
    """Each batch is read when it is written: an upsert costs the batch that it meets, and none after it."""
    world, done = upserted(every=2)
    assert not done.failed
    assert done.groups >= 3
    assert not [line for line in done.left if "starved" in line]
    assert read(world.table.snapshot(world.table.current)) == world.writers.rows


def test_a_table_whose_upserts_meet_every_write_is_called_starved() -> None:
    _, done = upserted(every=1)
    assert done.groups == 0
    assert done.conflicts >= 6
    (line,) = [line for line in done.left if line.startswith("starved: ")]
    assert f"{done.conflicts} groups were rewritten in vain" in line
