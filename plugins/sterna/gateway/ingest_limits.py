"""How much a tenant may send: each has a gate of his own, and threads of his own, so that none delays another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from typing import TypeVar

from sterna.gateway.ingest_asked import Post
from sterna.gateway.replies import RefusedRequest
from sterna.ingest.model import Format
from sterna.ingest.tracker import Usage
from sterna.services.ingest import TenantLimits

T = TypeVar("T")
_THREADS = 8
_BACKLOG_SECONDS = 10  # after which somebody whose backlog is full may come again


class TenantGate:
    """One tenant's gate in one gateway.

    Args:
        name: the tenant.
        limits: his.
    """

    def __init__(self, name: str, limits: TenantLimits) -> None:
        self.limits = limits
        self._threads = ThreadPoolExecutor(min(_THREADS, limits.at_once), thread_name_prefix=f"sterna-ingest-{name}")
        self._posts, self._asks = _Rate(limits.requests, "requests"), _Rate(limits.asks, "asks")
        self._under_way = 0

    @contextmanager
    def place(self, post: Post) -> Iterator[None]:
        """Take a place for one upload.

        Raises:
            RefusedRequest: 413 or 429.
        """
        name, most = ("file", self.limits.file) if post.format is Format.PARQUET else ("body", self.limits.body)
        if post.length > most:
            raise RefusedRequest(413, f"{post.length} bytes, {most} are allowed (limits.{name})")
        if not post.length:
            raise RefusedRequest(422, "the body is empty")
        if self._under_way >= self.limits.at_once:
            raise too_many("too many uploads are under way (limits.at_once)", 1)
        self._posts.take()
        self._under_way += 1
        try:
            yield
        finally:
            self._under_way -= 1

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in one of the tenant's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def ask(self) -> None:
        """Count a question.

        Raises:
            RefusedRequest: 429, with `Retry-After`.
        """
        self._asks.take()


class _Rate:
    """How many a second; a second's worth may come at once."""

    def __init__(self, rate: int, name: str) -> None:
        self._rate, self._name = rate, name
        self._tokens, self._filled = float(rate), time.monotonic()

    def take(self) -> None:
        now, rate = time.monotonic(), self._rate
        self._tokens = min(float(rate), self._tokens + (now - self._filled) * rate)
        self._filled = now
        if self._tokens < 1.0:
            raise too_many(f"too many requests (limits.{self._name})", ceil((1.0 - self._tokens) / rate))
        self._tokens -= 1.0


def check_usage(post: Post, usage: Usage, limits: TenantLimits) -> None:
    """See that a tenant may send more.

    Raises:
        RefusedRequest: 403, or 429 with `Retry-After`.
    """
    if usage.backlog + post.length > limits.backlog:
        raise too_many(f"{usage.backlog} bytes wait for being published (limits.backlog)", _BACKLOG_SECONDS)
    if limits.bytes is not None and usage.day + post.length > limits.bytes:
        raise too_many(f"{usage.day} bytes were sent in 24 hours (limits.bytes)", 3600)
    if limits.tables is not None and post.lane.table not in usage.tables and len(usage.tables) >= limits.tables:
        raise RefusedRequest(403, f"{len(usage.tables)} tables are written to already (limits.tables)")
    lane = post.lane
    if (lane.table, lane.channel) not in usage.channels and len(usage.channels) >= limits.channels:
        raise RefusedRequest(403, f"{len(usage.channels)} channels are written to already (limits.channels)")
    if (lane.table, lane.channel, lane.partition) not in usage.lanes and len(usage.lanes) >= limits.partitions:
        raise too_many(f"{len(usage.lanes)} partitions wait for being closed (limits.partitions)", _BACKLOG_SECONDS)


def too_many(error: str, seconds: int) -> RefusedRequest:
    """Return what somebody is told who sends too much now."""
    return RefusedRequest(429, error, {"Retry-After": str(max(seconds, 1))})
