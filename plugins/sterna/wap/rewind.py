"""What an operator says where a channel's mark and its table's history contradict one another (`Rewound`)."""

from __future__ import annotations

from sterna.errors import TableMoved, UsageError
from sterna.wap.decide import is_rewound
from sterna.wap.model import Channel, TableState
from sterna.wap.spark import SparkTable

_TRIES = 10


def set_mark(table: SparkTable, channel: Channel, mark: str, expected: str, *, lost: int = 0) -> None:
    """Say what of a channel is on `main`: what was put there after it may be put there again.

    Args:
        table: the table.
        channel: the channel.
        mark: what its mark is to be; as it is where the rows that are gone are to stay away.
        expected: what its mark is now, as the operator saw it.
        lost: the number of a batch that is known to have been published; a mark below contradicts it, too.

    Raises:
        UsageError: it isn't, or nothing contradicts it and it can be judged.
        TableMoved: the table was changed by others each time.
    """
    for _ in range(_TRIES):
        look = table.look()
        refuse_needless(look.state, channel, expected, lost)
        try:
            table.set_mark(look, channel, mark)
        except TableMoved:
            continue
        return
    raise TableMoved("the table was changed by others each time", table=table.name)


def refuse_needless(state: TableState, channel: Channel, expected: str, lost: int = 0) -> None:
    """See that a mark is what an operator saw, and contradicts its table's history.

    Raises:
        UsageError: it isn't, or doesn't.
    """
    known = state.properties.get(channel.mark, "")
    if known != expected:
        raise UsageError(f"the mark of channel {channel} is {known!r}, not {expected!r}: look again")
    number = int(known) if known.isdigit() else 0
    if not is_rewound(state, channel) and number >= lost:
        raise UsageError(f"nothing contradicts the mark {known!r} of channel {channel}: it stays as it is")
