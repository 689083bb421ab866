"""Tables as a region's Spark reads them: by their metadata.json and the credentials of their stores, and nothing else.

They are shown to it in a catalog in its own memory, so no other version of them than the one that is named is ever
read, and no catalog of the deployment is asked. It needs Iceberg's runtime, and that of the kind of store.
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

from sterna.background import in_background
from sterna.edges.spark.refusals import refusal
from sterna.edges.spark.start import (
    CANCEL_AGAIN_SECONDS,
    Late,
    address,
    cancel,
    failures,
    is_connect,
    require_pyspark,
    run_aside,
    start_classic,
    start_connect,
    summary,
    tagged,
)
from sterna.edges.spark.worker import redact
from sterna.errors import EngineError, EngineRefused, OutOfTime, QueryEnded
from sterna.stopping import Stop

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

# Spark shows no value of a setting that has "secret" in its name, and so none of this catalog's.
_CATALOG = "sterna_secret"
_SETTINGS = f"spark.sql.catalog.{_CATALOG}"
_REDACTION = "(?i)secret|password|token|access[.]?key"  # Spark's default
_TABLES = 500  # that a session is shown before another one takes its place
_TOLD = "key|secret|token|sas|connection-string"  # to nobody: in the names of FileIO's properties


@dataclass(frozen=True)
class TableRead:
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
    """A session of Spark whose catalog reads by some properties.

    Args:
        spark: the session.
        properties: how Iceberg's FileIO reaches files; secret.
        database: of the catalog, in memory.
        tables: that it knows.
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
        under_way: the session of each job that runs, by the job's tag.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._lock = threading.Lock()
        self._application: Future[SparkSession] | None = None
        self._idle: list[TableSession] = []
        self.under_way: dict[str, SparkSession] = {}
        self._closed = False

    def read(
        self,
        wanted: TableRead,
        properties: Mapping[str, str],
        take: Callable[[pa.RecordBatch], None],
        seconds: float,
        stop: Stop | None = None,
    ) -> None:
        """Hand over what is read, batch by batch, in no order that means anything.

        Args:
            wanted: what to read.
            properties: how Iceberg's FileIO reaches the table's files; secret.
            take: gets each batch, in another thread; what it raises ends the reading.
            seconds: after them the job is cancelled.
            stop: cancels it, from another thread.

        Raises:
            OutOfTime: the seconds are over.
            QueryEnded: `close` was called, or it was stopped.
            EngineRefused: it can't be read, and not by a later run either.
            EngineError: Spark can't be reached, can't read it, or would show the properties' secrets.
        """
        self._refuse_closed()
        require_pyspark()
        tag = f"sterna-{uuid.uuid4().hex}"
        place, stop = address(self._master), stop or Stop()

        def go_on() -> None:
            self._refuse_closed()
            if stop.is_set:
                raise QueryEnded("nobody waits for the query any more")

        try:
            with stop.waking(lambda: self._cancel_aside(tag)):
                run_aside(
                    lambda: self._read(tag, wanted, properties, take, time.monotonic() + seconds, go_on),
                    lambda: self._cancel(tag),
                    seconds,
                )
        except (Late, NotYet):
            self._cancel_aside(tag)
            raise OutOfTime(f"the region's Spark, at {place}, took more than {seconds:.1f} s") from None
        except failures() as error:
            go_on()
            refused = refusal(error, "", reads=True, clean=lambda said: without_secret_values(said, properties))
            if isinstance(refused, EngineRefused):
                raise refused from None
            raise EngineError(f"Spark at {place} failed: {without_secret_values(summary(error), properties)}") from None

    def close(self) -> None:
        """Cancel what is under way; nothing is read any more. An application that was started ends with the process."""
        with self._lock:
            self._closed = True
            under_way = list(self.under_way)
        for tag in under_way:
            self._cancel(tag)  # at once: the process may end
            self._cancel_aside(tag)

    def _read(
        self,
        tag: str,
        wanted: TableRead,
        properties: Mapping[str, str],
        take: Callable[[pa.RecordBatch], None],
        end: float,
        go_on: Callable[[], None],
    ) -> None:
        session = self.session_for(properties, end)

        def taken(batch: pa.RecordBatch) -> None:
            if time.monotonic() > end:  # nobody waits for it any more
                raise Late
            go_on()
            take(batch)

        try:
            with self._cancellable(tag, session.spark):
                go_on()
                hand_over(session, wanted, taken, tag)
        except BaseException:
            self.end_session(session)
            raise
        self._keep(session)

    @contextmanager
    def _cancellable(self, tag: str, spark: SparkSession) -> Iterator[None]:
        with self._lock:
            self.under_way[tag] = spark
        try:
            yield
        finally:
            with self._lock:
                del self.under_way[tag]

    def _cancel(self, tag: str) -> bool:
        """Cancel what runs under a tag; return whether anything does."""
        with self._lock:
            spark = self.under_way.get(tag)
        if spark is not None:
            with suppress(*failures()):
                cancel(spark, tag)
        return spark is not None

    def _cancel_aside(self, tag: str) -> None:
        """Cancel from a thread of its own: whoever asks for that may not wait for Spark."""

        def until_ended() -> None:
            while self._cancel(tag):  # what comes just before the job begins cancels nothing
                time.sleep(CANCEL_AGAIN_SECONDS)

        threading.Thread(target=until_ended, daemon=True, name="sterna-spark-cancel").start()

    def _refuse_closed(self) -> None:
        if self._closed:
            raise QueryEnded("tables are not read any more: the process is ending")

    def session_for(self, properties: Mapping[str, str], end: float) -> TableSession:
        """Return a session that nobody else uses: what is to be cancelled is known by a setting of its session."""
        if is_connect(self._master):
            return _with_catalog(start_connect(self._master), properties)
        with self._lock:
            for session in self._idle:
                if session.properties == properties:
                    self._idle.remove(session)
                    return session
            others, self._idle = self._idle, []
        for session in others:  # their keys were replaced
            self.end_session(session)
        return _with_catalog(self._started().result(end - time.monotonic()).newSession(), properties)

    def _started(self) -> Future[SparkSession]:
        """Return the application that is started or runs already; a start that takes long is waited for by many."""
        with self._lock:
            known = self._application
            if known is None or (known.done() and known.exception() is not None):
                known = self._application = in_background(partial(_start, self._master), "sterna-spark")
            return known

    def _keep(self, session: TableSession) -> None:
        # A server forgets sessions that stand idle.
        if is_connect(self._master) or len(session.tables) >= _TABLES:
            self.end_session(session)
        else:
            with self._lock:
                self._idle.append(session)

    def end_session(self, session: TableSession) -> None:
        """Let go of what Spark and Derby hold for a session."""
        with suppress(*failures()):  # by which Derby also says that it has dropped what it held in memory
            session.spark.read.jdbc(f"{session.database};drop=true", "nothing")
        if is_connect(self._master):
            connect: Any = session.spark
            with suppress(*failures()):
                # Not `stop`: under a lock of all sessions' it waits for answers that a session's end makes fail.
                connect.client.release_session()


def _start(master: str) -> SparkSession:
    spark = start_classic(master, "sterna", {})[0]
    system: Any = spark._jvm.java.lang.System  # type: ignore[union-attr, unused-ignore]
    if system.getProperty("derby.stream.error.file") is None:
        system.setProperty("derby.stream.error.file", os.devnull)  # else it logs into the current folder
    return spark


def _with_catalog(spark: SparkSession, properties: Mapping[str, str]) -> TableSession:
    database = f"jdbc:derby:memory:sterna-{uuid.uuid4().hex}"
    settings = {
        _SETTINGS: "org.apache.iceberg.spark.SparkCatalog",
        # Of Iceberg's catalogs the one that takes a metadata.json and a FileIO, and needs no server: Spark has Derby.
        f"{_SETTINGS}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
        f"{_SETTINGS}.uri": f"{database};create=true",
        f"{_SETTINGS}.warehouse": "file:///nothing/is/written",
        f"{_SETTINGS}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
        f"{_SETTINGS}.cache-enabled": "false",
        **{f"{_SETTINGS}.{name}": text for name, text in properties.items()},
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.caseSensitive": "true",
    }
    refuse_shown(spark, [f"{_SETTINGS}.{name}" for name in properties])
    for name, text in settings.items():
        spark.conf.set(name, text)
    return TableSession(spark, dict(properties), database)


def without_secret_values(text: str, properties: Mapping[str, str]) -> str:
    """Return a text with what is secret of FileIO's properties replaced by `***`.

    Args:
        text: what Spark said.
        properties: the properties.
    """
    return redact(text, {name: value for name, value in properties.items() if re.search(_TOLD, name)})


def refuse_shown(spark: SparkSession, names: list[str]) -> None:
    """Refuse to hand secrets to a Spark that would show them; see `edges/spark/session.py` of its event log."""
    try:
        shown = not re.search(spark.conf.get("spark.redaction.regex", _REDACTION) or "", _SETTINGS)
    except re.error:
        shown = True
    if names and shown:
        raise EngineError(f"Spark would show secrets: spark.redaction.regex does not match {_SETTINGS}")
    if names and spark.conf.get("spark.eventLog.enabled", "false") == "true":
        known = {row["key"] for row in spark.sql("SET").collect()}
        if missing := sorted(set(names) - known):
            said = " ".join(f"--conf {name}=-" for name in missing)
            raise EngineError(f"Spark would write secrets into its event log, unless it is started with {said}")


def hand_over(session: TableSession, wanted: TableRead, take: Callable[[pa.RecordBatch], None], tag: str) -> None:
    """Read by a session, under a tag by which the job can be cancelled, and hand over each batch."""
    spark = session.spark
    with tagged(spark, tag):
        frame = spark.sql(_select(_shown_as(session, wanted.metadata), wanted))
        try:
            for batch in batches(frame):
                take(batch)
        except BaseException:
            with suppress(*failures()):
                cancel(spark, tag)
            raise


def _shown_as(session: TableSession, metadata: str) -> str:
    name = f"pinned.t{hashlib.sha256(metadata.encode()).hexdigest()[:32]}"
    if name not in session.tables:
        call = f"CALL {_CATALOG}.system.register_table(table => '{name}', metadata_file => {_text(metadata)})"
        session.spark.sql(call).collect()
        session.tables.add(name)
    return f"{_CATALOG}.{name}"


def _select(table: str, wanted: TableRead) -> str:
    columns = ", ".join("`" + name.replace("`", "``") + "`" for name in wanted.columns)
    version = "" if wanted.snapshot is None else f" VERSION AS OF '{wanted.snapshot}'"
    return f"SELECT {columns} FROM {table}{version}" + (f" WHERE {wanted.where}" if wanted.where else "")  # noqa: S608


def _text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def batches(frame: Any) -> Iterator[pa.RecordBatch]:
    """Yield what a query returns as it comes: Spark's own `toArrow` would hold all of it.

    Args:
        frame: a DataFrame.
    """
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
        if isinstance(batch, pa.RecordBatch):  # the last thing that comes is their order
            yield batch
    server.getResult()
