"""Receiving a body: into a file first, so that nothing is in the inbox before it was validated."""

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

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit
from sterna.pipelines.ingest.model import Format
from sterna.serving.http.errors import RequestError, unavailable
from sterna.serving.http.ingest_limits import TenantGate
from sterna.serving.http.ingest_schemas import UploadHeaders

log = logging.getLogger(__name__)
_CHUNK_BYTES = 1 << 20
_RETRY_AFTER_SECONDS = 30
_GZIP_WBITS = 31  # zlib's word for gzip alone


class UploadBody:
    """A body in a file.

    Args:
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

    def require_complete(self) -> None:
        """See that nothing is missing.

        Raises:
            BadDrop: it is cut.
        """
        if self._unpacker:
            self._unpacker.require_complete()


class Unpacker:
    """A compressed body, unpacked as it comes, and never to more than it may become.

    Args:
        max_bytes: bytes that it may become.
        limit_name: which limit that is.
    """

    def __init__(self, max_bytes: int, limit_name: str) -> None:
        self._max_bytes, self._limit_name = max_bytes, limit_name
        self._unpacked_bytes = 0
        self._gzip = zlib.decompressobj(_GZIP_WBITS)

    def add(self, data: bytes) -> Iterator[bytes]:
        """Yield what a part of the body becomes, in portions.

        Raises:
            BadDrop, DropOverLimit: as `UploadBody.add`.
        """
        while data:
            if self._gzip.eof:
                self._gzip = zlib.decompressobj(_GZIP_WBITS)  # several may follow one another
            try:
                part = self._gzip.decompress(data, _CHUNK_BYTES)
            except zlib.error:
                raise BadDrop("the body is no gzip") from None
            self._unpacked_bytes += len(part)
            if self._unpacked_bytes > self._max_bytes:
                raise DropOverLimit(f"the body becomes more than {self._max_bytes} bytes ({self._limit_name})")
            data = self._gzip.unconsumed_tail or self._gzip.unused_data
            yield part

    def require_complete(self) -> None:
        """See that nothing is missing.

        Raises:
            BadDrop: it is cut.
        """
        if not self._gzip.eof:
            raise BadDrop("the body is cut: its gzip doesn't end")


def build_unpacker(headers: UploadHeaders, limits: TenantLimits) -> Unpacker | None:
    """Return what unpacks a body, None where it isn't compressed."""
    if not headers.gzip:
        return None
    name, max_bytes = ("file", limits.file) if headers.format is Format.PARQUET else ("body", limits.body)
    by_ratio = limits.ratio * headers.length
    return Unpacker(max_bytes, f"limits.{name}") if max_bytes <= by_ratio else Unpacker(by_ratio, "limits.ratio")


@asynccontextmanager
async def receive_body(request: Request, headers: UploadHeaders, gate: TenantGate) -> AsyncIterator[UploadBody]:
    """Receive a body; its file is gone afterwards.

    Raises:
        RequestError: 400, 408 or 503.
        BadDrop, DropOverLimit: it can't be unpacked.
        ClientDisconnect: the client went.
    """
    with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
        body = UploadBody(Path(folder) / "body", build_unpacker(headers, gate.limits))
        try:
            async with asyncio.timeout(gate.limits.upload):
                await _receive(request, body, gate, headers.length)
        except TimeoutError:
            raise RequestError(
                408, f"the upload took longer than {gate.limits.upload} s (limits.upload)", {"Connection": "close"}
            ) from None
        except OSError as error:
            log.error("a body can't be kept while it is looked at: %s", error.strerror)
            raise unavailable("the gateway's disk is full", _RETRY_AFTER_SECONDS) from None
        if body.received != headers.length:
            raise _length_error(headers.length)
        body.require_complete()
        yield body


async def _receive(request: Request, body: UploadBody, gate: TenantGate, length: int) -> None:
    buffer = bytearray()
    async for chunk in request.stream():
        buffer += chunk
        # A chunked body has no Content-Length that bounds it: it would fill the disk.
        if body.received + len(buffer) > length:
            raise _length_error(length)
        if len(buffer) >= _CHUNK_BYTES:
            portion, buffer = bytes(buffer), bytearray()
            await gate.run(lambda data=portion: body.add(data))  # type: ignore[misc]
    rest = bytes(buffer)
    await gate.run(lambda: body.add(rest))


def _length_error(length: int) -> RequestError:
    message = f"the body has other than the {length} bytes of its Content-Length"
    return RequestError(400, message, {"Connection": "close"})
