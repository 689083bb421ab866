"""The status of consumers, for people: one form for all kinds."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sterna.errors import printable
from sterna.runtime.runner import RunSummary
from sterna.runtime.status import Condition, ReconcilerStatus, active_alarms
from sterna.text.lines import join_lines


def status_text(statuses: Sequence[ReconcilerStatus]) -> str:
    """Return how far consumers are, a line each."""
    return join_lines(_status_line(status) for status in statuses)


def _status_line(status: ReconcilerStatus) -> str:
    parts = [f"{status.lag:.0f} {status.lag_unit} behind"] if status.lag else []
    if status.lag is None and status.position and not status.blocked:
        parts.append("lag unknown")
    # What only says that it is behind adds nothing to the lag.
    parts += [condition_text(condition) for condition in status.conditions if condition.reason != "Behind" or not parts]
    return f"{status.name}: {status.subject}: {', '.join(parts or ['up to date'])}"


def run_text(step_lines: Iterable[str], summary: RunSummary[Any]) -> str:
    """Return what a run of consumers did: lines of its steps, then what has nothing to do, and what failed."""
    reasons = {**summary.idle, **summary.failed}
    return join_lines([*step_lines, *(f"{name}: {reason}" for name, reason in reasons.items())] or ["nothing to do"])


def condition_text(condition: Condition) -> str:
    """Return a condition as a part of a line; an alarm says so."""
    alarm = "ALARM: " if active_alarms([condition]) else ""
    return alarm + printable(condition.message, 4_000)
