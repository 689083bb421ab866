"""A worker's turns: what he gives back, for how long, and when he ends."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from sterna.errors import DatabaseUnreachable, LeaseLost, OutOfTurn, Rewound, SternaError, StoreUnreachable
from sterna.ingest import worker as working
from sterna.ingest.consolidate import Consolidated
from sterna.ingest.model import Batch, Lane, State
from sterna.ingest.worker import Worker

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def batch(number: int, attempts: int = 1) -> Batch:
    lane = Lane("acme", "acme.t", "eu.acme.default")
    return Batch(f"b{number}", lane, number, State.CLOSED, 1, 1, 1, NOW, "files", NOW, attempts=attempts)


class Queue:
    """Batches, and when each may be taken."""

    def __init__(self, *batches: Batch) -> None:
        self.waiting = [(0.0, each) for each in batches]
        self.given_back: list[tuple[str, str, float]] = []
        self.now = 0.0
        self.dark = 0

    def take(self, worker: str, lease: float, *, table: str | None = None) -> Batch | None:
        if self.dark:
            self.dark -= 1
            raise DatabaseUnreachable("dark")
        for place, (when, each) in enumerate(self.waiting):
            if when <= self.now:
                del self.waiting[place]
                return each
        return None

    def give_back(self, id: str, worker: str, reason: str, *, wait: float = 0.0) -> None:
        self.given_back.append((id, reason.partition(":")[0], wait))
        self.waiting.append((self.now + wait, batch(int(id[1:]), 2)))

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Played:
    """A worker whose batches end as they are told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, queue: Queue, *ends: Any) -> None:
        self.queue, self.ends = queue, list(ends)
        self.done: list[str] = []

        def consolidate(shop: Any, each: Batch, name: str) -> Consolidated:
            end = self.ends.pop(0) if self.ends else None
            if isinstance(end, BaseException):
                raise end
            return Consolidated(each.id, each.lane.table, each.number, State.PUBLISHED)

        monkeypatch.setattr(working, "consolidate", consolidate)
        shop: Any = type("Shop", (), {"queue": queue})()
        self.worker = Worker(
            shop, lambda it: self.done.append(it.batch), lambda _: None, sleep=queue.sleep, clock=lambda: queue.now
        )


Play = Callable[..., Played]


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Play:
    return lambda queue, *ends: Played(monkeypatch, queue, *ends)


def test_once_works_off_what_there_is(play: Play) -> None:
    played = play(Queue(batch(1), batch(2)))
    worked = played.worker.run(once=True)
    assert played.done == ["b1", "b2"]
    assert [each.batch for each in worked.done] == played.done
    assert worked.failed == {}


def test_what_comes_before_is_waited_for(play: Play) -> None:
    played = play(Queue(batch(2), batch(1)), OutOfTurn("first 1"))
    assert played.worker.run(once=True).failed == {}
    assert played.done == ["b1", "b2"]
    assert played.queue.given_back[0][2] < 1


@pytest.mark.parametrize(
    ("error", "wait", "stopped"), [(StoreUnreachable("dark"), 2.0, 0), (Rewound("rolled back"), 300.0, 1)]
)
def test_what_fails_waits_and_the_others_go_on(play: Play, error: SternaError, wait: float, stopped: int) -> None:
    played = play(Queue(batch(1), batch(2), batch(3)), error, OutOfTurn("first 1"))
    worked = played.worker.run(once=True)
    assert played.done == ["b3"]
    assert played.queue.given_back[0] == ("b1", type(error).__name__, wait)
    assert list(worked.failed) == ["b1", "b2"]
    assert len(worked.stopped) == stopped


def test_a_batch_that_somebody_else_has_is_left_to_him(play: Play) -> None:
    played = play(Queue(batch(1), batch(2)), LeaseLost("another has it"))
    assert played.worker.run(once=True).failed == {}
    assert (played.done, played.queue.given_back) == (["b2"], [])


def test_what_nobody_foresaw_of_one_batch_ends_no_worker(play: Play) -> None:
    played = play(Queue(batch(1), batch(2)), KeyError("secret"))
    worked = played.worker.run(once=True)
    assert played.done == ["b2"]
    assert played.queue.given_back == [("b1", "EngineError", 2.0)]
    assert "KeyError" in worked.failed["b1"] and "secret" not in worked.failed["b1"]


def test_whatever_ends_it_gives_its_batch_back(play: Play) -> None:
    played = play(Queue(batch(1)), KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        played.worker.run()
    assert played.queue.given_back == [("b1", "the worker was ended", 0.0)]


def test_a_dark_tracker_is_waited_for_by_one_that_lingers(play: Play) -> None:
    queue = Queue(batch(1))
    queue.dark = 3
    played = play(queue)
    played.worker.run(10.0)
    assert played.done == ["b1"]
    assert queue.now >= 10
    queue.dark = 1
    with pytest.raises(DatabaseUnreachable):
        played.worker.run(once=True)
