"""Bytes in flight are bounded: everything is read, in order, and never more at once than there is room for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sterna.errors import ObjectMissing
from sterna.storage.client import TooLarge
from sterna.storage.memory_budget import DEFAULT_OBJECT_BYTES, MemoryBudget, read_bounded


class Files:
    """Objects that notice how many bytes of them are being read at once."""

    def __init__(self, sizes: dict[str, int]) -> None:
        self.sizes = sizes
        self.reads: list[str] = []
        self._reading = 0
        self.most = 0
        self._lock = threading.Lock()

    def read(self, uri: str, *, limit: int) -> bytes:
        size = self.sizes.get(uri)
        if size is None:
            raise ObjectMissing("gone", file=uri)
        if size > limit:
            raise TooLarge.of(size, limit, uri)
        with self._lock:
            self.reads.append(uri)
            self._reading += size
            self.most = max(self.most, self._reading)
        data = bytes(size)
        with self._lock:
            self._reading -= size
        return data


def test_all_come_in_the_order_asked_for() -> None:
    sizes = {f"f{number}": number * 7 % 50 for number in range(200)}
    contents = list(read_bounded(Files(sizes), sizes, MemoryBudget(100), max_concurrency=8))
    assert [(uri, len(data)) for uri, data in contents if isinstance(data, bytes)] == list(sizes.items())


def test_no_more_is_in_flight_than_there_is_room_for() -> None:
    sizes = dict.fromkeys((f"f{number}" for number in range(100)), 10)
    files, room = Files(sizes), MemoryBudget(100)
    for _, _ in read_bounded(files, sizes, room, max_concurrency=32, memory_factor=2):
        assert room.used <= 100
    assert files.most <= 50
    assert room.used == 0


def test_an_object_larger_than_all_the_room_is_read_when_no_other_is() -> None:
    sizes = {"a": 10, "large": 1_000, "b": 10}
    files, room, alone = Files(sizes), MemoryBudget(100), []
    for uri, _ in read_bounded(files, sizes, room, max_concurrency=4):
        alone.append((uri, room.used))
    assert alone[1] == ("large", 100)
    assert room.used == 0


def test_a_size_that_nobody_tells_is_known_before_the_content_is_read() -> None:
    sizes = {"a": 10, "large": 3 * DEFAULT_OBJECT_BYTES, "b": 10}
    files, seen = Files(sizes), []
    unknown = dict.fromkeys(sizes, -1)
    contents = dict(
        read_bounded(
            files,
            unknown,
            MemoryBudget(4 * DEFAULT_OBJECT_BYTES),
            4,
            on_large=lambda uri, size: seen.append((uri, size)),
        )
    )
    assert {uri: len(data) for uri, data in contents.items() if isinstance(data, bytes)} == sizes
    assert ("large", 3 * DEFAULT_OBJECT_BYTES) in seen
    assert files.reads.count("large") == 1


def test_an_object_larger_than_somebody_says_is_not_read() -> None:
    files = Files({"a": 1_000})
    ((_, error),) = read_bounded(files, {"a": 10}, MemoryBudget(100), 4)
    assert isinstance(error, TooLarge)
    assert error.size == 1_000
    assert files.reads == []


def test_an_error_takes_its_turn() -> None:
    sizes = {"a": 10, "b": 10}
    contents = dict(read_bounded(Files(sizes), {"a": 10, "gone": 10, "b": 10}, MemoryBudget(100), 4))
    assert isinstance(contents["gone"], ObjectMissing)
    assert contents["b"] == bytes(10)


@pytest.mark.parametrize("size", [40, 90, 1_000])
def test_many_readers_of_one_room_never_wait_for_one_another_for_ever(size: int) -> None:
    room = MemoryBudget(100)
    sizes = {f"f{number}": size if number % 3 else 10 for number in range(50)}

    def read(with_sizes: bool) -> int:
        wanted = sizes if with_sizes else dict.fromkeys(sizes, -1)
        return sum(1 for _ in read_bounded(Files(sizes), wanted, room, max_concurrency=4))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, [True, False] * 8, timeout=60)) == [50] * 16
    assert room.used == 0


def test_who_stops_early_gives_back_what_was_taken() -> None:
    sizes = dict.fromkeys((f"f{number}" for number in range(100)), 10)
    room = MemoryBudget(100)
    for _ in read_bounded(Files(sizes), sizes, room, max_concurrency=4):
        break
    assert room.used == 0
