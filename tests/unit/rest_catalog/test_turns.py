"""Commits to one table take turns, in the order of their arrival."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from sterna.errors import BadUpdate, Busy, CommitOutcomeUnknown, RequirementFailed, StaleBase
from sterna.serving.rest_catalog import turns as turns_module
from sterna.serving.rest_catalog.turns import Turns
from tests.support.patching import replace_functions

A, B = ("ns", "a"), ("ns", "b")


def test_turns_come_in_the_order_of_arrival() -> None:
    turns, order = Turns(max_waiting=10), list[int]()

    def work(number: int) -> None:
        with turns.take([A]):
            order.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(10)]
    with turns.take([A]):
        for number, thread in enumerate(threads):
            thread.start()
            while turns.waiting(A) < number + 2:
                pass
    for thread in threads:
        thread.join()
    assert order == list(range(10))
    assert turns.waiting(A) == 0


def test_other_tables_dont_wait_and_two_tables_dont_block_one_another() -> None:
    turns = Turns()

    def both(keys: list[tuple[str, ...]]) -> bool:
        for _ in range(200):
            with turns.take(keys):
                pass
        return True

    with turns.take([A]), turns.take([B]):
        pass
    with ThreadPoolExecutor(2) as pool:
        assert all(pool.map(both, [[A, B], [B, A]]))


def _wait(turns: Turns, key: tuple[str, ...], pool: ThreadPoolExecutor, snapshot_id: int) -> Future[None]:
    """Let another commit wait at a table."""

    def work() -> None:
        with turns.take([key], frozenset({snapshot_id})):
            pass

    count = turns.waiting(key)
    future = pool.submit(work)
    while turns.waiting(key) == count:
        pass
    return future


def test_a_few_wait_at_one_table_and_further_ones_are_refused_at_once() -> None:
    turns = Turns(max_waiting=2)
    with ThreadPoolExecutor(4) as pool:
        with turns.take([A], frozenset({1})):
            waiting = [_wait(turns, A, pool, number) for number in (2, 3)]
            with pytest.raises(Busy, match="too many"), turns.take([A], frozenset({4})):
                pass
            for number in (1, 3):  # the same commit is at work, or waits: its client must not delete its files
                with pytest.raises(CommitOutcomeUnknown), turns.take([A], frozenset({number})):
                    pass
            assert turns.waiting(A) == 3
            with turns.take([B]):
                pass
        for future in waiting:
            future.result()
    assert turns.waiting(A) == 0


def test_those_that_wait_leave_threads_for_other_tables() -> None:
    turns = Turns(max_waiting=2, max_waiting_at_all=3)
    with ThreadPoolExecutor(4) as pool, turns.take([A]), turns.take([B]):
        waiting = [_wait(turns, key, pool, number) for number, key in enumerate((A, A, B))]
        with pytest.raises(Busy), turns.take([B], frozenset({9})):
            pass
        with turns.take([("ns", "c")]):
            first = _wait(turns, ("ns", "c"), pool, 4)  # a table of its own: others' lines are no reason
        first.result()
        assert len(waiting) == 3


def test_who_was_refused_and_comes_again_is_let_in_before_those_that_wait() -> None:
    turns = Turns(max_waiting=1, reserved=60)
    with ThreadPoolExecutor(4) as pool:
        with pytest.raises(StaleBase), turns.take([A], frozenset({1})):
            waiting = _wait(turns, A, pool, 2)
            raise StaleBase("came too late")
        with turns.take([A], frozenset({1})):
            assert not waiting.done()
        waiting.result()


def test_who_waits_for_too_long_is_refused_and_leaves_the_queue() -> None:
    turns = Turns(timeout=0.01)
    with turns.take([A]):
        with pytest.raises(StaleBase, match="take too long"), turns.take([A]):
            pass
        assert turns.waiting(A) == 1
    with turns.take([A]):
        pass


def test_a_commit_that_was_sent_before_is_not_refused_while_that_is_at_work() -> None:
    """Its client would delete files that the first one is about to commit."""
    turns = Turns(timeout=0.01)
    with turns.take([A], frozenset({7, 8})):
        with pytest.raises(CommitOutcomeUnknown, match="was sent before"), turns.take([A], frozenset({7, 8})):
            pass
        with pytest.raises(StaleBase, match="take too long"), turns.take([A], frozenset({9})):
            pass
        assert turns.waiting(A) == 1


def refuse(turns: Turns, snapshot_id: int, error: type[Exception] = RequirementFailed) -> None:
    """Let a commit have its turn, and be refused."""
    with pytest.raises(error), turns.take([A], frozenset({snapshot_id})):
        raise error("it came too late")


@pytest.mark.parametrize("error", [RequirementFailed, StaleBase])
def test_a_refused_commit_has_the_next_turn(error: type[Exception]) -> None:
    turns, order = Turns(reserved=60), list[int]()

    def work(number: int) -> None:
        with turns.take([A], frozenset({number})):
            order.append(number)

    refuse(turns, 1, error)
    others = [threading.Thread(target=work, args=(number,)) for number in (2, 3)]
    for number, thread in enumerate(others):
        thread.start()
        while turns.waiting(A) < number + 1:
            time.sleep(0.001)
    with turns.take([B], frozenset({9})):  # another table has turns of its own
        pass
    refuse(turns, 1, error)  # another region's commit came first once more
    assert order == []
    work(1)
    for thread in others:
        thread.join(60)
    assert order == [1, 2, 3] and turns.waiting(A) == 0


def test_a_turn_that_nobody_takes_runs_out_and_the_next_refusal_keeps_none(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    replace_functions(monkeypatch, turns_module, time, monotonic=lambda: now[0])
    turns = Turns(timeout=0, reserved=60)
    refuse(turns, 1)
    with pytest.raises(StaleBase, match="take too long"), turns.take([A], frozenset({2})):
        pass
    now[0] += 61
    refuse(turns, 2)
    with turns.take([A], frozenset({3})):
        pass
    refuse(turns, 4)
    with pytest.raises(StaleBase, match="take too long"), turns.take([A], frozenset({5})):
        pass


@pytest.mark.parametrize("error", [BadUpdate, OSError])
def test_only_a_commit_that_is_tried_again_keeps_its_turn(error: type[Exception]) -> None:
    turns = Turns(timeout=0, reserved=60)
    refuse(turns, 1, error)
    with turns.take([A], frozenset({2})):
        pass
    with pytest.raises(StaleBase), turns.take([A]):  # it adds no snapshot: who comes again can't be found out
        raise StaleBase("too late")
    with turns.take([A], frozenset({2})):
        pass
    for _ in range(5):  # its client has given up
        refuse(turns, 3)
    with turns.take([A], frozenset({2})):
        pass
