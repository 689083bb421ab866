"""In which order a channel's batches are published: the mark, and what was rejected since."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sterna.edges.stores.objects import Objects
from sterna.errors import OutOfTurn, Rewound
from sterna.ingest.model import Batch, split_channel
from sterna.ingest.places import batch_uri, rejected_uri
from sterna.wap.model import Channel, Step, TableState

MOST = 10_000
"""Numbers between the mark and a batch that are looked at, one by one."""


@dataclass(frozen=True)
class Told:
    """What is told of an earlier number, by the inbox and the tracker.

    Args:
        written: it was written down before it was staged.
        rejected: it was rejected.
        settled: the tracker says that nothing more happens to it.
    """

    written: bool
    rejected: bool
    settled: bool


def told_by(objects: Objects, inbox: str, batch: Batch, lowest: int) -> Callable[[int], Told]:
    """Return what tells of an earlier number of a batch's channel.

    Args:
        objects: the stores.
        inbox: the region's inbox.
        batch: the batch.
        lowest: the channel's lowest number that isn't settled, as the tracker says.
    """

    def tell(number: int) -> Told:
        written = objects.size(batch_uri(inbox, batch.lane, number)) is not None
        rejected = objects.size(rejected_uri(inbox, batch.lane, number)) is not None
        return Told(written, rejected, number < lowest)

    return tell


def step_of(batch: Batch, state: TableState | None, told: Callable[[int], Told]) -> Step:
    """Return how a batch is put on `main`: after the mark, where all numbers between were rejected.

    Args:
        batch: the batch.
        state: the table's; None: it isn't there.
        told: what is told of an earlier number.

    Raises:
        OutOfTurn: an earlier number has to be published first.
        Rewound: the tracker has an earlier number as published, and the table's mark doesn't know of it.
    """
    channel = channel_of(batch)
    mark = state.properties.get(channel.mark, "") if state else ""
    applied = int(mark) if mark.isdigit() else 0
    for number in range(batch.number - 1, max(applied, batch.number - MOST), -1):
        _refuse_between(batch, number, told(number), mark)
    # Further down numbers are told of by the tracker alone: below one that is settled all are.
    if batch.number - MOST > applied and not told(batch.number - MOST).settled:
        raise OutOfTurn(f"a batch of channel {batch.lane.channel} far before number {batch.number} comes first")
    after = mark if applied < batch.number else ""
    return Step(batch.id, channel, str(batch.number), after)


def channel_of(batch: Batch) -> Channel:
    """Return the channel of a batch."""
    parts = split_channel(batch.lane.channel)
    assert parts is not None, batch.lane.channel
    return Channel(*parts)


def _refuse_between(batch: Batch, number: int, told: Told, mark: str) -> None:
    # One that was never written down was never staged: it was lost with a tracker, and its drops are in others.
    if told.rejected or (told.settled and not told.written):
        return
    where = f"batch {number} of channel {batch.lane.channel}"
    if told.settled:
        raise Rewound(
            f"{where} was published, and the table's mark is {mark!r}: it was made anew, or rolled back",
            table=batch.lane.table,
            hint="see Rewound in the run book: replay, or accept that the rows are gone",
        )
    raise OutOfTurn(f"{where} comes before number {batch.number}", table=batch.lane.table)
