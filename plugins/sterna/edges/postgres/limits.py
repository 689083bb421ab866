"""How long a Postgres may take to answer, kept on this side: one that hangs keeps no timeout of its own.

A server that was stopped, or whose disk hangs, goes on acknowledging at TCP's level: neither keepalives nor its own
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

from sterna.background import in_background
from sterna.errors import DatabaseRefused, DatabaseUnreachable
from sterna.registry.model import Region

T = TypeVar("T")
IN_DOUBT = "may be at work, and does not answer"
"""What an error says of a Postgres that nothing shows to be gone."""
_GRACE = 1.0  # a region's own limit says better what it waited for
_NEVER = 1_000_000.0


@dataclass(frozen=True)
class PostgresLimits:
    """How long a region's Postgres may take.

    Args:
        statement: seconds for one statement.
        total: seconds for all that a connection is for, connecting included; None: no limit.
    """

    statement: float
    total: float | None = None


class LimitedConnection(Connection[Any]):
    """A connection that is cut as soon as an answer is late."""

    late = ""
    _statement = _NEVER
    _total = _NEVER
    _end = _NEVER + _NEVER

    def limit(self, limits: PostgresLimits, started: float) -> None:
        """Set how long it may take.

        Args:
            limits: from now on.
            started: when connecting began, by the monotonic clock.
        """
        self._statement = limits.statement
        self._total = _NEVER if limits.total is None else limits.total
        self._end = started + self._total if limits.total is not None else started + _NEVER

    @contextmanager
    def cut_when_late(self) -> Iterator[None]:
        """Cut the connection when what is waited for in this block takes too long; psycopg then finds it closed."""
        try:
            handle = self.pgconn.socket
        except OperationalError:  # it is closed, which whoever uses it finds out
            yield
            return
        left = self._end - time.monotonic()
        seconds, limit = min((self._statement, self._statement), (left, self._total))
        # A file descriptor of its own: it still means this connection after psycopg closed its own.
        own = socket.socket(fileno=os.dup(handle))
        timer = Timer(max(seconds, 0.0), self._cut, (own, limit))
        timer.daemon = True
        timer.start()
        try:
            yield
        finally:
            timer.cancel()
            timer.join()
            own.close()

    def wait(self, gen: PQGen[RV], *given: Any, **named: Any) -> RV:
        """Wait for whatever psycopg waits for, no longer than the limits say."""
        with self.cut_when_late():
            return super().wait(gen, *given, **named)

    def _cut(self, own: socket.socket, limit: float) -> None:
        self.late = f"no answer within {limit:g} s"
        try:
            own.shutdown(socket.SHUT_RDWR)
        except OSError:  # closed meanwhile
            return


def ask_all(
    regions: Sequence[Region], ask: Callable[[Region], T], seconds: Callable[[Region], float]
) -> list[T | DatabaseUnreachable | DatabaseRefused]:
    """Ask all regions at once and return their answers in the same order.

    The answer of a silent one is that it is unreachable, and of one that says no that it refused: it is one region's
    trouble.

    Nobody waits for a thread that hangs: it ends by itself or with the process.

    Args:
        regions: whom to ask.
        ask: how; whatever else it raises is raised.
        seconds: how long a region may take.
    """
    started = time.monotonic()
    futures = [in_background(partial(ask, region), f"sterna-ask-{region.name}") for region in regions]
    answers: list[T | DatabaseUnreachable | DatabaseRefused] = []
    for region, future in zip(regions, futures, strict=True):
        limit = seconds(region)
        try:
            answers.append(future.result(max(started + limit + _GRACE - time.monotonic(), 0.0)))
        except (DatabaseUnreachable, DatabaseRefused) as error:
            answers.append(error)
        except TimeoutError:
            answers.append(
                DatabaseUnreachable(
                    f"the catalog's Postgres of region {region.name} {IN_DOUBT}: no answer within {limit:g} s"
                )
            )
    return answers
