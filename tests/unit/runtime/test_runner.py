"""A run of several consumers: what one does touches no other, whatever it raises, and each is due at its own time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from sterna.errors import ExitCode, Gap, MarkMoved, StoreUnreachable, TableMoved
from sterna.runtime.failures import Failures
from sterna.runtime.reconciler import Idle, Reconciler, reconcile
from sterna.runtime.retry_delay import RetryDelay
from sterna.runtime.runner import Runner
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked_by


class Clock:
    """Seconds that pass while a run sleeps."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Scripted(Reconciler[int, int, str]):
    """A consumer whose steps do what the test says.

    Args:
        name: the consumer's.
        act: called with the number of the step; its result is that of the step.
        interval: between two steps.
    """

    def __init__(self, name: str, act: Callable[[int], str | Idle], interval: float = 0.0) -> None:
        self.name, self.interval = name, interval
        self._act = act
        self.calls = 0
        self.failures: list[BaseException] = []
        self.idle = 0
        self._outcome: str | Idle = ""

    def observe(self, previous: int | None = None) -> int:
        self.calls += 1
        return self.calls

    def decide(self, state: int) -> int | Idle:
        outcome = self._act(state)
        self._outcome = outcome
        return outcome if isinstance(outcome, Idle) else state

    def apply(self, state: int, work: int) -> str:
        assert isinstance(self._outcome, str)
        return self._outcome

    def record_idle(self, state: int) -> None:
        self.idle += 1

    def record_failure(self, error: BaseException) -> None:
        self.failures.append(error)


def raises(error: BaseException) -> Callable[[int], str]:
    def act(number: int) -> str:
        raise error

    return act


def test_an_error_of_one_consumer_stops_no_other() -> None:
    clock, lines = Clock(), []
    expired, dark = Scripted("expired", raises(Gap("it is gone"))), Scripted("dark", raises(StoreUnreachable("later")))
    odd = Scripted("odd", raises(ZeroDivisionError()))
    idle, busy = Scripted("idle", lambda number: Idle("up to date")), Scripted("busy", str, interval=30.0)
    consumers = [dark, expired, idle, odd, busy]
    summary = Runner(consumers, lines.append, clock.sleep, clock).run(45)
    assert (summary.steps, summary.idle) == (("1", "2"), {"idle": "up to date"})
    # What no retry cures is tried more seldom. An hour of retries doesn't hide what no retry cures.
    assert (list(summary.errors), summary.stopped) == (["expired", "dark", "odd"], ("expired",))
    assert summary.exit_code == Gap.exit_code
    assert [consumer.calls for consumer in consumers] == [2, 1, 46, 2, 2]
    assert (idle.idle, [type(error) for error in odd.failures]) == (46, [ZeroDivisionError] * 2)
    assert [line for line in lines if line.startswith("dark")] == ["dark: StoreUnreachable: later"], (
        "once, not each time"
    )
    assert summary.fields()["failed"]["odd"].startswith("EngineError: an unexpected error: ZeroDivisionError")


def test_a_consumer_that_recovers_has_no_error() -> None:
    clock = Clock()

    def act(number: int) -> str | Idle:
        if number == 1:
            raise StoreUnreachable("later")
        return "done" if number == 2 else Idle("up to date")

    summary = Runner([Scripted("a", act)], print, clock.sleep, clock).run(31)
    assert (summary.errors, summary.exit_code, set(summary.steps)) == ({}, ExitCode.SUCCESS, {"done"})


def test_one_that_has_more_to_do_goes_on_without_a_wait() -> None:
    clock, seen = Clock(), list[float]()

    def act(number: int) -> str | Idle:
        seen.append(clock.now)
        return str(number) if number < 4 else Idle("up to date")

    Runner([Scripted("a", act)], print, clock.sleep, clock, poll_seconds=5.0).run(12)
    assert seen == [0.0] * 4 + [5.0, 10.0, 12.0]


def test_a_run_until_idle_waits_for_what_comes_soon_and_for_nothing_else() -> None:
    clock = Clock()
    outcomes = ["first", Idle("it comes soon", is_final=False), "second", Idle("up to date")]
    consumers = [Scripted("a", lambda number: outcomes[number - 1]), Scripted("dark", raises(StoreUnreachable("no")))]
    summary = Runner(consumers, print, clock.sleep, clock).run(600, until_idle=True)
    assert (summary.steps, list(summary.errors), clock.now) == (("first", "second"), ["dark"], 1.0)


def test_without_a_time_each_is_run_once() -> None:
    consumers = [Scripted("a", str), Scripted("b", lambda number: Idle("nothing"))]
    summary = Runner(consumers, print).run()
    assert (summary.steps, [consumer.calls for consumer in consumers]) == (("1",), [1, 1])


def test_a_run_that_is_stopped_ends_after_its_step_and_sleeps_no_longer() -> None:
    taken: list[str] = []
    stopping = threading.Event()

    def act(number: int) -> str:
        threading.Timer(0.05, stopping.set).start()
        taken.append("a")
        return "done"

    assert Runner([Scripted("a", act, interval=3600.0)], print, stopping=stopping).run(3600).steps == ("done",)

    def stop(number: int) -> str:
        stopping.set()
        return "done"

    stopping.clear()
    consumers = [Scripted("b", stop), Scripted("c", lambda number: taken.append("c") or "")]
    Runner(consumers, print, stopping=stopping).run(3600)
    assert taken == ["a"]


@pytest.mark.parametrize(("conflicts", "observed"), [(0, 1), (4, 5), (5, 5)])
def test_a_step_is_planned_again_where_another_process_was_first(conflicts: int, observed: int) -> None:
    def act(number: int) -> str:
        if number <= conflicts:
            raise MarkMoved("another one")
        return "mine"

    consumer = Scripted("a", str)
    consumer.apply = lambda state, work: act(state)  # type: ignore[method-assign]
    if conflicts == observed:
        with pytest.raises(MarkMoved):
            reconcile(consumer)
    else:
        assert reconcile(consumer) == "mine"
    assert (consumer.calls, len(consumer.failures)) == (observed, int(conflicts == observed))


@pytest.mark.parametrize("error", [TableMoved("others"), KeyboardInterrupt(), ZeroDivisionError()])
def test_what_ends_a_step_is_recorded(error: BaseException) -> None:
    consumer = Scripted("a", raises(error))
    with pytest.raises(type(error)):
        reconcile(consumer)
    assert consumer.failures == [error]


def test_an_interrupt_is_no_failure_of_a_consumer() -> None:
    failures = Failures(print)
    with pytest.raises(KeyboardInterrupt), failures.recorded("a"):
        raise KeyboardInterrupt
    assert failures.snapshot() == {}


def test_a_status_has_the_exit_code_of_its_first_alarm() -> None:
    behind = Condition(ConditionType.PROGRESSING, "Behind", "behind")
    status = ReconcilerStatus("transform", "dwd", "a → b", "7", 3, "snapshots", (behind, blocked_by(Gap("it is gone"))))
    assert (status.exit_code, status.message) == (Gap.exit_code, "behind; Gap: it is gone")
    assert status.blocked is not None
    assert (status.blocked.reason, status.blocked.remedy) == ("Gap", "stop")
    well: Any = ReconcilerStatus("transform", "dwd", "a → b", "7", 0, "snapshots", (), {"into": "b"})
    assert (well.exit_code, well.blocked) == (ExitCode.SUCCESS, None)
    assert (well.fields()["into"], well.fields()["exit_code"]) == ("b", 0)


def test_a_delay_doubles_up_to_its_limit_and_is_drawn_from_its_upper_half() -> None:
    delay = RetryDelay(1.0, 30.0)
    assert [delay.longest(failures) for failures in (1, 2, 3, 6, 10_000)] == [1.0, 2.0, 4.0, 30.0, 30.0]
    drawn = [delay.draw(3) for _ in range(200)]
    assert min(drawn) >= 2.0 and max(drawn) <= 4.0 and len(set(drawn)) > 1
