"""The status of a consumer as conditions, as Kubernetes has them: one model for all kinds of consumers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any

from sterna.errors import ExitCode, SternaError, first_exit_code


class ConditionType(StrEnum):
    """What a condition says of its consumer."""

    READY = "Ready"
    PROGRESSING = "Progressing"
    BLOCKED = "Blocked"


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
        """The first condition that an alarm is about; None: there is none."""
        return next((condition for condition in self.conditions if condition.type is ConditionType.BLOCKED), None)

    def fields(self) -> dict[str, Any]:
        """Return the status for JSON: its own fields, and the details beside them."""
        own = {name: value for name, value in vars(self).items() if name not in ("details", "subject")}
        return {**own, **self.details, "exit_code": self.exit_code}


def blocked_by(error: SternaError, message: str = "") -> Condition:
    """Return the condition of a consumer that an error stops.

    Args:
        error: why.
        message: for people; "": the error's class and message.
    """
    reason = type(error).__name__
    return Condition(
        ConditionType.BLOCKED,
        reason,
        message or f"{reason}: {error}",
        error.remedy.value,
        exit_code=error.exit_code,
    )
