"""Durations on the command line, such as `90s` or `7d`."""

from __future__ import annotations

from datetime import timedelta

from sterna.config.durations import DURATION_UNITS, MAX_PAST_SECONDS, duration_seconds
from sterna.errors import UsageError


def parse_duration(option: str, text: str) -> timedelta:
    """Return a duration.

    Args:
        option: its name, for the error.
        text: a number with a unit: s, m, h, d, w.

    Raises:
        UsageError: it is none, or longer than a century.
    """
    seconds = duration_seconds(text)
    if seconds is None:
        raise UsageError(f"{option} {text}: expected a duration such as 90s or 7d ({DURATION_UNITS})")
    if seconds > MAX_PAST_SECONDS:
        raise UsageError(f"{option} {text}: longer than a century")
    return timedelta(seconds=seconds)
