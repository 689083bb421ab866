"""Takes steps of consumers: of each once, or for some time."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sterna.errors import Remedy, SternaError, first_exit_code
from sterna.runtime.failures import Failures, describe_error
from sterna.runtime.reconciler import Idle, Reconciler, reconcile

R = TypeVar("R")
_POLL_SECONDS = 1.0
_MIN_WAIT_SECONDS = 0.001  # a shorter one may be none, by a clock's resolution
MAX_STEPS = 1_000


@dataclass(frozen=True)
class RunSummary(Generic[R]):
    """What a run did.

    Args:
        steps: the results of the newest 1,000 steps that were applied, in order.
        counts: how many steps were applied, by consumer.
        idle: why there is nothing to do now, by consumer.
        errors: the last error, by consumer; those that no retry cures come first.
    """

    steps: tuple[R, ...]
    idle: Mapping[str, str]
    errors: Mapping[str, SternaError]
    counts: Mapping[str, int] = field(default_factory=dict)

    @property
    def failed(self) -> Mapping[str, str]:
        """The errors as text."""
        return {name: describe_error(error) for name, error in self.errors.items()}

    @property
    def stopped(self) -> tuple[str, ...]:
        """The consumers with an error that no retry cures."""
        return tuple(name for name, error in self.errors.items() if error.remedy is not Remedy.RETRY)

    @property
    def exit_code(self) -> int:
        """The command's exit code: that of the first error."""
        return first_exit_code(error.exit_code for error in self.errors.values())

    def fields(self) -> dict[str, Any]:
        """Return the summary for JSON."""
        return {
            "steps": self.steps,
            "counts": self.counts,
            "idle": self.idle,
            "failed": self.failed,
            "stopped": self.stopped,
            "exit_code": self.exit_code,
        }


class Runner(Generic[R]):
    """Takes steps of consumers in turns; an error of one doesn't stop the others.

    Args:
        reconcilers: the consumers.
        report_progress: called with lines of text.
        sleep: waits for some seconds; by default until `stopping` at the latest.
        clock: seconds, as `time.monotonic`.
        stopping: ends `run` after the step under way, once it is set.
        poll_seconds: from one poll of consumers that have nothing to do until the next.
    """

    def __init__(
        self,
        reconcilers: Sequence[Reconciler[Any, Any, R]],
        report_progress: Callable[[str], object],
        sleep: Callable[[float], object] | None = None,
        clock: Callable[[], float] = time.monotonic,
        stopping: threading.Event | None = None,
        poll_seconds: float = _POLL_SECONDS,
    ) -> None:
        self._reconcilers, self._poll_seconds = reconcilers, poll_seconds
        self._report = report_progress
        self._stopping = stopping or threading.Event()
        self._sleep = sleep or self._stopping.wait
        self._clock = clock
        self._failures = Failures(report_progress)
        self._steps: deque[R] = deque(maxlen=MAX_STEPS)
        self._counts: Counter[str] = Counter()
        self._idle: dict[str, str] = {}
        self._due: dict[str, float] = {}

    def run(self, seconds: float = 0.0, *, until_idle: bool = False) -> RunSummary[R]:
        """Take all steps that are due; consumers that have more to do go on without a wait.

        Args:
            seconds: for how long to poll for more; 0: each consumer is run once.
            until_idle: end before, once no consumer has taken a step, or waits for what comes soon.
        """
        end = self._clock() + seconds
        while True:
            is_idle = True
            for reconciler in self._reconcilers:
                if self._clock() >= self._due.get(reconciler.name, 0.0) and not self._stopping.is_set():
                    is_idle &= not self._reconcile(reconciler)
            if self._stopping.is_set() or self._clock() >= end or (until_idle and is_idle):
                return RunSummary(tuple(self._steps), dict(self._idle), self._failures.snapshot(), self._counts)
            if (wait := self._wait_seconds()) > 0:
                self._sleep(max(min(wait, end - self._clock()), _MIN_WAIT_SECONDS))

    def _wait_seconds(self) -> float:
        """Return the seconds until the next step is due, or the next poll."""
        return min([self._poll_seconds, *(due - self._clock() for due in self._due.values())])

    def _reconcile(self, reconciler: Reconciler[Any, Any, R]) -> bool:
        """Take a step of a consumer; return whether it has more to do now, or soon."""
        name, started_at, has_more = reconciler.name, self._clock(), False
        with self._failures.recorded(name):
            outcome = reconcile(reconciler)
            if isinstance(outcome, Idle):
                self._idle[name], has_more = outcome.reason, not outcome.is_final
                self._due.pop(name, None)  # polling is cheap, so changes are noticed at once
            else:
                self._idle.pop(name, None)
                self._due[name], has_more = started_at + reconciler.interval, True
                self._steps.append(outcome)
                self._counts[name] += 1
                if line := reconciler.summarize(outcome):
                    self._report(line)
        if (error := self._failures.get(name)) is not None:
            self._idle.pop(name, None)
            delay = reconciler.retry_seconds if error.remedy is Remedy.RETRY else reconciler.stopped_seconds
            self._due[name] = self._clock() + delay
        return has_more
