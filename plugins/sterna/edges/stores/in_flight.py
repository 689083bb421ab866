"""Bytes in flight: what many threads have in memory of others' files, bounded by one number."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Protocol

from sterna.errors import SternaError, TooLarge

USUAL: Final = 1 << 20
"""Bytes that an object is taken to have while nobody tells: a larger one is asked for once more, when there is room."""


class Room:
    """A number of bytes that many threads share.

    What is larger than all of it gets all of it: then nobody else has any.

    Args:
        size: how many bytes.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.taken = 0
        self._changed = threading.Condition()

    def take(self, size: int) -> int:
        """Wait until so many bytes are free, and take them; return how many to give back.

        Whoever has taken some may not wait for more: two of them would wait for each other.
        """
        size = min(size, self.size)
        with self._changed:
            self._changed.wait_for(lambda: self.taken + size <= self.size)
            self.taken += size
        return size

    def try_take(self, size: int) -> int | None:
        """Take some bytes if they are free at this moment; None if they are not."""
        size = min(size, self.size)
        with self._changed:
            if self.taken + size > self.size:
                return None
            self.taken += size
        return size

    def give(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self.taken -= size
            self._changed.notify_all()

    @contextmanager
    def of(self, size: int) -> Iterator[None]:
        """Have so many bytes for a while."""
        taken = self.take(size)
        try:
            yield
        finally:
            self.give(taken)


class SizedReader(Protocol):
    """Whatever reads objects by their URI and refuses larger ones unread; see `Objects`."""

    def read(self, uri: str, *, limit: int) -> bytes:
        """Return an object's content; TooLarge where it has more bytes than the limit."""
        ...


@dataclass
class _Wanted:
    uri: str
    size: int
    taken: int = 0


def read_within(
    objects: SizedReader,
    sizes: Mapping[str, int],
    room: Room,
    at_once: int,
    times: int = 1,
    large: Callable[[str, int], None] = lambda uri, size: None,
) -> Iterator[tuple[str, bytes | SternaError]]:
    """Yield each URI with its content, or with the error that kept it from being read, in the order asked for.

    No more is under way, or waits for the reader, than there is room for. An object's size is known before its content
    is read: where it is larger than what was taken for it, the others are put back, and it is read when there is room.

    Args:
        objects: the stores.
        sizes: the objects, with the bytes that somebody says each has; -1 where nobody does.
        room: shared with whoever reads at the same time.
        at_once: how many are read at once.
        times: how many times its size an object takes while it is read and used.
        large: called before an object is read for which others were put back, with its size.
    """
    queue = deque(_Wanted(uri, size if size >= 0 else USUAL) for uri, size in sizes.items())
    under_way: deque[tuple[_Wanted, Future[bytes | SternaError]]] = deque()

    def attempt(item: _Wanted) -> bytes | SternaError:
        try:
            return objects.read(item.uri, limit=item.size)
        except SternaError as error:
            return error

    def fill() -> None:
        while queue and len(under_way) < 2 * at_once:
            wanted = times * queue[0].size
            taken = room.try_take(wanted) if under_way else room.take(wanted)
            if taken is None:
                return
            item = queue.popleft()
            item.taken = taken
            under_way.append((item, pool.submit(attempt, item)))

    def put_back() -> None:
        while under_way:
            item, future = under_way.pop()
            if not future.cancel():
                future.result()
            room.give(item.taken)
            queue.appendleft(item)

    pool = ThreadPoolExecutor(at_once, thread_name_prefix="sterna-within")
    try:
        while queue or under_way:
            fill()
            item, future = under_way.popleft()
            found = future.result()
            if isinstance(found, TooLarge) and sizes[item.uri] < 0 and found.size > item.size:
                room.give(item.taken)
                put_back()
                large(item.uri, found.size)
                queue.appendleft(_Wanted(item.uri, found.size))
                continue
            try:
                yield item.uri, found
            finally:
                del found
                room.give(item.taken)
    finally:
        put_back()
        pool.shutdown(wait=True, cancel_futures=True)
