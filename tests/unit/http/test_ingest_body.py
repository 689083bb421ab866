"""A body on its way in: no more of it is kept than was announced."""

from __future__ import annotations

import asyncio
import gzip

import pytest
from starlette.requests import Request

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit
from sterna.pipelines.ingest.model import Destination, Format
from sterna.serving.http.errors import RequestError
from sterna.serving.http.ingest_body import Unpacker, build_unpacker, receive_body
from sterna.serving.http.ingest_limits import TenantGate
from sterna.serving.http.ingest_schemas import UploadHeaders

LENGTH = 10


def unpacked(content: bytes, portion: int = 7, most: int = 1 << 30) -> bytes:
    unpacker = Unpacker(most, "limits.ratio")
    body = b"".join(part for at in range(0, len(content), portion) for part in unpacker.add(content[at : at + portion]))
    unpacker.require_complete()
    return body


@pytest.mark.parametrize("portion", [1, 7, 1 << 20])
def test_gzip_is_unpacked_in_whatever_portions_it_comes(portion: int) -> None:
    rows = b"".join(b'{"id": %d}\n' % number for number in range(1000))
    packed = gzip.compress(rows)
    assert unpacked(packed, portion) == rows
    assert unpacked(packed + gzip.compress(b"more\n"), portion) == rows + b"more\n"
    for cut in (packed[:-1], packed[:-9], packed[:5]):
        with pytest.raises(BadDrop, match="cut"):
            unpacked(cut, portion)
    for wrong in (rows, packed + b"x" * 20, packed[:20] + b"\xff" * 40):
        with pytest.raises(BadDrop, match="gzip"):
            unpacked(wrong, portion)


def test_a_bomb_is_unpacked_no_further_than_it_may_become() -> None:
    bomb = gzip.compress(b"\0" * (256 << 20))
    unpacker, size = Unpacker(1 << 20, "limits.ratio"), 0
    with pytest.raises(DropOverLimit, match="ratio"):
        for part in unpacker.add(bomb):
            size += len(part)
    assert size <= 1 << 20


@pytest.mark.parametrize(("length", "said"), [(100, "limits.ratio"), (10 << 20, "limits.body")])
def test_the_lower_limit_holds(length: int, said: str) -> None:
    post = UploadHeaders(Destination("acme", "acme.t", "eu.acme.default"), "", "", Format.JSON_LINES, length, gzip=True)
    unpacker = build_unpacker(post, TenantLimits())
    assert unpacker is not None
    with pytest.raises(DropOverLimit, match=said):
        for _ in unpacker.add(gzip.compress(b"\0" * (65 << 20))):
            pass


def test_a_body_in_chunks_is_cut_off_where_it_is_longer_than_it_said() -> None:
    """HTTP lets `Transfer-Encoding: chunked` go before a Content-Length that is sent beside it."""
    asked = 0

    async def chunks() -> dict[str, object]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 4, "more_body": asked < 100}

    async def receive() -> None:
        post = UploadHeaders(Destination("acme", "acme.t", "eu.acme.default"), "", "", Format.JSON_LINES, LENGTH)
        async with receive_body(Request({"type": "http"}, chunks), post, TenantGate("acme", TenantLimits())):
            pytest.fail("it was taken")

    with pytest.raises(RequestError) as refused:
        asyncio.run(receive())
    assert (refused.value.status, asked) == (400, 3)
