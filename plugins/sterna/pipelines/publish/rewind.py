"""Setting a channel's applied position by an operator, where it and the table's history contradict one another
(`Rewound`)."""

from __future__ import annotations

from sterna.errors import TableMoved, UsageError
from sterna.pipelines.publish.decide import is_rewound
from sterna.pipelines.publish.model import Channel, TableState, position_number
from sterna.pipelines.publish.spark import SparkTable

_MAX_ATTEMPTS = 10


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
    for _ in range(_MAX_ATTEMPTS):
        loaded = table.refresh()
        require_contradiction(loaded.state, channel, expected, last_published)
        try:
            table.set_position(loaded, channel, position)
        except TableMoved:
            continue
        return
    raise TableMoved("the table was changed by others each time", table=table.name)


def require_contradiction(state: TableState, channel: Channel, expected: str, last_published: int = 0) -> None:
    """See that a position is what an operator saw, and contradicts its table's history.

    Raises:
        UsageError: it isn't, or doesn't.
    """
    position = state.properties.get(channel.position_property, "")
    if position != expected:
        raise UsageError(f"the position of channel {channel} is {position!r}, not {expected!r}: read it again")
    number = position_number(position)
    if not is_rewound(state, channel) and number >= last_published:
        raise UsageError(f"nothing contradicts the position {position!r} of channel {channel}: it stays as it is")
