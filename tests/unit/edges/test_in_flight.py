"""Bytes in flight are bounded: everything is read, in order, and never more at once than there is room for."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from sterna.edges.stores.in_flight import USUAL, Room, read_within
from sterna.edges.stores.open_store import TooLarge
from sterna.errors import ObjectMissing


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
            raise TooLarge(size, limit, uri)
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
    found = list(read_within(Files(sizes), sizes, Room(100), at_once=8))
    assert [(uri, len(data)) for uri, data in found if isinstance(data, bytes)] == list(sizes.items())


def test_no_more_is_in_flight_than_there_is_room_for() -> None:
    sizes = dict.fromkeys((f"f{number}" for number in range(100)), 10)
    files, room = Files(sizes), Room(100)
    for _, _ in read_within(files, sizes, room, at_once=32, times=2):
        assert room.taken <= 100
    assert files.most <= 50
    assert room.taken == 0


def test_an_object_larger_than_all_the_room_is_read_when_no_other_is() -> None:
    sizes = {"a": 10, "large": 1_000, "b": 10}
    files, room, alone = Files(sizes), Room(100), []
    for uri, _ in read_within(files, sizes, room, at_once=4):
        alone.append((uri, room.taken))
    assert alone[1] == ("large", 100)
    assert room.taken == 0


def test_a_size_that_nobody_tells_is_known_before_the_content_is_read() -> None:
    sizes = {"a": 10, "large": 3 * USUAL, "b": 10}
    files, seen = Files(sizes), []
    unknown = dict.fromkeys(sizes, -1)
    found = dict(read_within(files, unknown, Room(4 * USUAL), 4, large=lambda uri, size: seen.append((uri, size))))
    assert {uri: len(data) for uri, data in found.items() if isinstance(data, bytes)} == sizes
    assert ("large", 3 * USUAL) in seen
    assert files.reads.count("large") == 1


def test_an_object_larger_than_somebody_says_is_not_read() -> None:
    files = Files({"a": 1_000})
    ((_, found),) = read_within(files, {"a": 10}, Room(100), 4)
    assert isinstance(found, TooLarge)
    assert found.size == 1_000
    assert files.reads == []


def test_an_error_takes_its_turn() -> None:
    sizes = {"a": 10, "b": 10}
    found = dict(read_within(Files(sizes), {"a": 10, "gone": 10, "b": 10}, Room(100), 4))
    assert isinstance(found["gone"], ObjectMissing)
    assert found["b"] == bytes(10)


@pytest.mark.parametrize("size", [40, 90, 1_000])
def test_many_readers_of_one_room_never_wait_for_one_another_for_ever(size: int) -> None:
    room = Room(100)
    sizes = {f"f{number}": size if number % 3 else 10 for number in range(50)}

    def read(told: bool) -> int:
        wanted = sizes if told else dict.fromkeys(sizes, -1)
        return sum(1 for _ in read_within(Files(sizes), wanted, room, at_once=4))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(read, [True, False] * 8, timeout=60)) == [50] * 16
    assert room.taken == 0


def test_who_stops_early_gives_back_what_was_taken() -> None:
    sizes = dict.fromkeys((f"f{number}" for number in range(100)), 10)
    room = Room(100)
    for _ in read_within(Files(sizes), sizes, room, at_once=4):
        break
    assert room.taken == 0
