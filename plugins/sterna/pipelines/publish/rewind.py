"""Setting a channel's applied position by an operator, where it and the table's history contradict one another
(`Rewound`)."""

from __future__ import annotations

from sterna.errors import UsageError
from sterna.pipelines.publish.decide import is_rewound
from sterna.pipelines.publish.model import Channel, TableState, position_number
from sterna.pipelines.publish.protocol import LoadedTable
from sterna.pipelines.publish.spark import JavaBase, SparkTable, change_table


def set_position(table: SparkTable, channel: Channel, position: str, expected: str, *, last_published: int = 0) -> None:
    """Set what of a channel is on `main`: later steps may be published again.

    Args:
        table: the table.
        channel: the channel.
        position: what its position is to be; as it is where the rows that are gone are not loaded again.
        expected: what its position is now, as the operator saw it.
        last_published: the number of a batch that is known to have been published; a position below contradicts it,
            too.

    Raises:
        UsageError: it isn't, or nothing contradicts it and it can be judged.
        TableMoved: the table was changed by others each time.
    """

    def change(loaded: LoadedTable[JavaBase]) -> None:
        require_contradiction(loaded.state, channel, expected, last_published)
        table.set_position(loaded, channel, position)

    change_table(table, change)


def require_contradiction(state: TableState, channel: Channel, expected: str, last_published: int = 0) -> None:
    """See that a position is what an operator saw, and contradicts its table's history.

    Raises:
        UsageError: it isn't, or doesn't.
    """
    position = state.position(channel)
    if position != expected:
        raise UsageError(f"the position of channel {channel} is {position!r}, not {expected!r}: read it again")
    number = position_number(position)
    if not is_rewound(state, channel) and number >= last_published:
        raise UsageError(f"nothing contradicts the position {position!r} of channel {channel}: it stays as it is")
