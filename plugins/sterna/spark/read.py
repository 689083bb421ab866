"""Tables as a region's Spark reads them: by their metadata.json and the credentials of their stores, and nothing else.

They are registered in a catalog in its memory, so that exactly the named version is read, without any catalog of the
deployment. It needs Iceberg's runtime, and that of the kind of store.
"""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.concurrency.background import run_in_background
from sterna.concurrency.cancellation import Stop
from sterna.errors import EngineError, EngineRefused, OutOfTime, QueryEnded
from sterna.spark.errors import permanent_error
from sterna.spark.start import (
    CANCEL_RETRY_SECONDS,
    DeadlinePassed,
    address,
    cancel,
    is_connect,
    job_tag,
    require_pyspark,
    require_redaction,
    run_in_thread,
    spark_errors,
    start_classic,
    start_connect,
    summarize_error,
)
from sterna.spark.worker import redact
from sterna.sql_identifiers import quote_backtick

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Spark shows no value of a setting that has "secret" in its name, and so none of this catalog's.
_CATALOG = "sterna_secret"
_SETTINGS = f"spark.sql.catalog.{_CATALOG}"
_MAX_SESSION_TABLES = 500  # that a session is shown before another one takes its place
_SENSITIVE_NAMES = "key|secret|token|sas|connection-string"  # in names of FileIO's properties that no log may show


@dataclass(frozen=True)
class TableScan:
    """What is read of a table.

    Args:
        metadata: its metadata.json.
        snapshot: the snapshot, read by its own schema; None: the current one, by the current schema.
        columns: those that are read, at least one.
        where: a condition in Spark's SQL, "" for none.
    """

    metadata: str
    snapshot: int | None
    columns: tuple[str, ...]
    where: str = ""


@dataclass
class TableSession:
    """A Spark session with a catalog that reads by some properties.

    Args:
        properties: how Iceberg's FileIO reaches files; secret.
        database: of the catalog, in memory.
        tables: those that are registered in it.
    """

    spark: SparkSession
    properties: Mapping[str, str] = field(repr=False)
    database: str
    tables: set[str] = field(default_factory=set)


class SparkTables:
    """Reads tables by a Spark, which is started or reached when the first one is read; for any number of threads.

    Args:
        master: a Spark master, or the address of a Spark Connect server.

    Attributes:
        running_jobs: the session of each job that runs, by the job's tag.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._lock = threading.Lock()
        self._application: Future[SparkSession] | None = None
        self._idle: list[TableSession] = []
        self.running_jobs: dict[str, SparkSession] = {}
        self._closed = False

    def read(
        self,
        scan: TableScan,
        properties: Mapping[str, str],
        on_batch: Callable[[pa.RecordBatch], None],
        timeout: float,
        stop: Stop | None = None,
    ) -> None:
        """Pass the rows to a callback, batch by batch, in arbitrary order.

        Args:
            properties: how Iceberg's FileIO reaches the table's files; secret.
            on_batch: gets each batch, in another thread; what it raises ends the reading.
            timeout: after them the job is cancelled.
            stop: cancels it, from another thread.

        Raises:
            OutOfTime: the seconds are over.
            QueryEnded: `close` was called, or it was stopped.
            EngineRefused: it can't be read, and not by a later run either.
            EngineError: Spark can't be reached, can't read it, or would show the properties' secrets.
        """
        self._require_open()
        require_pyspark()
        tag = f"sterna-{uuid.uuid4().hex}"
        shown_master, stop = address(self._master), stop or Stop()

        def require_running() -> None:
            self._require_open()
            if stop.is_set:
                raise QueryEnded("no request waits for the query any more")

        try:
            with stop.on_set(lambda: self._cancel_in_thread(tag)):
                run_in_thread(
                    lambda: self._read(tag, scan, properties, on_batch, time.monotonic() + timeout, require_running),
                    lambda: self._cancel(tag),
                    timeout,
                )
        except (DeadlinePassed, NotYet):
            self._cancel_in_thread(tag)
            raise OutOfTime(f"the region's Spark, at {shown_master}, took more than {timeout:.1f} s") from None
        except spark_errors() as error:
            require_running()
            permanent = permanent_error(
                error, "", read_only=True, clean=lambda text: redact_properties(text, properties)
            )
            if isinstance(permanent, EngineRefused):
                raise permanent from None
            raise EngineError(
                f"Spark at {shown_master} failed: {redact_properties(summarize_error(error), properties)}"
            ) from None

    def close(self) -> None:
        """Cancel what is under way; nothing is read any more. An application that was started ends with the process."""
        with self._lock:
            self._closed = True
            tags = list(self.running_jobs)
        for tag in tags:
            self._cancel(tag)  # at once: the process may end
            self._cancel_in_thread(tag)

    def _read(
        self,
        tag: str,
        scan: TableScan,
        properties: Mapping[str, str],
        on_batch: Callable[[pa.RecordBatch], None],
        deadline: float,
        require_running: Callable[[], None],
    ) -> None:
        session = self.acquire_session(properties, deadline)

        def forward(batch: pa.RecordBatch) -> None:
            if time.monotonic() > deadline:  # the caller has given up
                raise DeadlinePassed
            require_running()
            on_batch(batch)

        try:
            with self._cancellable(tag, session.spark):
                require_running()
                read_batches(session, scan, forward, tag)
        except BaseException:
            self.end_session(session)
            raise
        self._release_session(session)

    @contextmanager
    def _cancellable(self, tag: str, spark: SparkSession) -> Iterator[None]:
        with self._lock:
            self.running_jobs[tag] = spark
        try:
            yield
        finally:
            with self._lock:
                del self.running_jobs[tag]

    def _cancel(self, tag: str) -> bool:
        """Cancel what runs under a tag; return whether anything does."""
        with self._lock:
            spark = self.running_jobs.get(tag)
        if spark is not None:
            with suppress(*spark_errors()):
                cancel(spark, tag)
        return spark is not None

    def _cancel_in_thread(self, tag: str) -> None:
        """Cancel from a thread of its own: the caller must not wait for Spark."""

        def cancel_until_ended() -> None:
            while self._cancel(tag):  # a cancellation right before the job begins has no effect
                time.sleep(CANCEL_RETRY_SECONDS)

        threading.Thread(target=cancel_until_ended, daemon=True, name="sterna-spark-cancel").start()

    def _require_open(self) -> None:
        if self._closed:
            raise QueryEnded("tables are not read any more: the process is ending")

    def acquire_session(self, properties: Mapping[str, str], deadline: float) -> TableSession:
        """Return a session that no other query uses: a job is cancelled by a setting of its session."""
        if is_connect(self._master):
            return _create_session(start_connect(self._master), properties)
        with self._lock:
            for session in self._idle:
                if session.properties == properties:
                    self._idle.remove(session)
                    return session
            outdated, self._idle = self._idle, []
        for session in outdated:  # their keys were replaced
            self.end_session(session)
        return _create_session(self._start_once().result(deadline - time.monotonic()).newSession(), properties)

    def _start_once(self) -> Future[SparkSession]:
        """Return the application that is started or runs already; a start that takes long is waited for by many."""
        with self._lock:
            application = self._application
            if application is None or (application.done() and application.exception() is not None):
                application = self._application = run_in_background(partial(_start, self._master), "sterna-spark")
            return application

    def _release_session(self, session: TableSession) -> None:
        # A server drops idle sessions.
        if is_connect(self._master) or len(session.tables) >= _MAX_SESSION_TABLES:
            self.end_session(session)
        else:
            with self._lock:
                self._idle.append(session)

    def end_session(self, session: TableSession) -> None:
        """Let go of what Spark and Derby hold for a session."""
        with suppress(*spark_errors()):  # Derby also reports a dropped database so
            session.spark.read.jdbc(f"{session.database};drop=true", "nothing")
        if is_connect(self._master):
            connect: Any = session.spark
            with suppress(*spark_errors()):
                # Not `stop`: under a lock of all sessions' it waits for answers that a session's end makes fail.
                connect.client.release_session()


def _start(master: str) -> SparkSession:
    spark = start_classic(master, "sterna", {})[0]
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr, unused-ignore]
    if system.getProperty("derby.stream.error.file") is None:
        system.setProperty("derby.stream.error.file", os.devnull)  # else it logs into the current folder
    return spark


def _create_session(spark: SparkSession, properties: Mapping[str, str]) -> TableSession:
    database = f"jdbc:derby:memory:sterna-{uuid.uuid4().hex}"
    settings = {
        _SETTINGS: "org.apache.iceberg.spark.SparkCatalog",
        # Of Iceberg's catalogs the one that takes a metadata.json and a FileIO, and needs no server: Spark has Derby.
        f"{_SETTINGS}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{_SETTINGS}.uri": f"{database};create=true",
        f"{_SETTINGS}.warehouse": "file:///nothing/is/written",
        f"{_SETTINGS}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        f"{_SETTINGS}.cache-enabled": "false",
        **{f"{_SETTINGS}.{name}": setting for name, setting in properties.items()},
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
    }
    require_redaction(spark, {f"{_SETTINGS}.{name}": "-" for name in properties})
    for name, setting in settings.items():
        spark.conf.set(name, setting)
    return TableSession(spark, dict(properties), database)


def redact_properties(text: str, properties: Mapping[str, str]) -> str:
    """Return a text with what is secret of FileIO's properties replaced by `***`.

    Args:
        text: a message of Spark's.
    """
    return redact(text, {name: value for name, value in properties.items() if re.search(_SENSITIVE_NAMES, name)})


def read_batches(session: TableSession, scan: TableScan, on_batch: Callable[[pa.RecordBatch], None], tag: str) -> None:
    """Read by a session, under a tag by which the job can be cancelled, and pass each batch on."""
    spark = session.spark
    with job_tag(spark, tag):
        frame = spark.sql(_select_sql(_register_table(session, scan.metadata), scan))
        try:
            for batch in iter_batches(frame):
                on_batch(batch)
        except BaseException:
            with suppress(*spark_errors()):
                cancel(spark, tag)
            raise


def _register_table(session: TableSession, metadata: str) -> str:
    name = f"pinned.t{hashlib.sha256(metadata.encode()).hexdigest()[:32]}"
    if name not in session.tables:
        call = f"CALL {_CATALOG}.system.register_table(table => '{name}', metadata_file => {_sql_literal(metadata)})"
        session.spark.sql(call).collect()
        session.tables.add(name)
    return f"{_CATALOG}.{name}"


def _select_sql(table: str, scan: TableScan) -> str:
    columns = ", ".join(map(quote_backtick, scan.columns))
    version = "" if scan.snapshot is None else f" VERSION AS OF '{scan.snapshot}'"
    return f"SELECT {columns} FROM {table}{version}" + (f" WHERE {scan.where}" if scan.where else "")  # noqa: S608


def _sql_literal(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def iter_batches(frame: Any) -> Iterator[pa.RecordBatch]:
    """Yield a query's batches as they come: Spark's own `toArrow` would hold all of them."""
    import pyarrow as pa
    from pyspark.sql import DataFrame as Classic

    if type(frame).__module__.startswith("pyspark.sql.connect"):
        client = frame.sparkSession.client
        for table in client.to_table_as_iterator(frame._plan.to_proto(client), frame._plan.observations):
            if isinstance(table, pa.Table):
                yield from table.to_batches()
        return
    assert isinstance(frame, Classic)
    from pyspark.sql.pandas.serializers import ArrowCollectSerializer
    from pyspark.util import _load_from_socket

    port, secret, server = frame._jdf.collectAsArrowToPython()
    serializer: Any = ArrowCollectSerializer
    for batch in _load_from_socket((port, secret), serializer()):
        if isinstance(batch, pa.RecordBatch):  # the last message is their order
            yield batch
    server.getResult()
