"""Which batches were in commits that only a returning region had, and whether `main` has them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sterna.catalog.model import Commit, key_name
from sterna.errors import SternaError
from sterna.pipelines.ingest.applied_positions import AppliedPositions
from sterna.pipelines.ingest.model import split_channel
from sterna.pipelines.publish.model import TableState, numbered_positions
from sterna.replication.replica.region import RegionContext
from sterna.runtime.failures import describe_error


@dataclass(frozen=True)
class RecoveredBatches:
    """Batches of one channel that a region alone had.

    Args:
        table: their table.
        channel: their channel.
        first, last: their numbers.
        again: the last of them that is on `main` again; 0: none is.
        problem: why that can't be determined now; "": it can.
    """

    table: str
    channel: str = ""
    first: int = 0
    last: int = 0
    again: int = 0
    problem: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether all of them are on `main` again."""
        return not self.problem and self.again == self.last


def list_recovered(context: RegionContext, branch: str, commits: Sequence[Commit]) -> list[RecoveredBatches]:
    """Return the batches that only some commits had, by the applied positions of the tables that these changed.

    Args:
        context: a region, with the primary's catalog.
        branch: the branch that keeps the commits; its head is the newest.
        commits: the commits, newest first.

    Raises:
        CatalogError: it doesn't answer.
    """
    catalog = context.primary
    before, head = commits[-1].parent, commits[0].hash
    base = None if before == catalog.no_ancestor() else AppliedPositions(context, branch, before)
    lost, current = AppliedPositions(context, branch, head), AppliedPositions(context)
    recovered: list[RecoveredBatches] = []
    for difference in catalog.diff(branch, base.head if base else None, head):
        if difference.new is None or difference.new.metadata_location is None:
            continue
        table = key_name(difference.key)
        try:
            states = (base.state(table) if base else None, lost.state(table), current.state(table))
        except SternaError as error:
            recovered.append(RecoveredBatches(table, problem=describe_error(error)))
            continue
        recovered += _compare_states(table, context.registry.region_names, *states)
    return sorted(recovered, key=lambda batches: (batches.table, batches.channel))


def _compare_states(
    table: str, regions: Sequence[str], base: TableState | None, lost: TableState | None, current: TableState | None
) -> Iterator[RecoveredBatches]:
    base_numbers, lost_numbers, current_numbers = (
        numbered_positions(state.properties) if state is not None else {} for state in (base, lost, current)
    )
    for channel, last in lost_numbers.items():
        first, parts = base_numbers.get(channel, 0) + 1, split_channel(channel)
        # Others have numbers, too: a transform's position is a snapshot.
        if parts is not None and parts[0] in regions and last >= first:
            recovered = min(current_numbers.get(channel, 0), last)
            yield RecoveredBatches(table, channel, first, last, recovered if recovered >= first else 0)
