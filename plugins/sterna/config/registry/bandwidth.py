"""rclone's bandwidth timetables (`--bwlimit`), as `bandwidth` of a location has them.

Source: rclone's documentation, "--bwlimit BwTimetable"; `fs/bwtimetable.go` and `fs/sizesuffix.go` of rclone 1.75.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

_DAYS: Final = ("sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday")
_DAY_MINUTES: Final = 24 * 60
_TIME = re.compile(r"(?:([A-Za-z]+)-)?([01]\d|2[0-3]):([0-5]\d)")
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(?:([kKmMgGtTpPeE])(?:i[bB]?)?|([bB]))?")
_UNITS: Final = "kmgtpe"
_UNLIMITED: Final = "off"


@dataclass(frozen=True)
class Bandwidth:
    """A limit over the week.

    Args:
        slots: minute of the week, from Sunday's midnight on, and the bytes a second from then on; None: no limit.
    """

    slots: tuple[tuple[int, int | None], ...]

    @property
    def lowest_rate(self) -> int:
        """The lowest limit of all; 0 where there is none at any time."""
        return min((rate for _, rate in self.slots if rate is not None), default=0)

    @property
    def highest_rate(self) -> int:
        """The highest limit of all; 0 where there is none at any time."""
        return max((rate for _, rate in self.slots if rate is not None), default=0)

    def rate_at(self, minute: int) -> int | None:
        """Return the bytes a second at a minute of the week; None where there is no limit."""
        earlier_slots = [slot for slot in self.slots if slot[0] <= minute]
        return max(earlier_slots or self.slots, key=lambda slot: slot[0])[1]


def parse_bandwidth(text: str) -> Bandwidth:
    """Return the limit that a text states.

    Of a pair such as `10M:1M`, for what is sent and what is received, the smaller one counts: a copy does both.

    Raises:
        ValueError: rclone wouldn't take it.
    """
    if not re.search(r"[ ,]", text):
        return Bandwidth(((0, _parse_rates(text)),))
    slots: dict[int, int | None] = {}
    for entry in filter(None, text.split(" ")):
        time, comma, rate = entry.partition(",")
        if not comma:
            raise ValueError(f"{entry!r} is no time and rate, such as 08:00,20M")
        slots |= dict.fromkeys(_parse_minutes(time), _parse_rates(rate))
    if not slots:
        raise ValueError("a bandwidth can't be empty")
    return Bandwidth(tuple(sorted(slots.items())))


def _parse_minutes(text: str) -> Iterator[int]:
    match = _TIME.fullmatch(text)
    if match is None:
        raise ValueError(f"{text!r} is no time, such as 08:00 or Mon-08:00")
    day, minute = match[1], 60 * int(match[2]) + int(match[3])
    day_numbers = [number for number, name in enumerate(_DAYS) if day and day.lower() in (name, name[:3])]
    if day and not day_numbers:
        raise ValueError(f"{day!r} is no day of the week, such as Mon")
    yield from (number * _DAY_MINUTES + minute for number in (day_numbers if day else range(7)))


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
    return int(float(match[1]) * unit) or None
