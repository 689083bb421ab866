"""Reading parts of an object, as readers of columns do: each with its own location's endpoint and credential."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from sterna.errors import SternaError, StoreUnreachable
from sterna.storage.multipart import RangeReader
from sterna.storage.objects import Objects
from sterna.storage.throttle import CHUNK_BYTES

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_SINGLE_REQUEST_BYTES = 1 << 20  # a smaller object is fetched in one request


class ObjectReader(io.RawIOBase):
    """An object that is read by seeking; there is no request before the first read.

    Args:
        size: in bytes.
        tail: its last bytes, where they are known.
        before_request: called before each request; what it raises ends the reading.
        on_error: called with an error before it is raised: callers in C++ hand on no more than its text.
    """

    def __init__(
        self,
        objects: Objects,
        uri: str,
        size: int,
        *,
        tail: bytes = b"",
        before_request: Callable[[], None] = lambda: None,
        on_error: Callable[[SternaError], None] = lambda error: None,
    ) -> None:
        super().__init__()
        self._objects, self._uri, self._size, self._tail = objects, uri, size, tail
        self._before_request, self._on_error = before_request, on_error
        self._offset = 0
        self._body: bytes | None = None
        self._parts: RangeReader | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._offset

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go somewhere; see `io.IOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        self._offset = max(0, start + offset)
        return self._offset

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes: as many as requested, unless the object ends before."""
        remaining = max(0, self._size - self._offset)
        length = remaining if size is None or size < 0 else min(size, remaining)
        if not length:
            return b""
        if remaining <= len(self._tail):
            start = len(self._tail) - remaining
            data = self._tail[start : start + length]
        else:
            data = self._request_bytes(length)
        self._offset += len(data)
        return data

    def readall(self) -> bytes:
        """Return all that is left."""
        return self.read(-1)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """Fill a buffer; see `io.RawIOBase.readinto`."""
        view = memoryview(buffer).cast("B")
        data = self.read(len(view))
        view[: len(data)] = data
        return len(data)

    def write(self, data: ReadableBuffer, /) -> int:
        """Raise `io.UnsupportedOperation`: the object is read-only."""
        raise io.UnsupportedOperation("write")

    def _request_bytes(self, length: int) -> bytes:
        try:
            self._before_request()
            return self._read_bytes(self._offset, length)
        except SternaError as error:
            self._on_error(error)
            raise

    def _read_bytes(self, start: int, length: int) -> bytes:
        # Not by a range where it would be the whole object: some servers answer that in another way.
        if self._size <= _SINGLE_REQUEST_BYTES or length == self._size:
            if self._body is None:
                self._body = self._require_length(self._objects.read(self._uri), self._size)
            return self._body[start : start + length]
        return self._require_length(self._read_range(start, length), length)

    def _read_range(self, start: int, length: int) -> bytes:
        place = self._objects.mapping.locate(self._uri)
        store = self._objects.open(place.location)
        if self._parts is None:
            self._parts = RangeReader(store, store.key(place.path), self._uri)
        chunk_bytes = length if store.throttle is None else CHUNK_BYTES
        ends = [*range(start, start + length, chunk_bytes), start + length]
        return b"".join(self._parts.read(begin, end - begin) for begin, end in pairwise(ends))

    def _require_length(self, data: bytes, expected: int) -> bytes:
        if len(data) != expected:
            raise StoreUnreachable(f"{len(data)} of {expected} bytes came", file=self._uri)
        return data
