"""A body on its way to the store: into a file first, so that nothing is seen in the inbox before it was looked at."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from starlette.requests import Request

from sterna.gateway.ingest_asked import Post
from sterna.gateway.ingest_limits import TenantGate
from sterna.gateway.replies import RefusedRequest, later

log = logging.getLogger(__name__)
_PORTION = 1 << 20
_SECONDS = 30


class Body:
    """A body in a file.

    Args:
        path: where.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._digest = hashlib.sha256()

    @property
    def digest(self) -> str:
        """Its SHA-256, in hex."""
        return self._digest.hexdigest()

    def add(self, data: bytes) -> None:
        """Append something."""
        with self.path.open("ab") as file:
            file.write(data)
        self._digest.update(data)
        self.size += len(data)


@asynccontextmanager
async def received(request: Request, post: Post, gate: TenantGate) -> AsyncIterator[Body]:
    """Receive a body; its file is gone afterwards.

    Raises:
        RefusedRequest: 400, 408 or 503.
        ClientDisconnect: the client went.
    """
    with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
        body = Body(Path(folder) / "body")
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
        if body.size != post.length:
            raise _other_length(post.length)
        yield body


async def _receive(request: Request, body: Body, gate: TenantGate, length: int) -> None:
    buffer = bytearray()
    async for chunk in request.stream():
        buffer += chunk
        # One in chunks has no end that its Content-Length tells: it would fill the disk.
        if body.size + len(buffer) > length:
            raise _other_length(length)
        if len(buffer) >= _PORTION:
            portion, buffer = bytes(buffer), bytearray()
            await gate.run(lambda data=portion: body.add(data))  # type: ignore[misc]
    last = bytes(buffer)
    await gate.run(lambda: body.add(last))


def _other_length(length: int) -> RefusedRequest:
    said = f"the body has other than the {length} bytes that its Content-Length says"
    return RefusedRequest(400, said, {"Connection": "close"})
