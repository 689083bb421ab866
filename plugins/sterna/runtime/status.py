"""The status of a consumer as conditions, as Kubernetes has them: one model for all kinds of consumers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sterna.errors import ExitCode, Remedy, SternaError, first_exit_code
from sterna.runtime.failures import describe_error


class ConditionType(StrEnum):
    """What a condition says of its consumer."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    BLOCKED = "Blocked"
    """It needs an operator: made by `blocked` and `blocked_by`, and read by `active_alarms`, alone."""


@dataclass(frozen=True)
class Condition:
    """One thing that holds of a consumer now.

    Args:
        type: whether it is up to date, has steps to take, or can't.
        reason: one word: the class of an error, or what an alarm is about.
        message: for people.
        remedy: what an operator should do about it, as an error's; "": nothing.
        since: when it began; None: unknown.
        exit_code: of a command that reports it.
    """

    type: ConditionType
    reason: str
    message: str
    remedy: str = ""
    since: datetime | None = None
    exit_code: int = ExitCode.SUCCESS


@dataclass(frozen=True)
class ReconcilerStatus:
    """How far one consumer is, and what is wrong with it.

    Args:
        kind: of consumer, such as `transform`.
        name: identifies it in its kind.
        subject: what it follows, and where to: for people.
        position: what it has applied; "": nothing yet.
        lag: how far it is behind; 0: up to date; None: unknown.
        lag_unit: such as `snapshots` or `s`.
        conditions: what holds of it now.
        details: what only its kind has.
    """

    kind: str
    name: str
    subject: str
    position: str = ""
    lag: float | None = None
    lag_unit: str = ""
    conditions: tuple[Condition, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def exit_code(self) -> int:
        """The exit code of a command that reports it: that of the first condition that has one."""
        return first_exit_code(condition.exit_code for condition in self.conditions)

    @property
    def message(self) -> str:
        """The messages of its conditions."""
        return "; ".join(condition.message for condition in self.conditions)

    @property
    def blocked(self) -> Condition | None:
        """The first condition that is an alarm; None: none is."""
        return next(iter(active_alarms(self.conditions)), None)

    def fields(self) -> dict[str, Any]:
        """Return the status for JSON: its own fields, and the details beside them."""
        own = {name: value for name, value in vars(self).items() if name not in ("details", "subject")}
        return {**own, **self.details, "exit_code": self.exit_code}


def active_alarms(conditions: Iterable[Condition]) -> tuple[Condition, ...]:
    """Return the conditions that need an operator: the one rule of commands, tasks, pages and metrics."""
    return tuple(condition for condition in conditions if condition.type is ConditionType.BLOCKED)


def alarm_lines(statuses: Iterable[ReconcilerStatus]) -> tuple[str, ...]:
    """Return a line with the consumer's name for each alarm."""
    return tuple(f"{status.name}: {alarm.message}" for status in statuses for alarm in active_alarms(status.conditions))


def is_overdue(lag_seconds: float | None, max_seconds: float) -> bool:
    """Return whether something is later than it may be; where its lag is unknown, it is."""
    return lag_seconds is None or lag_seconds > max_seconds


def blocked(
    reason: str,
    message: str,
    remedy: Remedy = Remedy.HOLD,
    *,
    since: datetime | None = None,
    exit_code: int | None = None,
) -> Condition:
    """Return a condition that needs an operator.

    Args:
        reason, message, since: as in `Condition`.
        exit_code: of a command that reports it; None: the remedy's.
    """
    code = remedy.exit_code if exit_code is None else exit_code
    return Condition(ConditionType.BLOCKED, reason, message, remedy.value, since, code)


def blocked_by(
    error: SternaError, message: str = "", *, since: datetime | None = None, exit_code: int | None = None
) -> Condition:
    """Return the condition of a consumer that an error stops.

    Args:
        error: why.
        message: for people; "": the error's class and message.
        since: as in `Condition`.
        exit_code: of a command that reports it; None: the error's.
    """
    reason, code = type(error).__name__, error.exit_code if exit_code is None else exit_code
    return blocked(reason, message or describe_error(error), error.remedy, since=since, exit_code=code)
