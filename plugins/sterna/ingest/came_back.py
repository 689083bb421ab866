"""Which batches of ingestion stood in commits that a returning region alone had, and whether `main` has them again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from sterna.catalog.model import Commit, key_name
from sterna.errors import SternaError
from sterna.ingest.marks import TableMarks
from sterna.ingest.model import split_channel
from sterna.replica.region import RegionContext
from sterna.wap.model import TableState, numbered_marks


@dataclass(frozen=True)
class CameBack:
    """Batches of one channel that a region alone had.

    Args:
        table: their table.
        channel: their channel.
        first, last: their numbers.
        again: the last of them that is on `main` again; 0: none is.
        problem: why that can't be told now; "": it can.
    """

    table: str
    channel: str = ""
    first: int = 0
    last: int = 0
    again: int = 0
    problem: str = ""

    @property
    def whole(self) -> bool:
        """Whether all of them are on `main` again."""
        return not self.problem and self.again == self.last


def came_back(context: RegionContext, branch: str, commits: Sequence[Commit]) -> list[CameBack]:
    """Return the batches that only some commits had, by the marks of the tables that these changed.

    Args:
        context: a region, whose primary is asked.
        branch: the branch that keeps the commits; its head is the newest.
        commits: the commits, newest first.

    Raises:
        CatalogError: it doesn't answer.
    """
    catalog = context.primary
    before, head = commits[-1].parent, commits[0].hash
    old = None if before == catalog.no_ancestor() else TableMarks(context, branch, before)
    lost, now = TableMarks(context, branch, head), TableMarks(context)
    found: list[CameBack] = []
    for each in catalog.diff(branch, old.head if old else None, head):
        if each.new is None or each.new.metadata_location is None:
            continue
        table = key_name(each.key)
        try:
            states = (old.state(table) if old else None, lost.state(table), now.state(table))
        except SternaError as error:
            found.append(CameBack(table, problem=f"{type(error).__name__}: {error}"))
            continue
        found += _of_table(table, context.registry.region_names, *states)
    return sorted(found, key=lambda one: (one.table, one.channel))


def _of_table(
    table: str, regions: Sequence[str], old: TableState | None, lost: TableState | None, now: TableState | None
) -> Iterator[CameBack]:
    before, there, here = (numbered_marks(state.properties) if state is not None else {} for state in (old, lost, now))
    for channel, last in there.items():
        first, parts = before.get(channel, 0) + 1, split_channel(channel)
        # Others have numbers, too: a flow's mark is a snapshot.
        if parts is not None and parts[0] in regions and last >= first:
            again = min(here.get(channel, 0), last)
            yield CameBack(table, channel, first, last, again if again >= first else 0)
