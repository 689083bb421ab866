"""Running one query in DuckDB: over what is registered, with nothing else in reach."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import duckdb
import pyarrow as pa

from sterna.concurrency.cancellation import Stop
from sterna.concurrency.periodic import run_periodically
from sterna.config.secrets import environment_secrets
from sterna.errors import AnswerTooLarge, OutOfTime, QueryEnded, QueryFailed, SternaError, UnfitParameters
from sterna.serving.queries.engine.files import ReadSession, RegionFiles
from sterna.serving.queries.engine.tables import open_table
from sterna.serving.queries.engine.values import json_value, type_name
from sterna.serving.queries.job import QueryJob, SparkRequest
from sterna.sql_identifiers import quote_ansi
from sterna.storage.objects import Objects

_INTERRUPT_POLL_SECONDS = 0.05
_TYPES = {
    "boolean": "BOOLEAN",
    "int": "INTEGER",
    "long": "BIGINT",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP",
    "timestamptz": "TIMESTAMP WITH TIME ZONE",
}
_BATCH_ROWS = 1000
_VALUE_ERRORS = frozenset(
    {"Invalid Input Error", "Out of Range Error", "Conversion Error", "Binder Error"}
    | {"Not implemented Error", "Syntax Error", "Parser Error", "Catalog Error", "Invalid Type Error"}
)
_UNREADABLE_STREAM = re.compile(r"Invalid Input Error: reading the stream registered as 'sterna_([0-9]+)' failed: (.*)")


def run_query(
    job: QueryJob, request_spark: Callable[[SparkRequest], str] | None = None, stop: Stop | None = None
) -> dict[str, Any]:
    """Run a query and return its rows and their types.

    Args:
        request_spark: lets Spark read rows, and returns the file that holds them, "" if there are none.
        stop: ends the query, from another thread.

    Returns:
        `types` by column, and `rows`: objects by column; both are fit for JSON.

    Raises:
        NeedsSpark: a table can't be read exactly here, and Spark isn't available.
        OutOfTime, AnswerTooLarge: a limit was reached.
        QueryEnded: it was stopped.
        UnfitParameters: it has no answer for the values of its parameters.
        QueryFailed: the engine refuses the query, the memory is insufficient, or the rows don't fit the kind of answer.
        StoreError, TableError, SnapshotGone: a table can't be read.
    """
    stop = stop or Stop()
    session = ReadSession(_region_files.open(job), job.seconds, request_spark, stop)
    try:
        with _connect(job, stop) as connection:
            schemas = _register(connection, job, session)
            connection.execute("SET lock_configuration = true")
            try:
                return _run_statement(connection, job, session)
            except (duckdb.Error, OSError) as error:
                raise session.failure or _translate_error(connection, job, error, stop, schemas) from None
    except SternaError as error:
        raise session.failure or error from None
    except MemoryError:
        raise _too_little_memory(job) from None
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        raise session.failure or QueryFailed(f"{type(error).__name__}: {error}") from None


class _RegionFilesCache:
    """The stores of the last job, for the next one, as long as registry and credentials are the same, and no repair has
    overwritten files meanwhile."""

    def __init__(self) -> None:
        self._last: tuple[Any, RegionFiles] | None = None

    def open(self, job: QueryJob) -> RegionFiles:
        """Return the stores of a job; one that did not answer the job before is called again."""
        determinants = (job.stores, job.credentials, job.repair)
        if self._last is None or self._last[0] != determinants:
            objects = Objects.from_spec(dict(job.stores), environment_secrets(job.credentials))
            self._last = determinants, RegionFiles(objects)
        self._last[1].objects.reset_circuit_breakers()
        return self._last[1]


_region_files = _RegionFilesCache()


@contextmanager
def _connect(job: QueryJob, stop: Stop) -> Iterator[duckdb.DuckDBPyConnection]:
    connection = duckdb.connect(
        ":memory:",
        config={
            "enable_external_access": "false",
            "autoload_known_extensions": "false",
            "autoinstall_known_extensions": "false",
            "python_enable_replacements": "false",
            "temp_directory": "",
            "threads": "1",
            "memory_limit": f"{job.memory}B",
        },
    )
    deadline = time.monotonic() + job.seconds

    def interrupt() -> None:
        # From then on again and again: what comes between two statements is lost.
        if time.monotonic() >= deadline or stop.is_set:
            connection.interrupt()

    try:
        with run_periodically(interrupt, _INTERRUPT_POLL_SECONDS, "sterna-query-limit"):
            connection.execute("SET TimeZone = 'UTC'")
            yield connection
    finally:
        connection.close()


def _register(connection: duckdb.DuckDBPyConnection, job: QueryJob, session: ReadSession) -> list[pa.Schema]:
    schemas = []
    for number, table in enumerate(job.tables):
        dataset = open_table(number, table, session)
        schemas.append(dataset.schema)
        connection.register(f"sterna_{number}", dataset)
        for depth in range(1, len(table.key)):
            path = ".".join(quote_ansi(part) for part in table.key[:depth])
            # Of three parts the first is a database of its own, in memory like the other.
            database = len(table.key) == 3 and depth == 1
            connection.execute(
                f"ATTACH IF NOT EXISTS ':memory:' AS {path}" if database else f"CREATE SCHEMA IF NOT EXISTS {path}"
            )
        name = ".".join(quote_ansi(part) for part in table.key)
        connection.execute(f"CREATE VIEW {name} AS SELECT * FROM temp.main.sterna_{number}")  # noqa: S608
    return schemas


def _run_statement(connection: duckdb.DuckDBPyConnection, job: QueryJob, session: ReadSession) -> dict[str, Any]:
    statements = duckdb.extract_statements(job.sql)
    if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
        raise QueryFailed("not one SELECT")
    batches = connection.sql(job.sql, params=_bind_params(job) or None).to_arrow_reader(_BATCH_ROWS)
    names = batches.schema.names
    if len(set(names)) < len(names):
        raise QueryFailed("two columns of the answer have one name")
    types = {field.name: type_name(field.type) for field in batches.schema}
    rows = list(_read_rows(batches, names, job, session))
    if job.kpi and len(rows) != 1:
        error_class = UnfitParameters if job.params and not rows else QueryFailed
        raise error_class(f"the answer is to be one row, and has {len(rows)}", hint="say `answer: rows`")
    return {"types": types, "rows": rows}


def _bind_params(job: QueryJob) -> dict[str, Any]:
    return {name: _bind_value(kind, text) for name, (kind, text) in job.params.items()}


def _translate_error(
    connection: duckdb.DuckDBPyConnection, job: QueryJob, error: Exception, stop: Stop, schemas: list[pa.Schema]
) -> SternaError:
    """Return what the engine's error is; of one in later rows Arrow passes on no more than its text, as an OSError."""
    kind, first_line = str(error).partition(":")[0], str(error).partition("\n")[0]
    if kind == "INTERRUPT Error":
        timeout = OutOfTime(f"the query ran for more than {job.seconds:g} s")
        return QueryEnded("the query was stopped") if stop.is_set else timeout
    if kind == "Out of Memory Error" or isinstance(error, duckdb.OutOfMemoryException):
        return _too_little_memory(job)
    if match := _UNREADABLE_STREAM.match(first_line):
        return QueryFailed(f"its rows can't be read: {match[2]}", table=job.tables[int(match[1])].name)
    if not job.params:
        return QueryFailed(f"{type(error).__name__}: {first_line}")
    prepare_error = _find_prepare_error(connection, job)
    if prepare_error is not None:
        return QueryFailed(f"{type(prepare_error).__name__}: {str(prepare_error).partition(chr(10))[0]}")
    # The engine's words may repeat any value of a client's, and these go to a log: its kind of error has none.
    if kind in _VALUE_ERRORS and first_line == _find_error_on_nulls(connection, job, schemas):
        return UnfitParameters(kind)
    return QueryFailed(f"{kind if kind in _VALUE_ERRORS else type(error).__name__}, for parameters and rows together")


def _find_prepare_error(connection: duckdb.DuckDBPyConnection, job: QueryJob) -> duckdb.Error | None:
    """Return what the engine says to the query while it doesn't know the values; None: it takes it."""
    try:
        connection.execute(f"PREPARE sterna_sound AS {job.sql}")
    except duckdb.Error as error:
        return error
    return None


def _find_error_on_nulls(connection: duckdb.DuckDBPyConnection, job: QueryJob, schemas: list[pa.Schema]) -> str:
    """Return what the engine says to the query with these parameters where all data is NULL, "" for nothing.

    One row of NULLs a table, not none: over no rows the engine doesn't compute what the parameters alone decide.
    """
    try:
        for number, schema in enumerate(schemas):
            nulls = pa.table([pa.nulls(1, field.type) for field in schema], names=schema.names)
            connection.register(f"sterna_{number}", nulls)
        connection.sql(job.sql, params=_bind_params(job)).to_arrow_reader(_BATCH_ROWS).read_all()
    except (duckdb.Error, pa.ArrowException, OSError) as error:
        return str(error).partition("\n")[0]
    return ""


def _too_little_memory(job: QueryJob) -> QueryFailed:
    return QueryFailed(f"the query needs more than {job.memory} bytes of memory")


def _read_rows(batches: Any, names: list[str], job: QueryJob, session: ReadSession) -> Iterator[dict[str, Any]]:
    count = size = 0
    for batch in batches:
        session.check_limits()
        for row_index in range(batch.num_rows):
            # As JSON no value is less than a quarter of what it is here: so a huge one is known before it is written.
            if count == job.rows or batch.slice(row_index, 1).nbytes > 4 * job.bytes:
                raise _answer_too_large(job)
            row = {name: _cell_json(batch.column(index)[row_index], job) for index, name in enumerate(names)}
            count, size = count + 1, size + len(json.dumps(row)) + 2
            if size > job.bytes:
                raise _answer_too_large(job)
            yield row


def _cell_json(value: Any, job: QueryJob) -> Any:
    try:
        return json_value(value)
    except (QueryFailed, ValueError, OverflowError) as error:  # a time beyond the calendar, for example
        raise QueryFailed(f"a value of the answer can't be represented: {type(error).__name__}") from None


def _answer_too_large(job: QueryJob) -> AnswerTooLarge:
    return AnswerTooLarge(f"the answer has more than {job.rows} rows or {job.bytes} bytes")


def _bind_value(kind: str, text: str) -> Any:
    if kind == "decimal":
        digits, scale = len(text.lstrip("-0").replace(".", "")), len(text.partition(".")[2])
        return duckdb.Value(text, duckdb.decimal_type(max(digits, scale, 1), scale))
    parsers: dict[str, Any] = {"int": int, "long": int, "double": float, "boolean": lambda literal: literal == "true"}
    return duckdb.Value(parsers.get(kind, str)(text), duckdb.sqltype(_TYPES[kind]))
