"""The index of delays: a file an hour beside the replica, made of the commits of both branches and written for readers.

No decision of a sync reads it. An hour's file has the histograms of the versions that became visible in it, by table
and five minutes; the newest one has the state with which the next hour goes on, too. Each names the file before it and
the one after it, so that a lost one is noticed. All of it can be rebuilt: delete the folder, and the next sync that
publishes does so.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, Final

from sterna.codec import (
    INTEGER,
    TEXT,
    Codec,
    Document,
    Field,
    MalformedRecord,
    Record,
    UnknownFields,
    array_of,
    mapping_of,
    tuple_of,
)
from sterna.replication.replica.delay_tracker import Ahead, Delay, DelayState, OpenCommits
from sterna.replication.replica.delays import HOUR_SECONDS, SLOT_SECONDS, SLOTS, Histogram

HORIZON: Final = timedelta(days=8)
"""How far back an index is rebuilt: a week, and a day beside it."""
_NAME_FORMAT = "%Y-%m-%dT%H"
_SUFFIX = ".json"
_NUMBER = re.compile("0|[1-9][0-9]{0,11}")
_MAX_COUNT = 253_402_300_799_999  # the last millisecond of the year 9999: more than any count
TableSlots = Mapping[int, Histogram]
"""The histograms of one table in an hour, by their part of it."""


class IndexUnusable(ValueError):
    """The index can't be read, or the commits don't continue it; the message says why."""


@dataclass(frozen=True)
class DelayHour:
    """What became visible in one hour.

    Args:
        hour: the hour, as its file is called.
        previous: the hour of the file before; "" where this is the first one.
        after: hash of the replica branch with which that one ended; "" where this is the first one.
        state: with which it ends. What is open there is only in the newest hour: it may be much.
        delays: by table, the histograms of its parts.
        successor: the hour of the file after; "" where this is the newest one.
    """

    hour: str
    previous: str
    after: str
    state: DelayState
    delays: Mapping[str, TableSlots]
    successor: str = ""


def _decode_count(raw: Any, path: str) -> int:
    count = INTEGER.decode(raw, path)
    if not 0 <= count <= _MAX_COUNT:
        raise MalformedRecord(f"{path} is negative, or too large for a time or a count")
    return count


_COUNT: Final = Codec(_decode_count)


def _numbered(codec: Codec[Any], limit: int | None = None) -> Codec[Mapping[int, Any]]:
    """Return the kind of objects whose names are numbers."""
    named = mapping_of(codec)

    def decode(raw: Any, path: str) -> dict[int, Any]:
        decoded = named.decode(raw, path)
        if not all(_NUMBER.fullmatch(name) for name in decoded):
            raise MalformedRecord(f"{path} has a name that is no number, or too large a one")
        numbered = {int(name): element for name, element in decoded.items()}
        if limit is not None and any(number >= limit for number in numbered):
            raise MalformedRecord(f"{path} has a number above {limit - 1}")
        return numbered

    def encode(numbered: Mapping[int, Any]) -> dict[str, Any]:
        encoded = {str(number): numbered[number] for number in sorted(numbered)}
        return encoded if named.encode is None else named.encode(encoded)

    return Codec(decode, encode)


_STATE: Final = Record(
    DelayState,
    (
        Field("begun", _COUNT),
        Field("replica", TEXT),
        Field("source", TEXT),
        Field("open", mapping_of(tuple_of(array_of(OpenCommits, at=_COUNT, count=_COUNT)))),
        Field("ahead", mapping_of(tuple_of(array_of(Ahead, hash=TEXT, at=_COUNT)))),
    ),
)
HOUR: Final = Record(
    DelayHour,
    (
        Field("hour", TEXT),
        Field("previous", TEXT),
        Field("after", TEXT),
        Field("delays", mapping_of(_numbered(_numbered(_COUNT), SLOTS))),
        Field("successor", TEXT, "", omits_default=True),
    ),
    UnknownFields.IGNORE,
    inlined={"state": _STATE},
)
HOUR_FILE: Final = Document(HOUR, sorted=False, ends_with_newline=False)


def milliseconds(time: datetime) -> int:
    """Return a time in milliseconds since 1970."""
    return int(time.timestamp() * 1000)


def hour_of(at_ms: int) -> str:
    """Return the hour of a time in milliseconds since 1970, as its file is called."""
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):{_NAME_FORMAT}}"


def hour_start(hour: str) -> int:
    """Return when an hour begins, in seconds since 1970.

    Raises:
        ValueError: it is no hour.
    """
    return int(datetime.strptime(hour, _NAME_FORMAT).replace(tzinfo=UTC).timestamp())


def hour_name(hour: str) -> str:
    """Return the name of an hour's file."""
    return f"{hour}{_SUFFIX}"


def parse_hour_name(name: str) -> str:
    """Return the hour that a file's name has; "" where it is another file."""
    hour = name.removesuffix(_SUFFIX)
    try:
        return hour if name == hour_name(hour) and hour_of(hour_start(hour) * 1000) == hour else ""
    except ValueError:
        return ""


def first_hour(state: DelayState) -> DelayHour:
    """Return the first hour of an index, which has no delays yet."""
    return DelayHour(hour_of(state.begun), "", "", state, {})


def next_hour(last: DelayHour, hour: str, delays: Iterable[Delay], state: DelayState) -> DelayHour:
    """Return an hour with further delays: the last one, or a new one behind it.

    Args:
        last: the newest hour.
        hour: the hour that the delays belong to; one before the last one's counts as that, where clocks differ.
        delays: what became visible in it.
        state: after them.
    """
    if hour <= last.hour:
        return replace(last, delays=_add_delays(last.delays, delays), state=state)
    return DelayHour(hour, last.hour, last.state.replica, state, _add_delays({}, delays))


def without_open(hour: DelayHour, successor: str = "") -> DelayHour:
    """Return an hour without what is open at its end.

    Args:
        successor: the hour that has it.
    """
    return replace(hour, state=replace(hour.state, open={}, ahead={}), successor=successor or hour.successor)


def find_gap(hours: Sequence[DelayHour]) -> str:
    """Return where an hour between the first and the last is missing, or where two indexes are mixed; "" where none is.

    Args:
        hours: the oldest first.
    """
    for earlier, later in pairwise(hours):
        expected = (earlier.hour, earlier.state.replica, earlier.state.begun)
        joins = (later.previous, later.after, later.state.begun) == expected
        if not joins or earlier.successor not in ("", later.hour):
            return f"the hours {earlier.hour} and {later.hour} don't join"
    return ""


def _add_delays(present: Mapping[str, TableSlots], delays: Iterable[Delay]) -> dict[str, TableSlots]:
    added = dict(present)
    for delay in delays:
        slots = dict(added.get(delay.table, {}))
        slot = delay.shown // 1000 % HOUR_SECONDS // SLOT_SECONDS
        histogram = dict(slots.get(slot, {}))
        histogram[delay.bucket] = histogram.get(delay.bucket, 0) + delay.count
        slots[slot] = histogram
        added[delay.table] = slots
    return added
