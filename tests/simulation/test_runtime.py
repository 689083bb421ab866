"""Consumers in several processes come to each row once, whatever fails meanwhile; bugs put in on purpose are found.

python3 run.py test tests/simulation/test_runtime.py --simulation-seeds 20000     more than those of each run
python3 run.py test tests/simulation/test_runtime.py --simulation-seed 4711       one seed again
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from sterna.errors import Gap, MarkMoved, SternaError, StoreUnreachable
from sterna.runtime import reconciler as reconciling
from sterna.runtime import runner as running
from sterna.runtime.failures import Failures
from sterna.runtime.reconciler import Idle, Reconciler
from sterna.runtime.runner import Runner
from tests.simulation.store import Violation

_PROCESSES = 3
_TURNS = 6
_RETRY_SECONDS = 30.0
_A_DAY_SECONDS = 86_400.0
_HAPPENS = ("another was first", "no answer", "dark", "blocked", "killed", "idle", "soon", "applied")


class Killed(BaseException):
    """A process that ends at once."""


@dataclass
class Log:
    """Numbered rows, and the target that consumers of all processes bring up to them."""

    rows: list[int] = field(default_factory=list)
    applied: list[int] = field(default_factory=list)
    position: int = 0
    hidden_until: float = 0.0  # another process has the next rows until then

    def swap(self, expected: int, new: int, rows: list[int]) -> None:
        """Publish rows by compare-and-swap on the position."""
        if self.position != expected:
            raise MarkMoved(f"the position is {self.position}, and not {expected}")
        self.position = new
        self.applied += rows


class Consumer(Reconciler[tuple[int, int], tuple[int, int], int]):
    """Takes some rows of the log a step; faults come at random."""

    def __init__(self, name: str, world: World) -> None:
        self.name, self.interval = name, 0.0
        self._world, self._log = world, world.logs[name]

    def observe(self, previous: tuple[int, int] | None = None) -> tuple[int, int]:
        self._world.called(self.name)
        self._world.fault("dark", StoreUnreachable("later"))
        return self._log.position, len(self._log.rows)

    def decide(self, state: tuple[int, int]) -> tuple[int, int] | Idle:
        position, head = state
        self._world.fault("blocked", Gap("it is gone"))
        if position == head:
            self._world.count("idle")
            return Idle("up to date")
        if self._world.now < self._log.hidden_until:
            self._world.count("soon")
            return Idle("another process has the next rows", is_final=False)
        return position, min(head, position + self._world.rng.randint(1, 3))

    def apply(self, state: tuple[int, int], work: tuple[int, int]) -> int:
        start, end = work
        self._world.fault("killed", Killed())
        if self._world.rng.random() < 0.2:
            # Another process takes steps between this one's plan and its commit.
            self._log.swap(self._log.position, len(self._log.rows), self._log.rows[self._log.position :])
            self._world.count("another was first")
        self._log.swap(start, end, self._log.rows[start:end])
        self._world.fault("no answer", StoreUnreachable("the answer is lost"))
        self._world.fault("killed", Killed())
        self._world.count("applied")
        self._world.ended_well[self.name] = True
        return end

    def record_idle(self, state: tuple[int, int]) -> None:
        self._world.ended_well[self.name] = True


class World:
    """Several processes, each with a runner of its own, by one clock."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.logs = {name: Log() for name in ("a", "b")}
        self.happened: Counter[str] = Counter()
        self.now = 0.0
        self.faults = 0.15
        self.failed_at: dict[str, float] = {}
        self.too_early: list[str] = []
        self.ended_well: dict[str, bool] = {}

    def count(self, word: str) -> None:
        self.happened[word] += 1

    def fault(self, word: str, error: BaseException) -> None:
        if self.rng.random() < self.faults:
            self.count(word)
            raise error

    def called(self, name: str) -> None:
        if self.now < self.failed_at.pop(name, -_RETRY_SECONDS) + _RETRY_SECONDS:
            self.too_early.append(name)  # the runner would take an error for the consumer's

    def play(self) -> None:
        """Let processes take turns while the log grows; then let one finish without faults."""
        for _ in range(_TURNS):
            for log in self.logs.values():
                log.rows += range(len(log.rows), len(log.rows) + self.rng.randint(0, 4))
            self.run_process(self.rng.choice((0.0, 20.0, 90.0)))
        self.faults = 0.0
        for log in self.logs.values():
            log.hidden_until = self.now + self.rng.uniform(0.0, _RETRY_SECONDS)
        started_at = self.now
        self.run_process(_A_DAY_SECONDS, until_idle=True)
        if self.now >= started_at + _A_DAY_SECONDS:
            raise Violation("a run until nothing is left to do went on")
        for name, log in self.logs.items():
            if log.applied != log.rows:
                raise Violation(f"{name}: {log.applied} is on main, and {log.rows} in the log")

    def run_process(self, seconds: float, *, until_idle: bool = False) -> running.RunSummary[int] | None:
        self.failed_at.clear()
        self.ended_well.clear()
        runner = Runner([Consumer(name, self) for name in self.logs], print, self.sleep, lambda: self.now)
        end = self.now + seconds
        try:
            with patch.object(Failures, "record", self.recording(Failures.record)):
                summary = runner.run(seconds, until_idle=until_idle)
        except Killed:
            return None
        if self.too_early:
            raise Violation(f"tried again too early after a failure: {self.too_early}")
        if summary.errors.keys() != (failed := {name for name, well in self.ended_well.items() if not well}):
            raise Violation(f"the last steps of {failed} failed, and the summary names {list(summary.errors)}")
        if self.now < end and not until_idle:
            raise Violation("a run ended before its time")
        self.check_rows()
        return summary

    def recording(self, real: Callable[..., None]) -> Callable[..., None]:
        def record(failures: Failures, name: str, error: SternaError) -> None:
            self.failed_at[name], self.ended_well[name] = self.now, False
            real(failures, name, error)

        return record

    def check_rows(self) -> None:
        for name, log in self.logs.items():
            if log.applied != log.rows[: log.position]:
                raise Violation(f"{name}: a row is missing or stands twice: {log.applied}")

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def play(seed: int) -> World:
    """Play a seed; what goes wrong says which it was."""
    world = World(seed)
    try:
        world.play()
    except Exception as error:
        raise AssertionError(f"seed {seed}: {type(error).__name__}: {error}") from error
    return world


def test_each_row_comes_once_whatever_fails(pytestconfig: pytest.Config) -> None:
    only, count = pytestconfig.getoption("simulation_seed"), pytestconfig.getoption("simulation_seeds")
    happened: Counter[str] = Counter()
    for seed in range(max(count, 20)) if only is None else [only]:
        happened.update(play(seed).happened)
    if only is None:
        assert [word for word in _HAPPENS if not happened[word]] == []


@contextmanager
def swap_without_comparison() -> Iterator[None]:
    def swap(self: Log, expected: int, new: int, rows: list[int]) -> None:
        self.position = new
        self.applied += rows

    with patch.object(Log, "swap", swap):
        yield


@contextmanager
def a_step_of_an_old_plan() -> Iterator[None]:
    """A conflict is taken for a step that was applied, and the next run goes on from the plan's end."""

    def reconcile(consumer: Reconciler[Any, Any, Any]) -> Any:
        state = consumer.observe()
        work = consumer.decide(state)
        if isinstance(work, Idle):
            return work
        try:
            return consumer.apply(state, work)
        except MarkMoved:
            log = consumer._log  # type: ignore[attr-defined]
            log.position = max(log.position, work[1])
            log.applied += log.rows[work[0] : work[1]]
            return work[1]

    with patch.object(running, "reconcile", reconcile):
        yield


@contextmanager
def an_error_that_stays() -> Iterator[None]:
    with patch.object(Failures, "clear", lambda self, name: None):
        yield


@contextmanager
def a_failure_that_is_tried_again_at_once() -> Iterator[None]:
    with patch.object(Reconciler, "retry_seconds", 0.0):
        yield


@contextmanager
def what_comes_soon_is_taken_for_nothing() -> Iterator[None]:
    """A run that ends once nothing is left to do leaves rows that another process had for a moment."""

    def reconcile(consumer: Reconciler[Any, Any, Any]) -> Any:
        outcome = reconciling.reconcile(consumer)
        return replace(outcome, is_final=True) if isinstance(outcome, Idle) else outcome

    with patch.object(running, "reconcile", reconcile):
        yield


@contextmanager
def nothing_to_do_is_taken_for_what_comes_soon() -> Iterator[None]:
    def reconcile(consumer: Reconciler[Any, Any, Any]) -> Any:
        outcome = reconciling.reconcile(consumer)
        return replace(outcome, is_final=False) if isinstance(outcome, Idle) else outcome

    with patch.object(running, "reconcile", reconcile):
        yield


@contextmanager
def an_answer_that_was_lost_ends_the_consumer() -> Iterator[None]:
    """Idle for ever once it has failed."""

    def reconcile(consumer: Reconciler[Any, Any, Any]) -> Any:
        world = consumer._world  # type: ignore[attr-defined]
        if world.happened[f"stopped {consumer.name}"]:
            return Idle("stopped")
        try:
            return reconciling.reconcile(consumer)
        except SternaError:
            world.count(f"stopped {consumer.name}")
            raise

    with patch.object(running, "reconcile", reconcile):
        yield


@pytest.mark.parametrize(
    "bug",
    [
        swap_without_comparison,
        a_step_of_an_old_plan,
        an_error_that_stays,
        a_failure_that_is_tried_again_at_once,
        what_comes_soon_is_taken_for_nothing,
        nothing_to_do_is_taken_for_what_comes_soon,
        an_answer_that_was_lost_ends_the_consumer,
    ],
)
def test_a_planted_bug_is_found(bug: Callable[[], Any]) -> None:
    with bug(), pytest.raises(AssertionError, match="Violation"):
        for seed in range(40):
            play(seed)
