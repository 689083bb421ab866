"""Reading parts of an object, as readers of columns do: each with its own location's endpoint and credential."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sterna.edges.stores.objects import Objects
from sterna.edges.stores.open_store import OpenStore, call_store
from sterna.errors import SternaError, StoreUnreachable
from sterna.registry.credential import fileio_properties, store_address

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer, WriteableBuffer

_WHOLE = 1 << 20  # a smaller object is fetched in one request
_NOT_PARTIAL = "Received non-partial response"  # obstore's words


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
        self._file: Any = None

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
        if store.pace is not None:
            store.pace(length)
        if self._file is None:
            try:
                return call_store(store, self._uri, lambda: _part(store, place.path, start, length))
            except StoreUnreachable as error:
                if place.location.remote.type != "s3" or _NOT_PARTIAL not in error.message:
                    raise
            self._file = call_store(store, self._uri, lambda: _arrow_file(store, place.path))
        file = self._file
        return call_store(store, self._uri, lambda: bytes(file.read_at(length, start)))

    def _sized(self, data: bytes, expected: int) -> bytes:
        if len(data) != expected:
            raise StoreUnreachable(f"{len(data)} of {expected} bytes came", file=self._uri)
        return data


def _part(store: OpenStore, path: str, start: int, length: int) -> bytes:
    import obstore

    return bytes(obstore.get_range(store.client, store.key(path), start=start, length=length))


def _arrow_file(store: OpenStore, path: str) -> Any:
    """Open an object by Arrow's own client: it takes the part that a server sends as if it were the whole.

    `rclone serve s3` does that (1.75): the right bytes, and the status of a whole object.
    """
    from pyarrow.fs import S3FileSystem

    given = fileio_properties(store.location, store.credential)
    keys = {"access_key": "s3.access-key-id", "secret_key": "s3.secret-access-key", "session_token": "s3.session-token"}
    files = S3FileSystem(
        **{name: given[key] for name, key in keys.items() if key in given},
        endpoint_override=given["s3.endpoint"],
        region=given["s3.region"],
        force_virtual_addressing=given["s3.path-style-access"] != "true",
    )
    return files.open_input_file(f"{store_address(store.location).bucket}/{store.key(path)}")
