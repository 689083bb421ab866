"""Names of runs and passes: they begin with their time, so that they stand in its order as text."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from typing import Final

_STAMP: Final = "%Y%m%dT%H%M%SZ"
_LETTERS: Final = 8

COLLECT_ID: Final = "collect-"
"""How the names of clean-ups begin, before their time."""
SWEEP_ID: Final = "sweep-"
"""The same of sweeps."""
UPKEEP_ID: Final = "upkeep-"
"""The same of runs of upkeep."""


def new_id(moment: datetime, prefix: str = "") -> str:
    """Return a name for what begins at a moment, with letters that make it the only one of that name.

    Args:
        moment: when it begins.
        prefix: what it is; "" for a sync.
    """
    return f"{prefix}{stamp(moment)}-{uuid.uuid4().hex[:_LETTERS]}"


def new_run_id() -> str:
    """Return a name for a run that begins now."""
    return new_id(datetime.now(UTC))


def stamp(moment: datetime) -> str:
    """Return a moment as names have it, in whole seconds."""
    return f"{moment.astimezone(UTC):{_STAMP}}"


def parse_stamp(text: str) -> datetime:
    """Return the moment that a name has.

    Raises:
        ValueError: it is none.
    """
    return datetime.strptime(text, _STAMP).replace(tzinfo=UTC)


def began(run_id: str) -> datetime:
    """Return when a run began, by its name.

    Raises:
        ValueError: it is no run's name.
    """
    return parse_stamp(run_id.partition("-")[0])
