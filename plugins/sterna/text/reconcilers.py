"""The status of consumers, for people: one form for all kinds."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.errors import printable
from sterna.runtime.status import ReconcilerStatus
from sterna.text.lines import join_lines


def status_text(statuses: Sequence[ReconcilerStatus]) -> str:
    """Return how far consumers are, a line each."""
    return join_lines(_status_line(status) for status in statuses)


def _status_line(status: ReconcilerStatus) -> str:
    parts = [f"{status.lag:.0f} {status.lag_unit} behind"] if status.lag else []
    # What only says that it is behind adds nothing to the lag.
    parts += [
        printable(condition.message, 4_000)
        for condition in status.conditions
        if condition.reason != "Behind" or not status.lag
    ]
    return f"{status.name}: {status.subject}: {', '.join(parts or ['up to date'])}"
