"""Names of runs and passes: they begin with their time, so that they sort by it as text."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Final

_TIMESTAMP_FORMAT: Final = "%Y%m%dT%H%M%SZ"
_RANDOM_DIGITS: Final = 8

GC_ID_PREFIX: Final = "collect-"
"""How the names of clean-ups begin, before their time."""
SWEEP_ID_PREFIX: Final = "sweep-"
"""The same of sweeps."""
MAINTENANCE_ID_PREFIX: Final = "upkeep-"
"""The same of runs of maintenance."""


def new_id(started_at: datetime, prefix: str = "") -> str:
    """Return a name for what begins at a moment, with letters that make it the only one of that name.

    Args:
        started_at: when it begins.
        prefix: what it is; "" for a sync.
    """
    return f"{prefix}{format_timestamp(started_at)}-{uuid.uuid4().hex[:_RANDOM_DIGITS]}"


def new_run_id() -> str:
    """Return a name for a run that begins now."""
    return new_id(datetime.now(UTC))


def format_timestamp(timestamp: datetime) -> str:
    """Return a time in the form of names, truncated to seconds."""
    return f"{timestamp.astimezone(UTC):{_TIMESTAMP_FORMAT}}"


def parse_timestamp(text: str) -> datetime:
    """Return the moment that a name has.

    Raises:
        ValueError: it is none.
    """
    return datetime.strptime(text, _TIMESTAMP_FORMAT).replace(tzinfo=UTC)


def parse_start_time(run_id: str) -> datetime:
    """Return when a run began, by its name.

    Raises:
        ValueError: it is no run's name.
    """
    return parse_timestamp(run_id.partition("-")[0])
