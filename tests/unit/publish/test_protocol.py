"""Every snapshot that `put` publishes was audited before, also those that were staged after others went ahead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from sterna.errors import BatchRejected, CatalogStateUnknown, SternaError, TableMoved
from sterna.pipelines.publish.decide import Append, FastForward
from sterna.pipelines.publish.model import Channel, SnapshotState, Step, TableState
from sterna.pipelines.publish.protocol import Change, LoadedTable, TableCommit, publish_step

CHANNEL = Channel("eu", "acme", "rows")
MERGE = Step.of_batch(CHANNEL, 1, 0, is_snapshot_bound=True)
BATCH = Step.of_batch(CHANNEL, 1, 0)


@dataclass
class Table:
    """A table in memory, of which some commits do not go through.

    Args:
        losses: by commit, the error that it ends with; before it another writer appends a snapshot.
    """

    losses: list[Callable[[str], SternaError]]
    state: TableState = field(default_factory=lambda: TableState((SnapshotState(1, None, 1),), 1, {}))

    def refresh(self) -> LoadedTable[TableState]:
        return LoadedTable(self.state, self.state)

    def add(self, *, live: bool, wap_id: str = "") -> None:
        number = len(self.state.snapshots) + 1
        new = SnapshotState(number, self.state.current, number, wap_id=wap_id)
        current = number if live else self.state.current
        self.state = replace(self.state, snapshots=(*self.state.snapshots, new), current=current)

    def commit(self, loaded: LoadedTable[TableState], change: Change, step: Step) -> TableCommit:
        if self.losses:
            self.add(live=True)
            raise self.losses.pop(0)("somebody was first")
        assert isinstance(change, (FastForward, Append))
        return TableCommit(change.snapshot)


def published(table: Table, step: Step, refused: int = 0) -> tuple[int | None, list[int]]:
    """Put a step on a table; return the snapshot that was published, and those that were audited."""
    audited: list[int] = []

    def audit(loaded: LoadedTable[TableState], snapshot: int) -> None:
        audited.append(snapshot)
        if snapshot == refused:
            raise BatchRejected("a row breaks a rule")

    stage = lambda loaded: table.add(live=False, wap_id=step.id)  # noqa: E731
    return publish_step(table, step, stage, audit, sleep=lambda seconds: None).snapshot, audited


@pytest.mark.parametrize("error", [TableMoved, CatalogStateUnknown])
def test_a_merge_that_is_staged_again_is_audited_again(error: type[SternaError]) -> None:
    assert published(Table([error]), MERGE) == (4, [2, 4])
    assert published(Table([error, error]), MERGE) == (6, [2, 4, 6])


def test_one_that_breaks_a_rule_at_the_second_attempt_is_not_published() -> None:
    with pytest.raises(BatchRejected):
        published(Table([TableMoved]), MERGE, refused=4)


def test_an_append_that_goes_on_as_it_was_staged_is_audited_once() -> None:
    assert published(Table([TableMoved, TableMoved]), BATCH) == (2, [2])


@dataclass
class CountedTable(Table):
    """A table that counts how often it is loaded."""

    loads: int = 0

    def refresh(self) -> LoadedTable[TableState]:
        self.loads += 1
        return super().refresh()


def test_a_table_that_was_loaded_behind_the_staging_is_loaded_again_after_a_conflict_alone() -> None:
    """Each load reads the metadata from the store."""
    table = CountedTable([])

    def stage(loaded: LoadedTable[TableState]) -> LoadedTable[TableState]:
        table.add(live=False, wap_id=MERGE.id)
        return table.refresh()

    assert (publish_step(table, MERGE, stage).snapshot, table.loads) == (2, 2)
    table = CountedTable([TableMoved])
    assert (publish_step(table, MERGE, stage, sleep=lambda seconds: None).snapshot, table.loads) == (4, 4)
