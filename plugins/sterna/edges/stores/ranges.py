"""Reading parts of an object, as readers of columns do: each with its own location's endpoint and credential."""

from __future__ import annotations

import io
from collections.abc import Callable
from itertools import pairwise
from typing import TYPE_CHECKING

from sterna.edges.stores.objects import Objects
from sterna.edges.stores.pace import CHUNK
from sterna.edges.stores.parts import Parts
from sterna.errors import SternaError, StoreUnreachable

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_WHOLE = 1 << 20  # a smaller object is fetched in one request


class ObjectReader(io.RawIOBase):
    """An object that is read by seeking; nothing is asked of the store before the first read.

    Args:
        objects: the stores.
        uri: the object.
        size: its bytes.
        before: called before each request; what it raises ends the reading.
        failed: told of an error before it is raised: callers in C++ hand on no more than its text.
    """

    def __init__(
        self,
        objects: Objects,
        uri: str,
        size: int,
        *,
        before: Callable[[], None] = lambda: None,
        failed: Callable[[SternaError], None] = lambda error: None,
    ) -> None:
        super().__init__()
        self._objects, self._uri, self._size = objects, uri, size
        self._before, self._failed = before, failed
        self._at = 0
        self._whole: bytes | None = None
        self._parts: Parts | None = None

    def readable(self) -> bool:
        """Say yes."""
        return True

    def seekable(self) -> bool:
        """Say yes."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go somewhere; see `io.IOBase.seek`."""
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        self._at = max(0, start + offset)
        return self._at

    def read(self, size: int | None = -1, /) -> bytes:
        """Return the next bytes: as many as asked for, unless the object ends before."""
        left = max(0, self._size - self._at)
        length = left if size is None or size < 0 else min(size, left)
        if not length:
            return b""
        try:
            self._before()
            data = self._bytes(self._at, length)
        except SternaError as error:
            self._failed(error)
            raise
        self._at += len(data)
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
        """Refuse."""
        raise io.UnsupportedOperation("write")

    def _bytes(self, start: int, length: int) -> bytes:
        # Not by a range where it would be the whole object: some servers answer that in another way.
        if self._size <= _WHOLE or length == self._size:
            if self._whole is None:
                self._whole = self._sized(self._objects.read(self._uri), self._size)
            return self._whole[start : start + length]
        return self._sized(self._range(start, length), length)

    def _range(self, start: int, length: int) -> bytes:
        place = self._objects.mapping.locate(self._uri)
        store = self._objects.open(place.location)
        if self._parts is None:
            self._parts = Parts(store, store.key(place.path), self._uri)
        most = length if store.pace is None else CHUNK
        ends = [*range(start, start + length, most), start + length]
        return b"".join(self._parts.read(begin, end - begin) for begin, end in pairwise(ends))

    def _sized(self, data: bytes, expected: int) -> bytes:
        if len(data) != expected:
            raise StoreUnreachable(f"{len(data)} of {expected} bytes came", file=self._uri)
        return data
