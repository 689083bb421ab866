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

from sterna.codec import DuplicateName, parse_json
from sterna.errors import printable
from sterna.serving.http.errors import RequestError

MAX_BODY_BYTES = 16 * 1024 * 1024
"""Bytes: a thousand keys of a thousand letters each, however JSON spells them."""
MAX_VALUES = 100_000
MAX_DEPTH = 32
_CONTENT_BYTES = bytes(set(range(256)) - set(b'"[]{},'))
_AS_LISTS = bytes.maketrans(b"{}", b"[]")
_STEPS = {ord("["): 1, ord("]"): -1}
_CLOSE_HEADERS = {"Connection": "close"}  # the rest of the body isn't read
_MAX_THREADS = 2
INVALID_REQUEST = "the request can't be understood"


@dataclass(frozen=True)
class BodyLimits:
    """What bodies may take.

    Args:
        seconds: within which one has to be here.
        max_bytes: bytes of one.
        max_reserved_bytes: bytes of all together, each beyond its first `small`; half of that for one reader.
        unreserved_bytes: bytes of one that are always taken, as the server itself holds so many.
    """

    seconds: float = 20.0
    max_bytes: int = MAX_BODY_BYTES
    max_reserved_bytes: int = 64 * 1024 * 1024
    unreserved_bytes: int = 64 * 1024


@dataclass(frozen=True)
class ParseLimits:
    """What the parser of one body may be given.

    Args:
        max_values: values, names of fields among them.
        max_depth: levels of lists and objects within one another.
    """

    max_values: int = MAX_VALUES
    max_depth: int = MAX_DEPTH


_DEFAULT_LIMITS = ParseLimits()


class BodyReader:
    """Reads bodies of JSON, within one event loop.

    Args:
        limits: what they may take.
    """

    def __init__(self, limits: BodyLimits) -> None:
        self.limits = limits
        self._reserved: Counter[str] = Counter()
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="sterna-bodies")

    @property
    def reserved_bytes(self) -> int:
        """Bytes that count as held now."""
        return self._reserved.total()

    async def read_object(
        self, request: Request, reader: str, parse_limits: ParseLimits = _DEFAULT_LIMITS
    ) -> dict[str, Any]:
        """Return a request's body, an object of JSON.

        Args:
            request: the request.
            reader: the client.
            parse_limits: what the parser may be given.

        Raises:
            RequestError: 400: it is something else, has too many values or too deep ones; 408, 413 or 429.
            ClientDisconnect: the client went.
        """
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if not (kind == "application/json" or (kind.startswith("application/") and kind.endswith("+json"))):
            raise RequestError(400, INVALID_REQUEST)
        body, reserved = bytearray(), 0
        try:
            async with asyncio.timeout(self.limits.seconds):
                async for chunk in _read_chunks(request, self.limits.max_bytes):
                    body += chunk
                    growth = max(0, len(body) - self.limits.unreserved_bytes) - reserved
                    self._reserve(reader, growth)
                    reserved += growth
            return await self._parse(body, parse_limits)
        except TimeoutError:
            raise RequestError(408, f"the body was not here within {self.limits.seconds:g} s", _CLOSE_HEADERS) from None
        finally:
            self._release(reader, reserved)

    def close(self) -> None:
        """Let go of the threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def _parse(self, body: bytearray, limits: ParseLimits) -> dict[str, Any]:
        if len(body) <= self.limits.unreserved_bytes:
            return parse_object(body, limits)
        return await asyncio.get_running_loop().run_in_executor(self._threads, parse_object, body, limits)

    def _reserve(self, reader: str, count: int) -> None:
        if not count:
            return
        if (
            self.reserved_bytes + count > self.limits.max_reserved_bytes
            or self._reserved[reader] + count > self.limits.max_reserved_bytes // 2
        ):
            raise RequestError(429, "too much is being sent at once", {"Retry-After": "1", **_CLOSE_HEADERS})
        self._reserved[reader] += count

    def _release(self, reader: str, count: int) -> None:
        self._reserved[reader] -= count
        if not self._reserved[reader]:
            del self._reserved[reader]


async def _read_chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    content_length = request.headers.get("content-length", "")
    size = (
        int(content_length)
        if content_length.isascii() and content_length.isdecimal() and len(content_length) < 20
        else 0
    )
    if size > max_bytes:
        raise _too_large(max_bytes)
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > max_bytes:
            raise _too_large(max_bytes)
        yield chunk


def _too_large(max_bytes: int) -> RequestError:
    message = f"the body has more than {max_bytes:,} bytes"
    return RequestError(413, message, _CLOSE_HEADERS, detail=message)


def parse_object(body: bytes | bytearray, limits: ParseLimits = _DEFAULT_LIMITS) -> dict[str, Any]:
    """Return an object of JSON in UTF-8.

    Args:
        body: the text.
        limits: what the parser may be given.

    Raises:
        RequestError: 400: it is none, or costs too much.
    """
    validate_parse_cost(body, limits.max_values, limits.max_depth)
    try:
        document = parse_json(body.decode("utf-8-sig"))
    except DuplicateName as error:
        message = f"a name stands twice in one object: {printable(str(error), 100)}"
        raise RequestError(400, message, detail=message) from None
    except ValueError:
        raise RequestError(400, INVALID_REQUEST) from None
    if not isinstance(document, dict):
        raise RequestError(400, INVALID_REQUEST)
    return document


def validate_parse_cost(body: bytes | bytearray, max_values: int = MAX_VALUES, max_depth: int = MAX_DEPTH) -> None:
    """Refuse what a parser would take long for; what is no JSON may pass, or be refused with other words.

    Args:
        body: the text.
        max_values: values, names of fields among them.
        max_depth: levels of lists and objects within one another.

    Raises:
        RequestError: 400.
    """
    # Without escaped characters a quotation mark begins or ends a text, and every second part is outside of them.
    punctuation = body.replace(b"\\\\", b"").replace(b'\\"', b"").translate(None, _CONTENT_BYTES)
    if punctuation.count(b'"') > 2 * max_values:
        raise _too_costly(f"has more than {max_values:,} values")
    outside = b"".join(bytes(punctuation).split(b'"')[::2])
    if outside.count(b",") + outside.count(b"[") + outside.count(b"{") > max_values:
        raise _too_costly(f"has more than {max_values:,} values")
    brackets = outside.translate(_AS_LISTS, b",")
    remaining = brackets
    for _ in range(max_depth):
        remaining = remaining.replace(b"[]", b"")  # the innermost of each branch
        if not remaining:
            return
    # Deeper, or no JSON. One with so many ends is none, and a parser fails at the first that is too many.
    if len(brackets) <= 2 * max_values and max(accumulate(map(_STEPS.__getitem__, brackets)), default=0) > max_depth:
        raise _too_costly(f"is nested deeper than {max_depth} levels")


def _too_costly(problem: str) -> RequestError:
    return RequestError(400, f"the body {problem}", detail=f"the body {problem}")
