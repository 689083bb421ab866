"""Bytes in flight: what many threads have in memory of others' files, bounded by one number."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from sterna.edges.stores.open_store import TooLarge
from sterna.errors import SternaError
from sterna.registry.folders import own_root
from sterna.registry.mapping import Mapping as UriMapping

_T = TypeVar("_T")
_R = TypeVar("_R")
USUAL: Final = 1 << 20
"""Bytes that an object is taken to have while nobody tells; a larger one is asked for once more."""


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


def check_size(mapping: UriMapping, uri: str, size: int, limit: int | None) -> None:
    """Refuse an object that is larger than the region's limit, or than its reader wants; nothing of it was read.

    What sterna itself keeps beside the replica has no limit.

    Raises:
        OverLimit, TooLarge: it is.
    """
    region = mapping.region
    if not uri.startswith(own_root(region.replica_root)):
        region.limits.check("file_bytes", size, "bytes of a file", uri)
    if limit is not None and size > limit:
        raise TooLarge.of(size, limit, uri)


class SizedReader(Protocol):
    """Whatever reads objects by their URI and refuses larger ones unread; see `Objects`."""

    def read(self, uri: str, *, limit: int) -> bytes:
        """Return an object's content; TooLarge where it has more bytes than the limit."""
        ...


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
        large: called before an object is read, with about how many bytes it takes.
    """
    with _Window(objects, sizes, room, at_once, times, large) as window:
        while (found := window.next()) is not None:
            item, data = found
            if isinstance(data, TooLarge) and sizes[item.uri] < 0 and data.size > item.size:
                window.put_back(replace(item, size=data.size))
                continue
            try:
                yield item.uri, data
            finally:
                room.give(item.taken)


@dataclass(frozen=True)
class _Wanted:
    uri: str
    size: int
    taken: int = 0


class _Window:
    """What is under way, in the order asked for; arguments as in `read_within`."""

    def __init__(
        self,
        objects: SizedReader,
        sizes: Mapping[str, int],
        room: Room,
        at_once: int,
        times: int,
        large: Callable[[str, int], None],
    ) -> None:
        self._objects, self._room, self._times, self._large = objects, room, times, large
        self._most = 2 * at_once
        self._queue = deque(_Wanted(uri, size if size >= 0 else USUAL) for uri, size in sizes.items())
        self._under_way: deque[tuple[_Wanted, Future[bytes | SternaError]]] = deque()
        # One alone is read where it is asked for.
        self._pool = ThreadPoolExecutor(at_once, thread_name_prefix="sterna-within") if len(sizes) > 1 else None

    def __enter__(self) -> _Window:
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def next(self) -> tuple[_Wanted, bytes | SternaError] | None:
        """Return the next object with its content, whose room the caller gives back; None after the last."""
        self._fill()
        if not self._under_way:
            return None
        item, future = self._under_way.popleft()
        try:
            return item, future.result()
        except BaseException:
            self._room.give(item.taken)
            raise

    def put_back(self, item: _Wanted) -> None:
        """Read an object later that turned out to be larger, and before those behind it."""
        self._room.give(item.taken)
        self._stop()
        self._queue.appendleft(item)

    def _fill(self) -> None:
        while self._queue and len(self._under_way) < self._most:
            item = self._queue[0]
            wanted = self._times * item.size
            self._large(item.uri, wanted)
            # Whoever has something under way doesn't wait for more: two of them would wait for each other.
            taken = self._room.try_take(wanted) if self._under_way else self._room.take(wanted)
            if taken is None:
                return
            self._queue.popleft()
            self._under_way.append((replace(item, taken=taken), self._submit(item)))

    def _submit(self, item: _Wanted) -> Future[bytes | SternaError]:
        if self._pool:
            return self._pool.submit(self._attempt, item)
        future: Future[bytes | SternaError] = Future()
        try:
            future.set_result(self._attempt(item))
        except BaseException as error:  # noqa: BLE001 - raised where the result is asked for, as a pool's would be
            future.set_exception(error)
        return future

    def _attempt(self, item: _Wanted) -> bytes | SternaError:
        try:
            return self._objects.read(item.uri, limit=item.size)
        except SternaError as error:
            return error

    def _stop(self) -> None:
        """Give up what is under way; it is in the queue again."""
        while self._under_way:
            item, future = self._under_way.pop()
            if not future.cancel():
                wait([future])
            self._room.give(item.taken)
            self._queue.appendleft(item)


def in_order(function: Callable[[_T], _R], items: Iterable[_T], workers: int) -> Iterator[_R]:
    """Call a function on each item in threads and yield the results in the items' order, never far ahead of the
    reader.
    """
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sterna-objects")
    waiting: deque[Future[_R]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(function, item))
            if len(waiting) >= 2 * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
