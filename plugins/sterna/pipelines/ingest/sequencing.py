"""The order in which a channel's batches are published: after the applied position, skipping rejected numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from sterna.errors import OutOfTurn, Rewound
from sterna.pipelines.ingest.layout import batch_uri, rejected_uri
from sterna.pipelines.ingest.model import Batch, split_channel
from sterna.pipelines.publish.model import Channel, Step, TableState, position_number
from sterna.storage.objects import Objects

MAX_NUMBERS = 10_000
"""Numbers between the applied position and a batch that are checked one by one."""


@dataclass(frozen=True)
class NumberStatus:
    """The status of an earlier number, by the inbox and the tracker.

    Args:
        is_written: its batch's file exists.
        is_rejected: it was rejected.
        is_settled: it is published or rejected according to the tracker.
    """

    is_written: bool
    is_rejected: bool
    is_settled: bool


def status_reader(objects: Objects, inbox: str, batch: Batch, lowest: int) -> Callable[[int], NumberStatus]:
    """Return a function that reads the status of an earlier number of a batch's channel.

    Args:
        inbox: the region's inbox.
        lowest: the channel's lowest number that isn't settled, by the tracker.
    """

    def read_status(number: int) -> NumberStatus:
        is_written = objects.size(batch_uri(inbox, batch.destination, number)) is not None
        is_rejected = objects.size(rejected_uri(inbox, batch.destination, number)) is not None
        return NumberStatus(is_written, is_rejected, number < lowest)

    return read_status


def build_step(batch: Batch, state: TableState | None, status_of: Callable[[int], NumberStatus]) -> Step:
    """Return how a batch is put on `main`: after the applied position, where all numbers between were rejected.

    Args:
        state: the table's; None: it isn't there.
        status_of: reads the status of an earlier number.

    Raises:
        OutOfTurn: an earlier number has to be published first.
        Rewound: the tracker has an earlier number as published, and the table's applied position is below it.
    """
    channel = parse_channel(batch)
    position = state.position(channel) if state else ""
    applied = position_number(position)
    for number in range(batch.number - 1, max(applied, batch.number - MAX_NUMBERS), -1):
        _require_settled(batch, number, status_of(number), position)
    # Further down the tracker decides alone: below a settled number all are settled.
    if batch.number - MAX_NUMBERS > applied and not status_of(batch.number - MAX_NUMBERS).is_settled:
        raise OutOfTurn(f"a batch of channel {batch.destination.channel} far before number {batch.number} comes first")
    previous = position if applied < batch.number else ""
    return Step(batch.id, channel, str(batch.number), previous)


def parse_channel(batch: Batch) -> Channel:
    """Return the channel of a batch."""
    parts = split_channel(batch.destination.channel)
    assert parts is not None, batch.destination.channel
    return Channel(*parts)


def _require_settled(batch: Batch, number: int, status: NumberStatus, position: str) -> None:
    # A batch without a file was never staged: it was lost with a tracker, and its uploads are in others.
    if status.is_rejected or (status.is_settled and not status.is_written):
        return
    subject = f"batch {number} of channel {batch.destination.channel}"
    if status.is_settled:
        raise Rewound(
            f"{subject} was published, and the table is at position {position!r}: it was recreated, or rolled back",
            table=batch.destination.table,
            hint="see Rewound in the run book: replay, or accept that the rows are gone",
        )
    raise OutOfTurn(f"{subject} comes before number {batch.number}", table=batch.destination.table)
