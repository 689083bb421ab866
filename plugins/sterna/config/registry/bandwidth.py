"""`bandwidth` of a location: a rate, or a timetable of rates in a time zone.

Rates, times and days are written as in rclone's `--bwlimit`, whose timetables are in each machine's own time. Here the
zone is part of the text: processes on several hosts share one limit.

Source: rclone's documentation, "--bwlimit BwTimetable"; `fs/bwtimetable.go` and `fs/sizesuffix.go` of rclone 1.75.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, tzinfo
from typing import Final

_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_DAY_MINUTES: Final = 24 * 60
_WEEK_MINUTES: Final = len(_DAYS) * _DAY_MINUTES
_TIME = re.compile(r"(?:([A-Za-z]+)-)?([01]\d|2[0-3]):([0-5]\d)")
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:([kKmMgGtTpPeE])(?:i[bB]?)?|([bB]))?")
_UNITS: Final = "kmgtpe"
_UNLIMITED: Final = "off"
_MAX_RATE: Final = 1 << 63  # rclone counts in 64 bits with a sign
# Files of the database that are no place's time: the first two are what a machine has set up for itself.
_MACHINE_ZONES: Final = ("localtime", "posixrules", "Factory")


@dataclass(frozen=True)
class Bandwidth:
    """A limit over the week.

    Args:
        slots: minute of the week, from Sunday's midnight on, and the bytes a second from then on; None: no limit.
        zone: whose clock the minutes are of; None where there is one rate for all times.
    """

    slots: tuple[tuple[int, int | None], ...]
    zone: tzinfo | None = None

    @property
    def lowest_rate(self) -> int:
        """The lowest limit of all; 0 where there is none at any time."""
        return min((rate for _, rate in self.slots if rate is not None), default=0)

    @property
    def highest_rate(self) -> int:
        """The highest limit of all; 0 where there is none at any time."""
        return max((rate for _, rate in self.slots if rate is not None), default=0)

    def rate_at(self, time: datetime) -> int | None:
        """Return the bytes a second at a time, which has a zone; None where there is no limit.

        Clocks of the timetable's zone count. Where they are put forward over a time of the table, its rate begins with
        the first minute after it. Where they are put back over one, it begins twice.
        """
        local_time = time.astimezone(self.zone)
        minute = (local_time.isoweekday() % 7) * _DAY_MINUTES + local_time.hour * 60 + local_time.minute
        earlier_slots = [slot for slot in self.slots if slot[0] <= minute]
        return max(earlier_slots or self.slots, key=lambda slot: slot[0])[1]


@dataclass(frozen=True)
class _Entry:
    """A time of a timetable, and the rate from then on.

    Args:
        time: as it is written.
        day: its number, Sunday's is 0; None: each day.
        minute: of the day.
        rate: bytes a second; None: no limit.
    """

    time: str
    day: int | None
    minute: int
    rate: int | None

    @property
    def minutes(self) -> tuple[int, ...]:
        """The minutes of the week at which it begins."""
        days = range(len(_DAYS)) if self.day is None else (self.day,)
        return tuple(day * _DAY_MINUTES + self.minute for day in days)


def parse_bandwidth(text: str) -> Bandwidth:
    """Return the limit that a text states: a rate, or times with rates and then the time zone.

    Of a pair such as `10M:1M`, for what is sent and what is received, the smaller one counts: a copy does both.

    Raises:
        ValueError: rclone wouldn't take a rate, a time or a day; a rate is 0; the zone is missing or unknown; a time is
            written twice, or not in order.
    """
    if not re.search(r"[ ,]", text):
        return Bandwidth(((0, _parse_rates(text)),))
    *words, zone = text.split() or [""]
    if "," in zone:
        raise ValueError(f"{text!r} has times and no time zone: add it at the end, such as Europe/Berlin or UTC")
    entries = [_parse_entry(word) for word in words]
    if not entries:
        raise ValueError(f"{text!r} is no rate, such as 20M, and no timetable, such as 08:00,20M 19:00,off UTC")
    _validate_order(entries)
    slots = {minute: entry.rate for entry in entries for minute in entry.minutes}
    return Bandwidth(tuple(sorted(slots.items())), _parse_zone(zone))


def _parse_entry(word: str) -> _Entry:
    time, comma, rate = word.partition(",")
    if not comma:
        raise ValueError(f"{word!r} is no time and rate, such as 08:00,20M")
    match = _TIME.fullmatch(time)
    if match is None:
        raise ValueError(f"{time!r} is no time, such as 08:00 or Mon-08:00")
    return _Entry(
        time, _parse_day(match[1]) if match[1] else None, 60 * int(match[2]) + int(match[3]), _parse_rates(rate)
    )


def _parse_day(text: str) -> int:
    for number, name in enumerate(_DAYS):
        if text.lower() in (name, name[:3]):
            return number
    raise ValueError(f"{text!r} is no day of the week, such as Mon")


def _validate_order(entries: Sequence[_Entry]) -> None:
    """Refuse a timetable that is ambiguous.

    Entries of one day and those of every day are in order among themselves; a week may begin with any day.
    """
    daily = [entry for entry in entries if entry.day is None]
    dated = [entry for entry in entries if entry.day is not None]
    for group in (daily, dated):
        starts = [entry.minutes[0] for entry in group]
        offsets = [(start - starts[0]) % _WEEK_MINUTES for start in starts] if group is dated else starts
        for number, entry in enumerate(group[1:], 1):
            if starts[number] in starts[:number]:
                raise ValueError(f"{entry.time!r} is in the timetable twice")
            if offsets[number] < offsets[number - 1]:
                raise ValueError(f"{entry.time!r} comes after {group[number - 1].time!r}: put the times in order")
    minutes_of_every_day = {entry.minute: entry.time for entry in daily}
    for entry in dated:
        if entry.minute in minutes_of_every_day:
            every_day = minutes_of_every_day[entry.minute]
            raise ValueError(
                f"{entry.time!r} overlaps {every_day!r}, which is for every day: write that one for the other days"
            )


def _parse_zone(name: str) -> tzinfo:
    from zoneinfo import ZoneInfo  # few registries have a timetable

    if name in _MACHINE_ZONES:
        raise ValueError(f"{name!r} is another time on each machine: name a zone, such as Europe/Berlin or UTC")
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):  # OSError: a folder of the database, such as Europe
        raise ValueError(f"{name!r} is no time zone of this machine's database, such as Europe/Berlin or UTC") from None


def _parse_rates(text: str) -> int | None:
    rates = [rate for rate in map(_parse_rate, text.split(":", 1)) if rate is not None]
    return min(rates, default=None)


def _parse_rate(text: str) -> int | None:
    if text.lower() == _UNLIMITED:
        return None
    match = _SIZE.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no rate, such as 20M, or off")
    unit = 1 if match[3] else 1024 ** (1 + _UNITS.index((match[2] or "k").lower()))
    size = float(match[1]) * unit
    if size >= _MAX_RATE:
        raise ValueError(f"{text!r} is no rate: it is above what rclone counts to, use off for no limit")
    rate = int(size)
    if not rate:
        raise ValueError(f"{text!r} is a rate of 0, at which nothing would be copied: use off for no limit")
    return rate
