"""Bytes in flight: what many threads have in memory of others' files, bounded by one number."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeVar

from sterna.config.mapping import Mapping as UriMapping
from sterna.config.registry.folders import state_root
from sterna.errors import SternaError
from sterna.storage.client import TooLarge

_T = TypeVar("_T")
_R = TypeVar("_R")
DEFAULT_OBJECT_BYTES: Final = 1 << 20
"""The assumed bytes of an object of unknown size; a larger one is requested again."""


class MemoryBudget:
    """A number of bytes that many threads share.

    An object larger than the budget gets all of it, alone.

    Args:
        size: how many bytes.
    """

    def __init__(self, size: int) -> None:
        self.capacity = size
        self.used = 0
        self._changed = threading.Condition()

    def acquire(self, size: int) -> int:
        """Wait until so many bytes are free, and take them; return how many to give back.

        A holder may not wait for more: two of them would deadlock.
        """
        size = min(size, self.capacity)
        with self._changed:
            self._changed.wait_for(lambda: self.used + size <= self.capacity)
            self.used += size
        return size

    def try_acquire(self, size: int) -> int | None:
        """Take some bytes if they are free at this moment; None if they are not."""
        size = min(size, self.capacity)
        with self._changed:
            if self.used + size > self.capacity:
                return None
            self.used += size
        return size

    def release(self, size: int) -> None:
        """Give bytes back."""
        with self._changed:
            self.used -= size
            self._changed.notify_all()

    @contextmanager
    def reserve(self, size: int) -> Iterator[None]:
        """Have so many bytes for a while."""
        acquired = self.acquire(size)
        try:
            yield
        finally:
            self.release(acquired)


def check_size(mapping: UriMapping, uri: str, size: int, limit: int | None) -> None:
    """Validate that an object is not larger than the region's limit, or its reader's; nothing of it was read.

    What sterna itself keeps beside the replica has no limit.

    Raises:
        OverLimit, TooLarge: it is.
    """
    region = mapping.region
    if not uri.startswith(state_root(region.replica_root)):
        region.limits.check("file_bytes", size, "bytes of a file", uri)
    if limit is not None and size > limit:
        raise TooLarge.of(size, limit, uri)


class SizedReader(Protocol):
    """Whatever reads objects by their URI and refuses larger ones unread; see `Objects`."""

    def read(self, uri: str, *, limit: int) -> bytes:
        """Return an object's content; TooLarge where it has more bytes than the limit."""
        ...


def read_bounded(
    objects: SizedReader,
    sizes: Mapping[str, int],
    budget: MemoryBudget,
    max_concurrency: int,
    memory_factor: int = 1,
    on_large: Callable[[str, int], None] = lambda uri, size: None,
) -> Iterator[tuple[str, bytes | SternaError]]:
    """Yield each URI with its content, or with the error that kept it from being read, in the given order.

    Objects being read, or waiting for the reader, fit in the budget. An object's size is known before its content is
    read: one that is larger than what was reserved for it is read once the budget allows.

    Args:
        sizes: the objects, with the expected bytes of each; -1 where unknown.
        budget: shared with concurrent reads.
        max_concurrency: how many are read at once.
        memory_factor: how many times its size an object takes while it is read and used.
        on_large: called before an object is read, with about how many bytes it takes.
    """
    with _Window(objects, sizes, budget, max_concurrency, memory_factor, on_large) as window:
        while (completed := window.next_completed()) is not None:
            request, content = completed
            if isinstance(content, TooLarge) and sizes[request.uri] < 0 and content.size > request.size:
                window.requeue(replace(request, size=content.size))
                continue
            try:
                yield request.uri, content
            finally:
                budget.release(request.acquired)


@dataclass(frozen=True)
class _ReadRequest:
    uri: str
    size: int
    acquired: int = 0


class _Window:
    """Reads in progress, in the given order; arguments as in `read_bounded`."""

    def __init__(
        self,
        objects: SizedReader,
        sizes: Mapping[str, int],
        budget: MemoryBudget,
        max_concurrency: int,
        memory_factor: int,
        on_large: Callable[[str, int], None],
    ) -> None:
        self._objects, self._budget, self._memory_factor, self._on_large = objects, budget, memory_factor, on_large
        self._max_pending = 2 * max_concurrency
        self._queue = deque(
            _ReadRequest(uri, size if size >= 0 else DEFAULT_OBJECT_BYTES) for uri, size in sizes.items()
        )
        self._in_flight: deque[tuple[_ReadRequest, Future[bytes | SternaError]]] = deque()
        # One alone is read in the caller's thread.
        self._pool = ThreadPoolExecutor(max_concurrency, thread_name_prefix="sterna-within") if len(sizes) > 1 else None

    def __enter__(self) -> _Window:
        return self

    def __exit__(self, *_: object) -> None:
        self._requeue_in_flight()
        if self._pool:
            self._pool.shutdown(wait=True, cancel_futures=True)

    def next_completed(self) -> tuple[_ReadRequest, bytes | SternaError] | None:
        """Return the next object with its content, whose memory the caller releases; None after the last."""
        self._fill()
        if not self._in_flight:
            return None
        request, future = self._in_flight.popleft()
        try:
            return request, future.result()
        except BaseException:
            self._budget.release(request.acquired)
            raise

    def requeue(self, request: _ReadRequest) -> None:
        """Read an object later that turned out to be larger, and before those behind it."""
        self._budget.release(request.acquired)
        self._requeue_in_flight()
        self._queue.appendleft(request)

    def _fill(self) -> None:
        while self._queue and len(self._in_flight) < self._max_pending:
            request = self._queue[0]
            memory_bytes = self._memory_factor * request.size
            self._on_large(request.uri, memory_bytes)
            # With a read in progress it doesn't wait for more: two such would deadlock.
            acquired = self._budget.try_acquire(memory_bytes) if self._in_flight else self._budget.acquire(memory_bytes)
            if acquired is None:
                return
            self._queue.popleft()
            self._in_flight.append((replace(request, acquired=acquired), self._submit(request)))

    def _submit(self, request: _ReadRequest) -> Future[bytes | SternaError]:
        if self._pool:
            return self._pool.submit(self._attempt, request)
        future: Future[bytes | SternaError] = Future()
        try:
            future.set_result(self._attempt(request))
        except BaseException as error:  # noqa: BLE001 - raised where the result is read, as a pool's would be
            future.set_exception(error)
        return future

    def _attempt(self, request: _ReadRequest) -> bytes | SternaError:
        try:
            return self._objects.read(request.uri, limit=request.size)
        except SternaError as error:
            return error

    def _requeue_in_flight(self) -> None:
        """Give up what is under way; it is in the queue again."""
        while self._in_flight:
            request, future = self._in_flight.pop()
            if not future.cancel():
                wait([future])
            self._budget.release(request.acquired)
            self._queue.appendleft(request)


def map_ordered(function: Callable[[_T], _R], items: Iterable[_T], workers: int) -> Iterator[_R]:
    """Call a function on each item in threads and yield the results in the items' order, never far ahead of the
    reader.
    """
    pool = ThreadPoolExecutor(max_workers=workers, thread_name_prefix="sterna-objects")
    pending: deque[Future[_R]] = deque()
    try:
        for item in items:
            pending.append(pool.submit(function, item))
            if len(pending) >= 2 * workers:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
