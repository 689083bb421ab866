"""One table of a Postgres that is read again while the others continue, and which later changes its rows include.

The rows are read in one transaction, whose snapshot defines the visible transactions. Behind the log position of the
last segment, changes of the table by visible transactions are skipped, and all others are applied: each is in the rows
or comes as a change, and none is both
(https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

from sterna.errors import NeedsResync
from sterna.pipelines.cdc.postgres_converter import ARRAY, NAME, SCALE, SIZE, TYPE
from sterna.pipelines.cdc.postgres_types import SETTINGS
from sterna.pipelines.cdc.types import SourceColumn, columns_of_schema
from sterna.sql_identifiers import quote_ansi

if TYPE_CHECKING:
    from psycopg import Connection

_PAGE_ROWS = 2_000  # of one query
_XID_MODULUS = 1 << 32  # the log has the last 32 bits of a transaction's number
# A domain is read as its base type, with the limits that it has itself where the column has none.
_COLUMNS_SQL: LiteralString = """
SELECT a.attname::text, b.oid::bigint, t.typname::text, b.typinput = 'array_in'::regproc,
  CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE b.modifier END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid CROSS JOIN LATERAL (
  WITH RECURSIVE base (oid, typtype, typbasetype, typinput, modifier, depth) AS (
    SELECT t.oid, t.typtype, t.typbasetype, t.typinput, t.typtypmod, 0
    UNION ALL SELECT n.oid, n.typtype, n.typbasetype, n.typinput, CASE WHEN p.modifier >= 0 THEN p.modifier
      ELSE n.typtypmod END, p.depth + 1 FROM base p JOIN pg_type n ON p.typtype = 'd' AND n.oid = p.typbasetype)
  SELECT * FROM base ORDER BY depth DESC LIMIT 1) b
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_SNAPSHOT_SQL: LiteralString = """
SELECT pg_current_snapshot()::text, (pg_current_wal_insert_lsn() - '0/0')::bigint,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"""
_PUBLICATION_SQL: LiteralString = """
SELECT p.xmin::text::bigint, r.xmin::text::bigint FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s AND n.nspname || '.' || c.relname = %s"""
_ALL_OPERATIONS = "insert, update, delete, truncate"
_NUMERIC_OID, _BIT_OID, _TYPMOD_HEADER = 1700, 1560, 4
_MAX_TRIES, _PAUSE_SECONDS = 20, 0.5  # seconds
_LOCK_TIMEOUT_SECONDS = 5


@dataclass(frozen=True)
class PgSnapshot:
    """The transactions that are visible in a snapshot.

    Args:
        xmin: all below are visible, as far as they were committed.
        xmax: none from there on is visible.
        in_progress: those between that are invisible.
    """

    xmin: int
    xmax: int
    in_progress: frozenset[int] = frozenset()

    @classmethod
    def parse(cls, text: str) -> PgSnapshot:
        """Return a snapshot from the text of a `pg_snapshot`."""
        xmin, xmax, in_progress = text.split(":")
        return cls(int(xmin), int(xmax), frozenset(map(int, in_progress.split(","))) if in_progress else frozenset())

    def is_visible(self, xid: int) -> bool:
        """Return whether a committed transaction is visible.

        Args:
            xid: the last 32 bits of its number, as the log has them.
        """
        distance = (self.xmax - xid) % _XID_MODULUS
        if distance == 0 or distance >= _XID_MODULUS >> 1:
            return False  # it began later
        full_xid = self.xmax - distance
        return full_xid < self.xmin or full_xid not in self.in_progress


@dataclass(frozen=True)
class SnapshotRows:
    """A table's rows in one snapshot.

    Args:
        columns: the table's.
        snapshot: its visible transactions, as the server writes them.
        end_lsn: the log position behind which no visible transaction is.
        read_micros: by the server's clock, microseconds since 1970.
        pages: by column, each row as the server's text; some rows at a time.
    """

    columns: tuple[SourceColumn, ...]
    snapshot: str
    end_lsn: int
    read_micros: int
    pages: Iterator[list[dict[str, str | None]]]


def publish_table(connection: Connection[Any], publication: str, table: str, sql_name: str) -> bool:
    """Publish all changes of a table from now on; return whether that is so, and the table isn't locked.

    Changes by a transaction from before the publication may be missing, even if it commits later. So the publication is
    changed once more afterwards, and the transactions that were open then have to end.

    With synchronous replication, the log has a commit before it is visible in a snapshot: one that was read already
    would be in neither. So the transactions that are open now have to end, too
    (https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION).

    Args:
        connection: in autocommit mode.
        publication: its name, which needs no quotes.
        table: its `schema.table`.
        sql_name: the same, quoted for SQL.
    """
    if not (xids := _publication_xids(connection, publication, table)):
        connection.execute(f"ALTER PUBLICATION {publication} ADD TABLE {sql_name}".encode())
        xids = _publication_xids(connection, publication, table)
    for changed, added in xids:
        if is_later_xid(added, changed):
            connection.execute(f"ALTER PUBLICATION {publication} SET (publish = '{_ALL_OPERATIONS}')".encode())
    ((standbys,),) = connection.execute("SHOW synchronous_standby_names").fetchall()
    first_snapshot = _current_snapshot(connection)
    for _ in range(_MAX_TRIES):
        if not (xids := _publication_xids(connection, publication, table)):
            return False  # it was dropped meanwhile
        (changed, _), snapshot = xids[0], _current_snapshot(connection)
        is_caught_up = not standbys or snapshot.xmin >= first_snapshot.xmax
        if is_caught_up and not 0 < (changed - snapshot.xmin) % _XID_MODULUS < snapshot.xmax - snapshot.xmin:
            return _is_lockable(connection, sql_name)
        time.sleep(_PAUSE_SECONDS)
    return False


def _publication_xids(connection: Connection[Any], publication: str, table: str) -> list[tuple[int, int]]:
    """Return which transaction changed a publication last, and which one added a table to it."""
    return connection.execute(_PUBLICATION_SQL, [publication, table]).fetchall()


def _current_snapshot(connection: Connection[Any]) -> PgSnapshot:
    ((text,),) = connection.execute("SELECT pg_current_snapshot()::text").fetchall()
    return PgSnapshot.parse(text)


def is_later_xid(xid: int, other_xid: int) -> bool:
    """Say whether a transaction has a later number than another one; both are the last 32 bits."""
    return 0 < (xid - other_xid) % _XID_MODULUS < _XID_MODULUS >> 1


def _is_lockable(connection: Connection[Any], sql_name: str) -> bool:
    from psycopg.errors import LockNotAvailable

    connection.execute("BEGIN")
    try:
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_SECONDS}s'".encode())
        connection.execute(f"LOCK TABLE {sql_name} IN ACCESS SHARE MODE".encode())
    except LockNotAvailable:
        return False
    finally:
        connection.execute("ROLLBACK")
    return True


@contextmanager
def open_table_snapshot(connection: Connection[Any], table: str, sql_name: str) -> Iterator[SnapshotRows]:
    """Lend a table's rows, within a transaction; the table keeps its columns as long.

    Args:
        connection: each statement is a transaction of its own there.
        table: its `schema.table`.
        sql_name: the same, as SQL names it.

    Raises:
        NeedsResync: the table is gone.
        UnfitSource: a column isn't read.
    """
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        for setting, value in {**SETTINGS, "client_encoding": "UTF8", "statement_timeout": "0"}.items():
            connection.execute(f"SET LOCAL {setting} = '{value}'".encode())
        connection.execute(f"LOCK TABLE {sql_name} IN ACCESS SHARE MODE".encode())  # before the snapshot is taken
        snapshot, end_lsn, read_micros = connection.execute(_SNAPSHOT_SQL).fetchall()[0]
        columns = _read_columns(connection.execute(_COLUMNS_SQL, [sql_name]).fetchall())
        if not columns:
            raise NeedsResync("the table was dropped, or renamed, in the source", table=table)
        column_list = ", ".join(quote_ansi(column.column.name) for column in columns)
        query = f"SELECT {column_list} FROM ONLY {sql_name}"  # noqa: S608 - names are quoted
        connection.execute(f"DECLARE sterna NO SCROLL CURSOR FOR {query}".encode())
        yield SnapshotRows(columns, snapshot, int(end_lsn), int(read_micros), _fetch_pages(connection, columns))
    finally:
        connection.execute("ROLLBACK")


def _read_columns(rows: Sequence[Sequence[Any]]) -> tuple[SourceColumn, ...]:
    """Return columns as the engine's schema of a change would make them (`postgres_converter`)."""
    fields = [
        {"field": name, "type": "string", "parameters": _parameters(int(type_oid), type_name, is_array, int(modifier))}
        for name, type_oid, type_name, is_array, modifier in rows
    ]
    return columns_of_schema({"fields": [{"field": "after", "fields": fields}]}) if fields else ()


def _parameters(type_oid: int, type_name: str, is_array: bool, modifier: int) -> Mapping[str, str]:
    size = scale = 0
    if type_oid == _BIT_OID:
        size = max(modifier, 1)
    elif type_oid == _NUMERIC_OID and modifier >= _TYPMOD_HEADER:
        size, scale = (modifier - _TYPMOD_HEADER) >> 16 & 0xFFFF, (modifier - _TYPMOD_HEADER) & 0xFFFF
    parameters = {TYPE: type_oid, NAME: type_name, ARRAY: str(is_array).lower(), SIZE: size, SCALE: scale}
    return {key: str(value) for key, value in parameters.items()}


def _fetch_pages(connection: Connection[Any], columns: Sequence[SourceColumn]) -> Iterator[list[dict[str, str | None]]]:
    names = [column.column.name for column in columns]
    while True:
        page = connection.execute(f"FETCH {_PAGE_ROWS} FROM sterna".encode()).pgresult  # in text, as no value is binary
        assert page is not None
        if not page.ntuples:
            return
        rows = range(page.ntuples)
        yield [{name: _decode(page.get_value(row, index)) for index, name in enumerate(names)} for row in rows]


def _decode(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()
