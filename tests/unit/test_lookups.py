"""Look-ups whose threads nobody can stop: what hangs takes a place until it ends, and few of them."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

from sterna.concurrency.lookups import Lookups
from sterna.errors import CatalogUnreachable, QueryEnded, QueueFull


class Hanging:
    """A catalog that hangs, and how often it was asked."""

    def __init__(self) -> None:
        self.over, self.calls, self._lock = threading.Event(), 0, threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.calls += 1
        self.over.wait(30)
        return "late"


async def until(there: Any) -> None:
    async with asyncio.timeout(20):
        while not there():
            await asyncio.sleep(0.01)


def played(play: Coroutine[Any, Any, None], *hanging: Hanging) -> None:
    try:
        asyncio.run(play)
    finally:
        for hang in hanging:
            hang.over.set()


def test_what_hangs_for_one_subject_holds_up_no_other_and_keeps_its_places_when_its_askers_go() -> None:
    hang = Hanging()

    async def play() -> None:
        lookups = Lookups[str]("test", 100)
        for _ in range(2):  # who comes after those who went finds no place either
            lookup_tasks = [
                asyncio.create_task(lookups.run(subject, str(number), hang))
                for subject in ("a", "b", "c")
                for number in range(20)
            ]
            await until(lambda: hang.calls == 6)
            assert await lookups.run("d", "1", lambda: "at once") == "at once"
            for task in lookup_tasks:
                task.cancel()
            await asyncio.wait(lookup_tasks)
        assert hang.calls == 6
        hang.over.set()
        assert await lookups.run("a", "new", lambda: "free again") == "free again"
        lookups.close()

    played(play(), hang)


def test_the_same_is_looked_up_once_and_a_fault_is_told_to_all() -> None:
    hang = Hanging()

    def fails() -> str:
        hang()
        raise CatalogUnreachable("dark")

    async def play() -> None:
        lookups = Lookups[str]("test", 100)
        lookup_tasks = [asyncio.create_task(lookups.run("a", "1", fails, f"reader {number}")) for number in range(9)]
        await until(lambda: hang.calls)
        hang.over.set()
        outcomes = await asyncio.gather(*lookup_tasks, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [CatalogUnreachable] * 9 and hang.calls == 1
        lookups.close()

    played(play(), hang)


def test_one_reader_with_many_waits_for_one_with_few() -> None:
    hang, order = Hanging(), list[str]()

    async def play() -> None:
        lookups = Lookups[str]("test", 100)
        first = [asyncio.create_task(lookups.run("a", f"hang {number}", hang, "many")) for number in range(2)]
        await until(lambda: hang.calls == 2)

        async def ask(reader: str, number: int) -> None:
            await lookups.run("a", f"{reader} {number}", lambda: order.append(reader) or "", reader)

        later = [asyncio.create_task(ask("many", number)) for number in range(10)]
        await asyncio.sleep(0)
        later.append(asyncio.create_task(ask("few", 1)))
        await asyncio.sleep(0.05)
        hang.over.set()
        await asyncio.gather(*first, *later)
        assert order.index("few") < 3
        lookups.close()

    played(play(), hang)


def test_too_many_are_refused_and_at_the_end_all_are_told() -> None:
    hang = Hanging()

    async def play() -> None:
        lookups = Lookups[str]("test", 1)
        lookup_tasks = [asyncio.create_task(lookups.run("a", str(number), hang)) for number in range(3)]
        await until(lambda: hang.calls == 2)
        with pytest.raises(QueueFull):
            await lookups.run("a", "one more", hang)
        lookups.close()
        hang.over.set()
        assert {type(outcome) for outcome in await asyncio.gather(*lookup_tasks, return_exceptions=True)} == {
            QueryEnded
        }
        for subject in ("a", "new"):
            with pytest.raises(QueryEnded):
                await lookups.run(subject, "1", hang)

    played(play(), hang)
