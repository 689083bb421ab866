"""Bodies of JSON: within a size, a time, a memory that all of them share, and a number of values.

A parser of JSON holds the interpreter's lock from beginning to end, in whatever thread it runs. So what it would take
long for is refused before it begins, by operations that take milliseconds for the largest body.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from starlette.requests import Request

from sterna.errors import printable
from sterna.gateway.replies import RefusedRequest
from sterna.json_record import DoubledName, parse_json

LARGEST_BODY = 16 * 1024 * 1024
"""Bytes: a thousand keys of a thousand letters each, however JSON spells them."""
MOST_VALUES = 100_000
DEEPEST = 32
_OTHERS = bytes(set(range(256)) - set(b'"[]{},'))
_ONE_KIND = bytes.maketrans(b"{}", b"[]")
_STEPS = {ord("["): 1, ord("]"): -1}
_CLOSE = {"Connection": "close"}  # the rest of the body isn't read
_THREADS = 2
UNCLEAR = "the request can't be understood"


@dataclass(frozen=True)
class BodyLimits:
    """What bodies may take.

    Args:
        seconds: within which one has to be here.
        size: bytes of one.
        memory: bytes of all together, each beyond its first `small`; half of that for one reader.
        small: bytes of one that are always taken, as the server itself holds so many.
    """

    seconds: float = 20.0
    size: int = LARGEST_BODY
    memory: int = 64 * 1024 * 1024
    small: int = 64 * 1024


class Bodies:
    """Reads bodies of JSON, within one event loop.

    Args:
        limits: what they may take.
    """

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._held: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="sterna-bodies")

    @property
    def held(self) -> int:
        """Bytes that count as held now."""
        return self._held.total()

    async def read_object(self, request: Request, reader: str) -> dict[str, Any]:
        """Return a request's body, an object of JSON.

        Args:
            request: the request.
            reader: who asks.

        Raises:
            RefusedRequest: 400: it is something else, has too many values or too deep ones; 408, 413 or 429.
            ClientDisconnect: the client went.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
            raise RefusedRequest(400, UNCLEAR)
        body, counted = bytearray(), 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for part in _parts(request, self.limits.size):
                    body += part
                    more = max(0, len(body) - self.limits.small) - counted
                    self._hold(reader, more)
                    counted += more
            return await self._parsed(body)
        except TimeoutError:
            raise RefusedRequest(408, f"the body was not here within {self.limits.seconds:g} s", _CLOSE) from None
        finally:
            self._release(reader, counted)

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _parsed(self, body: bytearray) -> dict[str, Any]:
        if len(body) <= self.limits.small:
            return parse_object(body)
        return await asyncio.get_running_loop().run_in_executor(self._threads, parse_object, body)

    def _hold(self, reader: str, count: int) -> None:
        if not count:
            return
        if self.held + count > self.limits.memory or self._held[reader] + count > self.limits.memory // 2:
            raise RefusedRequest(429, "too much is being sent at once", {"Retry-After": "1", **_CLOSE})
        self._held[reader] += count

    def _release(self, reader: str, count: int) -> None:
        self._held[reader] -= count
        if not self._held[reader]:
            del self._held[reader]


async def _parts(request: Request, most: int) -> AsyncIterator[bytes]:
    said = request.headers.get("content-length", "")
    size = int(said) if said.isascii() and said.isdecimal() and len(said) < 20 else 0
    if size > most:
        raise _too_large(most)
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most:
            raise _too_large(most)
        yield part


def _too_large(most: int) -> RefusedRequest:
    said = f"the body has more than {most:,} bytes"
    return RefusedRequest(413, said, _CLOSE, detail=said)


def parse_object(body: bytes | bytearray) -> dict[str, Any]:
    """Return an object of JSON in UTF-8.

    Args:
        body: the text.

    Raises:
        RefusedRequest: 400: it is none, or costs too much.
    """
    refuse_costly(body)
    try:
        found = parse_json(body.decode("utf-8-sig"))
    except DoubledName as error:
        said = f"a name stands twice in one object: {printable(str(error), 100)}"
        raise RefusedRequest(400, said, detail=said) from None
    except ValueError:
        raise RefusedRequest(400, UNCLEAR) from None
    if not isinstance(found, dict):
        raise RefusedRequest(400, UNCLEAR)
    return found


def refuse_costly(body: bytes | bytearray, most: int = MOST_VALUES, deepest: int = DEEPEST) -> None:
    """Refuse what a parser would take long for; what is no JSON may pass, or be refused with other words.

    Args:
        body: the text.
        most: values, names of fields among them.
        deepest: levels of lists and objects within one another.

    Raises:
        RefusedRequest: 400.
    """
    # Without escaped characters a quotation mark begins or ends a text, and every second part is outside of them.
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _OTHERS)
    if plain.count(b'"') > 2 * most:
        raise _costly(f"has more than {most:,} values")
    outside = b"".join(bytes(plain).split(b'"')[::2])
    if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > most:
        raise _costly(f"has more than {most:,} values")
    brackets = outside.translate(_ONE_KIND, b",")
    left = brackets
    for _ in range(deepest):
        left = left.replace(b"[]", b"")  # the innermost of each branch
        if not left:
            return
    # Deeper, or no JSON. One with so many ends is none, and a parser says so at the first that is too many.
    if len(brackets) <= 2 * most and max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > deepest:
        raise _costly(f"is nested deeper than {deepest} levels")


def _costly(how: str) -> RefusedRequest:
    return RefusedRequest(400, f"the body {how}", detail=f"the body {how}")
