"""Commits to one table take turns, in the order of their arrival."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sterna.errors import StaleBase
from sterna.serving.rest_catalog.turns import Turns

A, B = ("ns", "a"), ("ns", "b")


def test_turns_come_in_the_order_of_arrival() -> None:
    turns, order = Turns(), list[int]()

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


def test_who_waits_for_too_long_is_refused_and_leaves_the_queue() -> None:
    turns = Turns(timeout=0.01)
    with turns.take([A]):
        with pytest.raises(StaleBase, match="take too long"), turns.take([A]):
            pass
        assert turns.waiting(A) == 1
    with turns.take([A]):
        pass
