"""The server-sent events of a response, as httpx-sse parses them, and a limit to what one of them may hold."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import httpx
from httpx_sse import EventSource, ServerSentEvent

_MAX_EVENT_CHARACTERS = 4 * 1024 * 1024  # no gateway sends more


class _LimitedResponse:
    """What httpx-sse reads of a response: it collects an event's lines for as long as they come."""

    def __init__(self, response: httpx.Response) -> None:
        self.headers = response.headers
        self.pending_characters = 0
        self._response = response

    async def aiter_text(self) -> AsyncIterator[str]:
        async for text in self._response.aiter_text():
            if self.pending_characters > _MAX_EVENT_CHARACTERS:
                raise ValueError("the stream sends an event without an end")
            # A blank line ends an event, also one without data, as a comment that keeps the connection alive.
            _, ended, rest = text.rpartition("\n\n")
            self.pending_characters = len(rest) if ended else self.pending_characters + len(text)
            yield text


async def read_events(response: httpx.Response) -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a stream as they come in; one without data is no event, but its id and its retry count.

    Raises:
        ValueError: one is larger than any gateway sends.
        httpx.HTTPError: the response is no stream of events, or it breaks off.
    """
    limited = _LimitedResponse(response)
    async for event in EventSource(cast(httpx.Response, limited)).aiter_sse():
        limited.pending_characters = 0
        yield event
