"""Durations as settings, flags and Airflow's options write them, such as `90s` or `7d`."""

from __future__ import annotations

import re
from typing import Final

DURATION_UNITS: Final = "units s, m, h, d, w"
"""The units, for messages."""
MAX_PAST_SECONDS: Final = 100 * 365 * 86_400
"""Seconds, a century: no clock reaches much further back, and a date before the year 1 can't be computed."""
DURATION_PATTERN: Final = r"([1-9][0-9]{0,8})([smhdw])"
"""The form of a duration's whole text."""
_UNIT_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}
_DURATION = re.compile(DURATION_PATTERN)


def duration_seconds(text: object) -> int | None:
    """Return the seconds of a duration; None where it isn't one: not a text, zero, or without a unit."""
    match = _DURATION.fullmatch(text) if isinstance(text, str) else None
    return int(match[1]) * _UNIT_SECONDS[match[2]] if match else None
