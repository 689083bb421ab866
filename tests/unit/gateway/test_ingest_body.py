"""A body on its way in: no more of it is kept than was announced."""

from __future__ import annotations

import asyncio

import pytest
from starlette.requests import Request

from sterna.gateway.ingest_asked import Post
from sterna.gateway.ingest_body import received
from sterna.gateway.ingest_limits import TenantGate
from sterna.gateway.replies import RefusedRequest
from sterna.ingest.model import Format, Lane
from sterna.services.ingest import TenantLimits

LENGTH = 10


def test_a_body_in_chunks_is_cut_off_where_it_is_longer_than_it_said() -> None:
    """HTTP lets `Transfer-Encoding: chunked` go before a Content-Length that is sent beside it."""
    asked = 0

    async def chunks() -> dict[str, object]:
        nonlocal asked
        asked += 1
        return {"type": "http.request", "body": b"x" * 4, "more_body": asked < 100}

    async def receive() -> None:
        post = Post(Lane("acme", "acme.t", "eu.acme.default"), "", "", Format.JSON_LINES, LENGTH)
        async with received(Request({"type": "http"}, chunks), post, TenantGate("acme", TenantLimits())):
            pytest.fail("it was taken")

    with pytest.raises(RefusedRequest) as refused:
        asyncio.run(receive())
    assert (refused.value.status, asked) == (400, 3)
