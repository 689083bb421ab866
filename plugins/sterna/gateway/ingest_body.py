"""A body on its way to the store: into a file first, so that nothing is seen in the inbox before it was looked at."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
import zlib
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.requests import Request

from sterna.errors import BadDrop, DropOverLimit
from sterna.gateway.ingest_asked import Post
from sterna.gateway.ingest_limits import TenantGate
from sterna.gateway.replies import RefusedRequest, later
from sterna.ingest.model import Format
from sterna.services.ingest import TenantLimits

log = logging.getLogger(__name__)
_PORTION = 1 << 20
_SECONDS = 30
_GZIP = 31  # zlib's word for gzip alone


class Body:
    """A body in a file.

    Args:
        path: where.
        unpacker: takes it out of its compression; None: it has none.
    """

    def __init__(self, path: Path, unpacker: Unpacker | None = None) -> None:
        self.path = path
        self.size = self.received = 0
        self._unpacker = unpacker
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Its SHA-256, in hex."""
        return self._digest.hexdigest()

    def add(self, data: bytes) -> None:
        """Append something that was received.

        Raises:
            BadDrop: it can't be unpacked.
            DropOverLimit: it becomes too much.
        """
        self.received += len(data)
        with self.path.open("ab") as file:
            for part in self._unpacker.add(data) if self._unpacker else (data,):
                file.write(part)
                self._digest.update(part)
                self.size += len(part)

    def end(self) -> None:
        """See that nothing is missing.

        Raises:
            BadDrop: it is cut.
        """
        if self._unpacker:
            self._unpacker.end()


class Unpacker:
    """A compressed body, unpacked as it comes, and never to more than it may become.

    Args:
        most: bytes that it may become.
        said: which limit that is.
    """

    def __init__(self, most: int, said: str) -> None:
        self._most, self._said = most, said
        self._made = 0
        self._gzip = zlib.decompressobj(_GZIP)

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield what a part of the body becomes, in portions.

        Raises:
            BadDrop, DropOverLimit: as `Body.add`.
        """
        while data:
            if self._gzip.eof:
                self._gzip = zlib.decompressobj(_GZIP)  # several may follow one another
            try:
                part = self._gzip.decompress(data, _PORTION)
            except zlib.error:
                raise BadDrop("the body is no gzip") from None
            self._made += len(part)
            if self._made > self._most:
                raise DropOverLimit(f"the body becomes more than {self._most} bytes ({self._said})")
            data = self._gzip.unconsumed_tail or self._gzip.unused_data
            yield part

    def end(self) -> None:
        """See that nothing is missing.

        Raises:
            BadDrop: it is cut.
        """
        if not self._gzip.eof:
            raise BadDrop("the body is cut: its gzip doesn't end")


def unpacker_of(post: Post, limits: TenantLimits) -> Unpacker | None:
    """Return what unpacks a body, None where it isn't compressed."""
    if not post.gzip:
        return None
    name, most = ("file", limits.file) if post.format is Format.PARQUET else ("body", limits.body)
    by_ratio = limits.ratio * post.length
    return Unpacker(most, f"limits.{name}") if most <= by_ratio else Unpacker(by_ratio, "limits.ratio")


@asynccontextmanager
async def received(request: Request, post: Post, gate: TenantGate) -> AsyncIterator[Body]:
    """Receive a body; its file is gone afterwards.

    Raises:
        RefusedRequest: 400, 408 or 503.
        BadDrop, DropOverLimit: it can't be unpacked.
        ClientDisconnect: the client went.
    """
    with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
        body = Body(Path(folder) / "body", unpacker_of(post, gate.limits))
        try:
            async with asyncio.timeout(gate.limits.upload):
                await _receive(request, body, gate, post.length)
        except TimeoutError:
            raise RefusedRequest(
                408, f"the upload took longer than {gate.limits.upload} s (limits.upload)", {"Connection": "close"}
            ) from None
        except OSError as error:
            log.error("a body can't be kept while it is looked at: %s", error.strerror)
            raise later("the gateway has no room for the body now", _SECONDS) from None
        if body.received != post.length:
            raise _other_length(post.length)
        body.end()
        yield body


async def _receive(request: Request, body: Body, gate: TenantGate, length: int) -> None:
    buffer = bytearray()
    async for chunk in request.stream():
        buffer += chunk
        # One in chunks has no end that its Content-Length tells: it would fill the disk.
        if body.received + len(buffer) > length:
            raise _other_length(length)
        if len(buffer) >= _PORTION:
            portion, buffer = bytes(buffer), bytearray()
            await gate.run(lambda data=portion: body.add(data))  # type: ignore[misc]
    last = bytes(buffer)
    await gate.run(lambda: body.add(last))


def _other_length(length: int) -> RefusedRequest:
    said = f"the body has other than the {length} bytes that its Content-Length says"
    return RefusedRequest(400, said, {"Connection": "close"})
