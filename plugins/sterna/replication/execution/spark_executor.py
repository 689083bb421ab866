"""Where localizing is done when there is much of it: the region's Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from sterna.errors import EngineError
from sterna.replication.replica.region import Progress, RegionContext

if TYPE_CHECKING:
    from sterna.spark.session import Session

_PROGRESS_SECONDS = 10.0
# Runs one function over JSON items somewhere and returns the JSON results in order.
Engine = Callable[[Callable[[str], str], Sequence[str], str], Iterable[str]]


@contextmanager
def spark_engine(context: RegionContext, progress: Progress) -> Iterator[Engine]:
    """Yield the engine that works on the region's Spark.

    The session is opened for the first work, and closed at the end.
    """
    sessions: list[Session] = []
    closed = threading.Event()

    def engine(function: Callable[[str], str], items: Sequence[str], label: str) -> Iterable[str]:
        from sterna.spark.session import close_session, map_items

        if not sessions:
            sessions.append(open_spark(context))
            if closed.is_set():  # the caller was interrupted while Spark was starting, perhaps for minutes
                close_session(sessions[0])
                raise EngineError("the pass was cancelled while Spark was starting")
            progress(f"Spark: {context.region.spark}")
        # Read again for each pass: keys that expire after an hour would fail all passes after a longer one.
        on_done = _progress_reporter(progress, label, len(items))
        return map_items(
            sessions[0], function, items, label=label, environment=_worker_environment(context), on_done=on_done
        )

    try:
        yield engine
    finally:
        closed.set()
        if sessions:
            from sterna.spark.session import close_session

            close_session(sessions[0])


def _progress_reporter(progress: Progress, label: str, items: int) -> Callable[[int], None]:
    """Return a function that reports from time to time how many items are done."""
    last_reported = time.monotonic()

    def report(done: int) -> None:
        nonlocal last_reported
        if done < items and time.monotonic() - last_reported >= _PROGRESS_SECONDS:
            last_reported = time.monotonic()
            progress(f"{label}: {done} of {items} items done on Spark")

    return report


def open_spark(context: RegionContext) -> Session:
    """Open a session on the region's Spark; its workers get the credentials of the registry's locations.

    Raises:
        EngineError: Spark can't be reached, or its workers lack a package.
        CredentialError: a credential is missing.
    """
    from sterna.spark.session import open_session

    return open_session(context.region.spark, environment=_worker_environment(context))


def _worker_environment(context: RegionContext) -> dict[str, str]:
    from sterna.config.secrets import connection_environment

    names = [location.credential_id for location in context.registry.locations if location.credential_id]
    return connection_environment(names, context.secrets)


def engine_or_spark(
    context: RegionContext, progress: Progress, engine: Engine | None
) -> AbstractContextManager[Engine]:
    """Return the given engine, or the region's Spark where there is none."""
    return spark_engine(context, progress) if engine is None else nullcontext(engine)
