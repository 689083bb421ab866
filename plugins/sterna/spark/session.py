"""Spark as the place where many small items are worked on: a master or a Spark Connect server, behind the same
functions.

Secrets go to the workers in the configuration of our own session, under a name that Spark redacts: not in a closure, a
file, a command line, the web UI or the event log. They cross the network with every task, so a cluster of more than one
machine needs `spark.network.crypto.enabled` (and Spark Connect `use_ssl`), or workers that hold the variables
themselves.
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.errors import EngineError
from sterna.spark.start import (
    RESUME_HINT,
    address,
    cancel,
    end_retries,
    is_connect,
    job_tag,
    require_pyspark,
    require_redaction,
    retry_requests,
    run_in_thread,
    spark_errors,
    start_classic,
    start_connect,
    summarize_error,
)
from sterna.spark.worker import FAILURE_MARK, RESULT_SCHEMA, SECRETS_KEY, redact, run_items
from sterna.spark.worker_code import prepare_workers

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_TASKS_PER_SLOT = 3  # so that one heavy item does not keep the other cores waiting; each task costs some 0.1 s
_PROGRESS_SECONDS = 0.5


@dataclass(frozen=True)
class Session:
    """A Spark session with checked workers.

    Args:
        spark: PySpark's session, classic or Connect; not shared, so its configuration isn't either.
        master: the master or Spark Connect URL, without parameters.
        connect: whether it is a Spark Connect session.
        owned: whether closing it may stop what it runs on.
        slots: how many tasks run at the same time.
        environment: variables for the workers where a job names none.
    """

    spark: SparkSession = field(repr=False)
    master: str
    connect: bool
    owned: bool
    slots: int
    environment: Mapping[str, str] = field(repr=False)


def open_session(
    master: str,
    *,
    app_name: str = "sterna",
    settings: Mapping[str, str] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Session:
    """Return a session on a Spark master or at a Spark Connect server, with sterna's code on its workers.

    A Spark application that runs in this process already is used, and never stopped by `close_session`.

    Args:
        master: `local[2]`, `spark://…`, `yarn`, `k8s://…`, or `sc://host:port` for Spark Connect.
        app_name: what a new application calls itself.
        settings: Spark settings without secrets; those that can't be changed on what runs already are left out there.
        environment: secret variables for workers, for jobs that name none.

    Raises:
        EngineError: Spark can't be started or reached, or its workers lack packages.
    """
    require_pyspark()
    spark_settings = dict(settings or {})
    shown_master = address(master)
    try:
        spark, owned = (
            (start_connect(master), True) if is_connect(master) else start_classic(master, app_name, spark_settings)
        )
        session = Session(spark, shown_master, is_connect(master), owned, 1, dict(environment or {}))
        try:
            _apply_settings(spark, spark_settings)
            return replace(session, slots=prepare_workers(spark, shown_master, connect=session.connect))
        except BaseException:
            close_session(session)
            raise
    except spark_errors() as error:
        raise EngineError(f"Spark at {shown_master} failed: {summarize_error(error)}", hint=RESUME_HINT) from error


def close_session(session: Session) -> None:
    """End a session, and the Spark application below it where `open_session` started that."""
    if session.owned:
        with suppress(*spark_errors()):  # a server that is gone has nothing left to end
            session.spark.stop()


def map_items(
    session: Session,
    function: Callable[[str], str],
    items: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    parallelism: int | None = None,
    label: str = "sterna",
    on_done: Callable[[int], None] | None = None,
) -> list[str]:
    """Return a function's result for every item, worked out in Spark's Python workers.

    Tasks take the items in their order, so the heaviest belong first. Ctrl-C, or any exception, cancels the job. A
    session runs one call at a time.

    Args:
        function: defined at the top of a module that the workers can import; it may run more than once for an item.
        items: what it is called with, without secrets.
        environment: secret variables that the function sees while it runs; None for the session's.
        parallelism: the number of tasks; None for one an item, up to three times what runs at once.
        label: what Spark's pages call the job.
        on_done: called with the number of items done so far, estimated from finished tasks.

    Raises:
        EngineError: the function raised, or Spark failed; without secrets.
    """
    if not items:
        return []
    secrets = session.environment if environment is None else environment
    tasks = min(len(items), parallelism or session.slots * _TASKS_PER_SLOT)
    tag = f"sterna-{uuid.uuid4().hex}"
    finished = _FinishedItems(len(items), tasks, on_done) if on_done else None
    retry_requests(session.spark)  # the job before may have ended that
    try:
        with (
            _temporary_settings(session.spark, _job_settings(tasks, label)),
            _secrets_in_configuration(session, secrets),
            _watch_progress(session, tag, finished),
            end_retries(session.spark),
        ):
            rows = run_in_thread(
                lambda: _collect(session.spark, function, items, tag), lambda: cancel(session.spark, tag)
            )
    except spark_errors() as error:
        raise _job_error(session, error, secrets) from None  # the original may hold secrets
    results = {row["index"]: row["result"] for row in rows}
    if len(results) != len(items):
        raise EngineError(
            f"Spark at {session.master} returned {len(results)} of {len(items)} results", hint=RESUME_HINT
        )
    return [results[index] for index in range(len(items))]


def _collect(spark: SparkSession, function: Callable[[str], str], items: Sequence[str], tag: str) -> list[Row]:
    import pyarrow as pa

    table = pa.table({"index": pa.array(range(len(items)), pa.int64()), "item": pa.array(items, pa.string())})
    with job_tag(spark, tag):
        return spark.createDataFrame(table).mapInArrow(partial(run_items, function), RESULT_SCHEMA).collect()


def _job_settings(tasks: int, label: str) -> dict[str, str]:
    return {
        # A small local table is cut into this many tasks of neighbouring rows, without a shuffle.
        "spark.sql.leafNodeDefaultParallelism": str(tasks),
        # Settings of a session become properties of its jobs, so both kinds of session name them alike.
        "spark.job.description": label,
    }


@contextmanager
def _secrets_in_configuration(session: Session, secrets: Mapping[str, str]) -> Iterator[None]:
    if not secrets:
        yield
        return
    require_redaction(session.spark, {SECRETS_KEY: "{}"})
    session.spark.conf.set(SECRETS_KEY, json.dumps(dict(secrets)))
    try:
        yield
    finally:
        with suppress(*spark_errors()):  # the session is lost, and its configuration with it
            # Not unset: that would also hide that the server's own configuration names it.
            session.spark.conf.set(SECRETS_KEY, "{}")


def _apply_settings(spark: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if spark.conf.isModifiable(name):
            spark.conf.set(name, value)


@contextmanager
def _temporary_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    previous = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        with suppress(*spark_errors()):  # the session is lost, and its configuration with it
            for name, old in previous.items():
                if old is None:
                    spark.conf.unset(name)
                else:
                    spark.conf.set(name, old)


class _FinishedItems:
    """Turns finished tasks into finished items: tasks hold equal shares of them."""

    def __init__(self, items: int, tasks: int, on_done: Callable[[int], None]) -> None:
        self._items, self._tasks, self._on_done = items, tasks, on_done
        self._last = 0

    def update(self, tasks_done: int) -> None:
        done = self._items * min(tasks_done, self._tasks) // self._tasks
        if done > self._last:
            self._last = done
            self._on_done(done)


@contextmanager
def _watch_progress(session: Session, tag: str, finished: _FinishedItems | None) -> Iterator[None]:
    if finished is None:
        yield
        return
    with _connect_progress(session, finished) if session.connect else _classic_progress(session, tag, finished):
        yield
    finished.update(finished._tasks)


@contextmanager
def _connect_progress(session: Session, finished: _FinishedItems) -> Iterator[None]:
    def handler(stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        finished.update(sum(stage.num_completed_tasks for stage in stages or ()))

    session.spark.registerProgressHandler(handler)
    try:
        yield
    finally:
        session.spark.removeProgressHandler(handler)


@contextmanager
def _classic_progress(session: Session, tag: str, finished: _FinishedItems) -> Iterator[None]:
    tracker = session.spark.sparkContext.statusTracker()
    ended = threading.Event()

    def poll() -> None:
        with suppress(*spark_errors()):
            while not ended.wait(_PROGRESS_SECONDS):
                jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(tag)]
                stages = [tracker.getStageInfo(stage) for job in jobs if job for stage in job.stageIds]
                finished.update(sum(stage.numCompletedTasks for stage in stages if stage))

    thread = threading.Thread(target=poll, daemon=True, name="sterna-spark-progress")
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _job_error(session: Session, error: BaseException, secrets: Mapping[str, str]) -> EngineError:
    match = re.search(re.escape(FAILURE_MARK) + r"(\{.*\})", str(error))
    if match:
        with suppress(ValueError):
            return EngineError(
                f"a worker of Spark at {session.master} failed:\n{json.loads(match[1])['traceback']}", hint=RESUME_HINT
            )
    return EngineError(f"Spark at {session.master} failed: {redact(summarize_error(error), secrets)}", hint=RESUME_HINT)
