"""A worker's turns: what he gives back, for how long, and when he ends."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sterna.errors import DatabaseUnreachable, LeaseLost, OutOfTurn, Rewound, SternaError, StoreUnreachable
from sterna.pipelines.ingest import worker as working
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.failover_recovery import Recovery
from sterna.pipelines.ingest.heartbeat import BEATS_PER_LEASE, LEASE_SECONDS, STALL_SECONDS, Heartbeat, heartbeating
from sterna.pipelines.ingest.model import Batch, Destination, State
from sterna.pipelines.ingest.worker import Worker

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def batch(number: int, attempts: int = 1) -> Batch:
    destination = Destination("acme", "acme.t", "eu.acme.default")
    return Batch(f"b{number}", destination, number, State.CLOSED, 1, 1, 1, NOW, "files", NOW, attempts=attempts)


def name(number: int) -> str:
    return f"acme.t eu.acme.default {number}"


class Queue:
    """Batches, and when each may be taken."""

    def __init__(self, *batches: Batch) -> None:
        self.waiting = [(0.0, queued) for queued in batches]
        self.requeued: list[tuple[str, str, float]] = []
        self.signs: list[Heartbeat] = []
        self.left: list[str] = []
        self.now = 0.0
        self.failures_left = 0

    def claim(self, worker: str, lease: float, *, table: str | None = None) -> Batch | None:
        if self.failures_left:
            self.failures_left -= 1
            raise DatabaseUnreachable("dark")
        for place, (when, queued) in enumerate(self.waiting):
            if when <= self.now:
                del self.waiting[place]
                return queued
        return None

    def requeue(self, id: str, worker: str, reason: str, *, delay: float = 0.0) -> None:
        self.requeued.append((id, reason.partition(":")[0], delay))
        self.waiting.append((self.now + delay, batch(int(id[1:]), 2)))

    def clear_delays(self) -> None:
        self.waiting = [(min(when, self.now), queued) for when, queued in self.waiting]

    def send_heartbeat(self, heartbeat: Heartbeat) -> None:
        self.signs.append(heartbeat)

    def deregister(self, worker: str) -> None:
        self.left.append(worker)

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class ScriptedWorker:
    """A worker whose batches end as they are told to: where they are prepared (`early`), or published (`ends`)."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, queue: Queue, *ends: Any, **options: Any) -> None:
        self.queue, self.ends, self.early = queue, list(ends), list[Any]()
        self.done: list[str] = []
        self.steps: list[str] = []

        played = self

        class Consolidation:
            """Ends while it is prepared or published, as it is told to."""

            def __init__(self, step_context: Any, claimed: Batch, name: str, advanced: Callable[[], object]) -> None:
                self.batch, self.advanced = claimed, advanced

            def prepare(self) -> BatchOutcome | None:
                played.steps.append(f"prepare {self.batch.id}")
                return self._ended(played.early)

            def publish(self) -> BatchOutcome:
                played.steps.append(f"publish {self.batch.id}")
                done = BatchOutcome(self.batch.id, self.batch.destination.table, self.batch.number, State.PUBLISHED)
                return self._ended(played.ends) or done

            def _ended(self, ends: list[Any]) -> BatchOutcome | None:
                end = ends.pop(0) if ends else None
                if isinstance(end, BaseException):
                    raise end
                return end(self) if callable(end) else end

            def close(self) -> None:
                played.steps.append(f"close {self.batch.id}")

        monkeypatch.setattr(working, "BatchPublisher", Consolidation)
        step_context: Any = type("Shop", (), {"queue": queue})()
        self.recovery = Recovery()
        self.urgent: list[bool] = []
        self.worker = Worker(
            step_context,
            lambda it: self.done.append(it.batch),
            lambda _: None,
            recover=self._recover,
            sleep=queue.sleep,
            clock=lambda: queue.now,
            **options,
        )

    def _recover(self, urgent: bool) -> Recovery:
        self.urgent.append(urgent)
        return self.recovery if urgent else Recovery(new_primary=self.recovery.new_primary)


Play = Callable[..., ScriptedWorker]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return lambda queue, *ends, **options: ScriptedWorker(monkeypatch, queue, *ends, **options)


def test_once_works_off_what_there_is(play: Play) -> None:
    played = play(Queue(batch(1), batch(2)))
    worked = played.worker.run(once=True)
    assert played.done == ["b1", "b2"]
    assert [outcome.batch for outcome in worked.steps] == played.done
    assert worked.failed == {}


def test_once_takes_what_was_given_back_and_would_be_taken_later(play: Play) -> None:
    """Somebody has mended a setting, and says so: each is tried once, whatever it waits for."""
    queue = Queue(batch(1), batch(2))
    played = play(queue, Rewound("rolled back"), StoreUnreachable("dark"))
    assert list(played.worker.run(once=True).failed) == [name(1), name(2)]
    assert {when for when, _ in queue.waiting} == {300.0, 2.0}
    again = play(queue, Rewound("rolled back"))
    worked = again.worker.run(once=True)
    assert (list(worked.failed), again.done) == ([name(1)], ["b2"])
    assert play(queue).worker.run(0.0).steps == ()  # one that lingers waits for its time


def test_signs_of_life_name_the_batches_that_a_worker_has_and_end_with_it(play: Play) -> None:
    queue, going = Queue(batch(1), batch(2)), threading.Event()
    played = play(queue, lease=0.01)

    def publish(work: Any) -> None:
        assert going.wait(60)

    def prepare(work: Any) -> None:
        while ("b1", "b2") not in {sign.batches for sign in queue.signs}:
            threading.Event().wait(0.001)
        going.set()

    played.ends, played.early = [publish], [None, prepare]
    played.worker.run(once=True)
    assert {sign.name for sign in queue.signs} == {played.worker.name} == set(queue.left)
    assert (queue.signs[0].pid, queue.signs[0].batches, queue.signs[0].lease) == (os.getpid(), (), 0.01)
    assert not [thread for thread in threading.enumerate() if thread.name == "sterna-ingest-heartbeat"]


def test_one_that_gets_no_further_gives_no_sign_until_it_does(play: Play) -> None:
    """Its process lives and its thread for signs, too: of a batch that hangs that says nothing."""
    queue = Queue(batch(1))
    played = play(queue)
    send_heartbeat, reported = played.worker.send_heartbeat, list[tuple[str, ...] | None]()

    def signs() -> None:
        before = len(queue.signs)
        send_heartbeat()
        reported.append(queue.signs[-1].batches if len(queue.signs) > before else None)

    def prepare(work: Any) -> None:
        for seconds in (STALL_SECONDS, 1.0, 10_000.0):
            queue.now += seconds
            signs()
        work.advanced()
        signs()

    played.early = [prepare]
    played.worker.run(once=True)
    assert reported == [("b1",), None, None, ("b1",)]
    assert played.done == ["b1"]


def test_a_tracker_that_does_not_answer_ends_no_signs() -> None:
    signs, calls = threading.Event(), [0]

    def beat() -> None:
        calls[0] += 1
        if calls[0] < 3:
            raise DatabaseUnreachable("not now") if calls[0] == 1 else KeyError("nobody foresaw this")
        signs.set()

    with heartbeating(beat, 0.001):
        assert calls[0] >= 1  # the first one before anything is taken
        assert signs.wait(30)


def test_a_batch_of_a_worker_that_died_is_free_within_a_minute() -> None:
    assert LEASE_SECONDS < 60.0 and BEATS_PER_LEASE >= 3


def test_what_comes_before_is_waited_for(play: Play) -> None:
    played = play(Queue(batch(2), batch(1)), OutOfTurn("first 1"))
    assert played.worker.run(once=True).failed == {}
    assert played.done == ["b1", "b2"]
    assert played.queue.requeued[0][2] < 1


@pytest.mark.parametrize(
    ("error", "wait", "stopped"), [(StoreUnreachable("dark"), 2.0, 0), (Rewound("rolled back"), 300.0, 1)]
)
def test_what_fails_waits_and_the_others_go_on(play: Play, error: SternaError, wait: float, stopped: int) -> None:
    played = play(Queue(batch(1), batch(2), batch(3)), error, OutOfTurn("first 1"))
    worked = played.worker.run(once=True)
    assert played.done == ["b3"]
    assert played.queue.requeued[0] == ("b1", type(error).__name__, wait)
    assert list(worked.failed) == [name(1), name(2)]
    assert len(worked.stopped) == stopped


def test_one_that_waits_for_what_main_has_lost_is_taken_soon(play: Play) -> None:
    played = play(Queue(batch(2), batch(3)), Rewound("1 was published"))
    played.recovery = Recovery(reopened={("acme.t", "eu.acme.default"): (1,)})
    assert played.worker.run(once=True).failed == {}
    assert played.done == ["b3", "b2"]
    assert played.queue.requeued[0][2] < 1
    assert played.urgent.count(True) == 1


def test_a_worker_ends_where_another_region_is_the_primary(play: Play) -> None:
    played = play(Queue(batch(1)))
    played.recovery = Recovery(new_primary="eu")
    assert played.worker.run().moved == "eu"
    assert played.done == []


def test_what_nobody_can_tell_of_waits_for_somebody(play: Play) -> None:
    played = play(Queue(batch(2)), Rewound("1 was published"))
    played.recovery = Recovery(undecided={("acme.t", "eu.acme.default"): "no commit is known"})
    worked = played.worker.run(once=True)
    assert worked.stopped == ("acme.t eu.acme.default", name(2))
    assert "no commit is known" in worked.failed["acme.t eu.acme.default"]


def test_a_batch_that_somebody_else_has_is_left_to_him(play: Play) -> None:
    played = play(Queue(batch(1), batch(2)), LeaseLost("another has it"))
    assert played.worker.run(once=True).failed == {}
    assert (played.done, played.queue.requeued) == (["b2"], [])


def test_what_nobody_foresaw_of_one_batch_ends_no_worker(play: Play) -> None:
    played = play(Queue(batch(1), batch(2)), KeyError("secret"))
    worked = played.worker.run(once=True)
    assert played.done == ["b2"]
    assert played.queue.requeued == [("b1", "EngineError", 2.0)]
    assert "KeyError" in worked.failed[name(1)] and "secret" not in worked.failed[name(1)]


@pytest.mark.parametrize("where", ["early", "ends"])
def test_whatever_ends_it_gives_its_batches_back(play: Play, where: str) -> None:
    played = play(Queue(batch(1), batch(2)))
    getattr(played, where)[:] = [None, KeyboardInterrupt()] if where == "early" else [KeyboardInterrupt()]
    with pytest.raises(KeyboardInterrupt):
        played.worker.run()
    # One is published in the end, by its thread: for the tracker it is settled, and nothing is taken back of it.
    assert sorted(played.queue.requeued) == [(f"b{number}", "the worker was ended", 0.0) for number in (1, 2)]
    assert sorted(step for step in played.steps if "close" in step) == ["close b1", "close b2"]


def test_the_next_batch_is_prepared_while_one_is_published(play: Play) -> None:
    played = play(Queue(batch(1), batch(2), batch(3)))
    going = threading.Event()

    def publish(work: Any) -> None:
        assert going.wait(60), "the next one isn't prepared meanwhile"

    def prepare(work: Any) -> None:
        assert "publish b2" not in played.steps
        going.set()

    played.ends, played.early = [publish], [None, prepare]
    assert played.worker.run(once=True).failed == {}
    assert played.done == ["b1", "b2", "b3"]
    assert [step for step in played.steps if "publish" in step] == ["publish b1", "publish b2", "publish b3"]


def test_one_that_is_rejected_while_it_is_prepared_holds_up_nobody(play: Play) -> None:
    played = play(Queue(batch(1), batch(2), batch(3)))
    played.early = [None, BatchOutcome("b2", "acme.t", 2, State.REJECTED, reason="bad")]
    worked = played.worker.run(once=True)
    assert sorted((outcome.batch, outcome.state) for outcome in worked.steps) == [
        ("b1", State.PUBLISHED), ("b2", State.REJECTED), ("b3", State.PUBLISHED),
    ]  # fmt: skip
    assert "publish b2" not in played.steps


def test_a_dark_tracker_is_waited_for_by_one_that_lingers(play: Play) -> None:
    queue = Queue(batch(1))
    queue.failures_left = 3
    played = play(queue)
    played.worker.run(10.0)
    assert played.done == ["b1"]
    assert queue.now >= 10
    queue.failures_left = 1
    with pytest.raises(DatabaseUnreachable):
        played.worker.run(once=True)
