"""Client-side timeouts for Postgres: one that hangs enforces none of its own.

A server that was stopped, or whose disk hangs, still acknowledges at TCP's level: neither keepalives nor its own
`statement_timeout` end anything then.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from threading import Timer
from typing import Any, TypeVar

from psycopg import Connection, OperationalError
from psycopg.abc import RV, PQGen

from sterna.concurrency.background import run_in_background
from sterna.config.registry.model import Region
from sterna.errors import DatabaseRefused, DatabaseUnreachable

T = TypeVar("T")
IN_DOUBT = "may be at work, and does not answer"
"""The reason in errors of a Postgres that isn't shown to be gone."""
_GRACE_SECONDS = 1.0  # a region's own limit names what it waited for
_UNLIMITED_SECONDS = 1_000_000.0


@dataclass(frozen=True)
class PostgresLimits:
    """How long a region's Postgres may take.

    Args:
        statement_seconds: seconds for one statement.
        total_seconds: seconds for all that a connection is for, connecting included; None: no limit.
    """

    statement_seconds: float
    total_seconds: float | None = None


class LimitedConnection(Connection[Any]):
    """A connection that is cut as soon as an answer is late."""

    late = ""
    _statement_seconds = _UNLIMITED_SECONDS
    _total_seconds = _UNLIMITED_SECONDS
    _deadline = _UNLIMITED_SECONDS + _UNLIMITED_SECONDS

    def set_limits(self, limits: PostgresLimits, started: float) -> None:
        """Set how long it may take.

        Args:
            limits: from now on.
            started: when connecting began, by the monotonic clock.
        """
        self._statement_seconds = limits.statement_seconds
        self._total_seconds = _UNLIMITED_SECONDS if limits.total_seconds is None else limits.total_seconds
        self._deadline = (
            started + self._total_seconds if limits.total_seconds is not None else started + _UNLIMITED_SECONDS
        )

    @contextmanager
    def abort_on_timeout(self) -> Iterator[None]:
        """Cut the connection when what is waited for in this block takes too long; psycopg then finds it closed."""
        try:
            handle = self.pgconn.socket
        except OperationalError:  # it is closed, which its user sees
            yield
            return
        remaining = self._deadline - time.monotonic()
        seconds, limit = min((self._statement_seconds, self._statement_seconds), (remaining, self._total_seconds))
        # A file descriptor of its own: it still means this connection after psycopg closed its own.
        duplicate = socket.socket(fileno=os.dup(handle))
        timer = Timer(max(seconds, 0.0), self._abort, (duplicate, limit))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            duplicate.close()

    def wait(self, gen: PQGen[RV], *args: Any, **kwargs: Any) -> RV:
        """Wait as psycopg does, within the limits."""
        with self.abort_on_timeout():
            return super().wait(gen, *args, **kwargs)

    def _abort(self, duplicate: socket.socket, limit: float) -> None:
        self.late = f"no answer within {limit:g} s"
        try:
            duplicate.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed meanwhile
            return


def query_regions(
    regions: Sequence[Region], query: Callable[[Region], T], seconds: Callable[[Region], float]
) -> list[T | DatabaseUnreachable | DatabaseRefused]:
    """Query all regions at once and return their answers in the same order.

    For a region that doesn't answer or refuses the answer is the error: it concerns that region alone.

    A thread that hangs isn't joined: it ends by itself or with the process.

    Args:
        regions: the regions to query.
        query: how; whatever else it raises is raised.
        seconds: how long a region may take.
    """
    started = time.monotonic()
    futures = [run_in_background(partial(query, region), f"sterna-ask-{region.name}") for region in regions]
    answers: list[T | DatabaseUnreachable | DatabaseRefused] = []
    for region, future in zip(regions, futures, strict=True):
        limit = seconds(region)
        try:
            answers.append(future.result(max(started + limit + _GRACE_SECONDS - time.monotonic(), 0.0)))
        except (DatabaseUnreachable, DatabaseRefused) as error:
            answers.append(error)
        except TimeoutError:
            answers.append(
                DatabaseUnreachable(
                    f"the catalog's Postgres of region {region.name} {IN_DOUBT}: no answer within {limit:g} s"
                )
            )
    return answers
