"""One status of all consumers: what is an alarm, what is late, and which exit code ends a command, one place decides.

The kind: two commands that judge the same thing differently. So nothing but `sterna.runtime.status` makes or reads a
condition of type Blocked, and nothing but `sterna.cli.output` ends a command.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from sterna.errors import ExitCode, Remedy, TrackerLost, first_exit_code
from sterna.runtime.status import (
    Condition,
    ConditionType,
    ReconcilerStatus,
    active_alarms,
    alarm_lines,
    blocked,
    blocked_by,
    is_overdue,
)
from sterna.text.reconcilers import status_text

_PLUGINS = Path(__file__).parents[3] / "plugins" / "sterna"
WAITING = Condition(ConditionType.PROGRESSING, "Waiting", "2 batches")


@pytest.mark.parametrize(
    ("text", "module"),
    [("ConditionType.BLOCKED", "runtime/status.py"), ("raise typer.Exit(", "cli/output.py"), ("ALARM: ", "text/")],
)
def test_one_module_decides(text: str, module: str) -> None:
    modules = {path.relative_to(_PLUGINS).as_posix() for path in _PLUGINS.rglob("*.py") if text in path.read_text()}
    assert len(modules) == 1 and modules.pop().startswith(module)


@pytest.mark.parametrize(("lag", "is_late"), [(None, True), (0.0, False), (60.0, False), (60.1, True)])
def test_what_is_unknown_is_late(lag: float | None, is_late: bool) -> None:
    assert is_overdue(lag, 60) is is_late


def test_an_alarm_has_its_remedy_its_time_and_an_exit_code() -> None:
    since = datetime(2026, 7, 1, tzinfo=UTC)
    assert blocked("Overdue", "late", since=since) == Condition(
        ConditionType.BLOCKED, "Overdue", "late", "hold", since, ExitCode.HELD
    )
    assert blocked("StepUnfinished", "", Remedy.RETRY).exit_code == ExitCode.RETRY_LATER
    assert blocked("branch", "", exit_code=ExitCode.CHANGED).exit_code == ExitCode.CHANGED
    lost = blocked_by(TrackerLost("gone"), since=since)
    assert (lost.reason, lost.message, lost.remedy, lost.since) == ("TrackerLost", "TrackerLost: gone", "stop", since)
    assert lost.exit_code == TrackerLost.exit_code == ExitCode.FAULTS
    assert blocked_by(TrackerLost("gone"), "no tracker", exit_code=ExitCode.HELD).exit_code == ExitCode.HELD


def test_each_alarm_of_a_status_is_shown_and_no_other_condition() -> None:
    late, full = blocked("Overdue", "late"), blocked("Full", "full")
    statuses = [
        ReconcilerStatus("ingest table", "acme.events", "acme → main", "", 7, "s", (WAITING, late, full)),
        ReconcilerStatus("ingest table", "acme.clicks", "acme → main", "", 0, "s", (WAITING,)),
    ]
    assert active_alarms(statuses[0].conditions) == (late, full) and statuses[0].blocked == late
    assert alarm_lines(statuses) == ("acme.events: late", "acme.events: full")
    assert status_text(statuses).splitlines() == [
        "acme.events: acme → main: 7 s behind, 2 batches, ALARM: late, ALARM: full",
        "acme.clicks: acme → main: 2 batches",
    ]


@pytest.mark.parametrize(("codes", "first"), [((), 0), ((0, 0), 0), ((0, 7, 3), 7)])
def test_the_first_exit_code_that_is_no_success_counts(codes: tuple[int, ...], first: int) -> None:
    assert first_exit_code(codes) == first
