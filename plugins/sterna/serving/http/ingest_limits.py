"""Limits of what a tenant may send: each has a gate and threads of its own, so that none delays another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from math import ceil
from typing import TypeVar

from sterna.config.sections.ingest import TenantLimits
from sterna.pipelines.ingest.model import Format
from sterna.pipelines.ingest.tracker import Usage
from sterna.serving.http.errors import RequestError
from sterna.serving.http.ingest_schemas import UploadHeaders

T = TypeVar("T")
_MAX_THREADS = 8
_BACKLOG_RETRY_SECONDS = 10  # after which a tenant whose backlog is full may retry


class TenantGate:
    """One tenant's gate in one gateway.

    Args:
        name: the tenant.
    """

    def __init__(self, name: str, limits: TenantLimits) -> None:
        self.limits = limits
        self._threads = ThreadPoolExecutor(
            min(_MAX_THREADS, limits.max_concurrency), thread_name_prefix=f"sterna-ingest-{name}"
        )
        self._upload_rate, self._query_rate = (
            _TokenBucket(limits.requests, "requests"),
            _TokenBucket(limits.asks, "asks"),
        )
        self._active_uploads = 0

    @contextmanager
    def admit_upload(self, headers: UploadHeaders) -> Iterator[None]:
        """Take a place for one upload.

        Raises:
            RequestError: 413 or 429.
        """
        name, max_bytes = ("file", self.limits.file) if headers.format is Format.PARQUET else ("body", self.limits.body)
        if headers.length > max_bytes:
            raise RequestError(413, f"{headers.length} bytes, {max_bytes} are allowed (limits.{name})")
        if not headers.length:
            raise RequestError(422, "the body is empty")
        if self._active_uploads >= self.limits.max_concurrency:
            raise too_many_requests("too many uploads are under way (limits.max_concurrency)", 1)
        self._upload_rate.take_token()
        self._active_uploads += 1
        try:
            yield
        finally:
            self._active_uploads -= 1

    async def run(self, work: Callable[[], T]) -> T:
        """Do something in one of the tenant's threads."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    def admit_query(self) -> None:
        """Count a question.

        Raises:
            RequestError: 429, with `Retry-After`.
        """
        self._query_rate.take_token()


class _TokenBucket:
    """How many a second; a second's worth may come at once."""

    def __init__(self, rate: int, name: str) -> None:
        self._rate, self._name = rate, name
        self._tokens, self._filled_at = float(rate), time.monotonic()

    def take_token(self) -> None:
        now, rate = time.monotonic(), self._rate
        self._tokens = min(float(rate), self._tokens + (now - self._filled_at) * rate)
        self._filled_at = now
        if self._tokens < 1.0:
            raise too_many_requests(f"too many requests (limits.{self._name})", ceil((1.0 - self._tokens) / rate))
        self._tokens -= 1.0


def validate_usage(headers: UploadHeaders, usage: Usage, limits: TenantLimits) -> None:
    """See that a tenant may send more.

    Raises:
        RequestError: 403, or 429 with `Retry-After`.
    """
    if usage.backlog + headers.length > limits.backlog:
        raise too_many_requests(
            f"{usage.backlog} bytes wait for being published (limits.backlog)", _BACKLOG_RETRY_SECONDS
        )
    if limits.bytes is not None and usage.day + headers.length > limits.bytes:
        raise too_many_requests(f"{usage.day} bytes were sent in 24 hours (limits.bytes)", 3600)
    if (
        limits.tables is not None
        and headers.destination.table not in usage.tables
        and len(usage.tables) >= limits.tables
    ):
        raise RequestError(403, f"{len(usage.tables)} tables are written to already (limits.tables)")
    destination = headers.destination
    if (destination.table, destination.channel) not in usage.channels and len(usage.channels) >= limits.channels:
        raise RequestError(403, f"{len(usage.channels)} channels are written to already (limits.channels)")
    if (destination.table, destination.channel, destination.partition) not in usage.partitions and len(
        usage.partitions
    ) >= limits.partitions:
        raise too_many_requests(
            f"{len(usage.partitions)} partitions wait for being closed (limits.partitions)", _BACKLOG_RETRY_SECONDS
        )


def too_many_requests(error: str, seconds: int) -> RequestError:
    """Return the response to a client that sends too much now."""
    return RequestError(429, error, {"Retry-After": str(max(seconds, 1))})
