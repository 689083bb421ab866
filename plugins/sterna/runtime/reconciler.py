"""A consumer at a position: it observes, decides on a step, and applies that by compare-and-swap.

Transforms, feature views, tables of change capture, ingestion's workers and its intake are such consumers. Each is a
`Reconciler`; `reconcile` takes one step of it, and `sterna.runtime.runner` takes steps of many.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Generic, TypeVar

from sterna.errors import MarkMoved

log = logging.getLogger(__name__)
S = TypeVar("S")
W = TypeVar("W")
R = TypeVar("R")
_MAX_PLANS = 5
"""How often a step is planned again after another process published first."""


@dataclass(frozen=True)
class Idle:
    """There is nothing to do now.

    Args:
        reason: for messages.
        is_final: a run that ends once nothing is left to do needn't wait for it. False: what it waits for comes soon.
    """

    reason: str
    is_final: bool = True


class Reconciler(ABC, Generic[S, W, R]):
    """One consumer: what it observes, what it decides, and how a step is applied.

    Attributes:
        name: identifies it among those of a run.
        interval: seconds from the start of a step that was applied until the next one.
        retry_seconds: from a failure until the next step.
        stopped_seconds: the same where no retry cures it: an operator may have mended it.
    """

    name: str
    interval: float = 0.0
    retry_seconds: float = 30.0
    stopped_seconds: float = 120.0

    @abstractmethod
    def observe(self, previous: S | None = None) -> S:
        """Return the state that a decision needs, without changes.

        Args:
            previous: the state of the plan that conflicted, where the step is planned again.

        Raises:
            SternaError: a dependency isn't available, or its answer can't be used.
        """

    @abstractmethod
    def decide(self, state: S) -> W | Idle:
        """Return the next step; pure, as far as the state has everything.

        Raises:
            SternaError: the consumer is blocked: the error's remedy says what an operator should do.
        """

    @abstractmethod
    def apply(self, state: S, work: W) -> R:
        """Apply a step exactly once, also when it is repeated or another process applies it at the same time.

        Raises:
            MarkMoved: another process has moved the position: observe and decide again.
            SternaError: it can't be applied now.
        """

    def summarize(self, result: R) -> str:
        """Return what a step did, as a line of progress; "": it isn't worth one."""
        return f"{self.name}: {result}"

    def record_idle(self, state: S) -> None:
        """Record, for other processes, that there is nothing to do."""

    def record_failure(self, error: BaseException) -> None:
        """Record why a step didn't come to its end, for other processes; also of an interrupt."""


def reconcile(reconciler: Reconciler[S, W, R]) -> R | Idle:
    """Take one step of a consumer, and plan it again where another process has moved the position.

    Raises:
        MarkMoved: another process was first each time.
        SternaError: as the consumer's methods.
    """
    try:
        state: S | None = None
        for attempt in range(_MAX_PLANS):
            state = reconciler.observe(state)
            work = reconciler.decide(state)
            if isinstance(work, Idle):
                reconciler.record_idle(state)
                return work
            try:
                return reconciler.apply(state, work)
            except MarkMoved:
                if attempt == _MAX_PLANS - 1:
                    raise
        raise AssertionError("not reached")
    except BaseException as error:
        try:
            reconciler.record_failure(error)
        except Exception:
            log.exception("the failure of %s could not be recorded", reconciler.name)
        raise
