"""One table of a Postgres that is read again, while its others go on: which of its changes the new rows have already.

The rows are read in one transaction, whose snapshot says of each transaction whether it sees it. So behind the place up
to which the log was read, changes of the table by transactions that the snapshot sees are passed over, and all others
are taken: each is in the rows or comes as a change, and none is both
(https://www.postgresql.org/docs/current/functions-info.html#FUNCTIONS-PG-SNAPSHOT).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, LiteralString

from sterna.cdc.texts import SETTINGS
from sterna.cdc.values import SourceColumn, columns_of_schema
from sterna.cdc.verbatim import ARRAY, NAME, SCALE, SIZE, TYPE
from sterna.errors import NeedsResync

if TYPE_CHECKING:
    from psycopg import Connection

_ROWS = 2_000  # that are asked for at once
_CIRCLE = 1 << 32  # the log has the last 32 bits of a transaction's number
# A domain is read as its base type, with the limits that it has itself where the column has none.
_COLUMNS: LiteralString = """
SELECT a.attname::text, b.oid::bigint, t.typname::text, b.typinput = 'array_in'::regproc,
  CASE WHEN a.atttypmod >= 0 THEN a.atttypmod ELSE b.modifier END
FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid CROSS JOIN LATERAL (
  WITH RECURSIVE base (oid, typtype, typbasetype, typinput, modifier, depth) AS (
    SELECT t.oid, t.typtype, t.typbasetype, t.typinput, t.typtypmod, 0
    UNION ALL SELECT n.oid, n.typtype, n.typbasetype, n.typinput, CASE WHEN p.modifier >= 0 THEN p.modifier
      ELSE n.typtypmod END, p.depth + 1 FROM base p JOIN pg_type n ON p.typtype = 'd' AND n.oid = p.typbasetype)
  SELECT * FROM base ORDER BY depth DESC LIMIT 1) b
WHERE a.attrelid = to_regclass(%s) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_WHERE: LiteralString = """
SELECT pg_current_snapshot()::text, (pg_current_wal_insert_lsn() - '0/0')::bigint,
  (extract(epoch FROM clock_timestamp()) * 1000000)::bigint"""
_PUBLISHED: LiteralString = """
SELECT p.xmin::text::bigint, r.xmin::text::bigint FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
JOIN pg_class c ON c.oid = r.prrelid JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE p.pubname = %s AND n.nspname || '.' || c.relname = %s"""
_ALL = "insert, update, delete, truncate"
_NUMERIC, _BIT, _HEADER = 1700, 1560, 4
_TRIES, _PAUSE = 20, 0.5  # seconds
_LOCK_SECONDS = 5


@dataclass(frozen=True)
class Snapshot:
    """Which transactions a snapshot sees.

    Args:
        least: it sees all below, as far as they were committed.
        next: it sees none from there on.
        open: those between that it doesn't see.
    """

    least: int
    next: int
    open: frozenset[int] = frozenset()

    @classmethod
    def of(cls, text: str) -> Snapshot:
        """Return a snapshot from the text of a `pg_snapshot`."""
        least, following, rest = text.split(":")
        return cls(int(least), int(following), frozenset(map(int, rest.split(","))) if rest else frozenset())

    def sees(self, transaction: int) -> bool:
        """Say whether it sees a transaction that was committed.

        Args:
            transaction: the last 32 bits of its number, as the log has them.
        """
        back = (self.next - transaction) % _CIRCLE
        if back == 0 or back >= _CIRCLE >> 1:
            return False  # it began later
        number = self.next - back
        return number < self.least or number not in self.open


@dataclass(frozen=True)
class Rows:
    """A table's rows as one snapshot sees them.

    Args:
        columns: the table's.
        snapshot: which transactions it sees, as the server writes that.
        reached: the place in the log behind which no transaction is that it sees.
        when: by the server's clock, microseconds since 1970.
        values: by column, each row as the server's text; some rows at a time.
    """

    columns: tuple[SourceColumn, ...]
    snapshot: str
    reached: int
    when: int
    values: Iterator[list[dict[str, str | None]]]


def publish(connection: Connection[Any], publication: str, table: str, name: str) -> bool:
    """Let all changes of a table come by the log from now on; say whether they do, and the table isn't locked.

    What a transaction wrote to a table before that was published may not come, also where it is committed later: so the
    publication is changed once more behind that, and those have to be over that were open then.

    Where commits wait for a standby, the log has them before a snapshot sees them: one that was read already would be
    in neither. So those have to be over that are open now
    (https://www.postgresql.org/docs/current/warm-standby.html#SYNCHRONOUS-REPLICATION).

    Args:
        connection: each statement is a transaction of its own there.
        publication: its name, which needs no quotes.
        table: its `schema.table`.
        name: the same, as SQL names it.
    """
    if not (places := _published(connection, publication, table)):
        connection.execute(f"ALTER PUBLICATION {publication} ADD TABLE {name}".encode())
        places = _published(connection, publication, table)
    for changed, added in places:
        if is_later(added, changed):
            connection.execute(f"ALTER PUBLICATION {publication} SET (publish = '{_ALL}')".encode())
    ((standbys,),) = connection.execute("SHOW synchronous_standby_names").fetchall()
    first = _snapshot(connection)
    for _ in range(_TRIES):
        if not (places := _published(connection, publication, table)):
            return False  # it was dropped meanwhile
        (changed, _), snapshot = places[0], _snapshot(connection)
        is_behind = not standbys or snapshot.least >= first.next
        if is_behind and not 0 < (changed - snapshot.least) % _CIRCLE < snapshot.next - snapshot.least:
            return _is_free(connection, name)
        time.sleep(_PAUSE)
    return False


def _published(connection: Connection[Any], publication: str, table: str) -> list[tuple[int, int]]:
    """Return which transaction changed a publication last, and which one added a table to it."""
    return connection.execute(_PUBLISHED, [publication, table]).fetchall()


def _snapshot(connection: Connection[Any]) -> Snapshot:
    ((now,),) = connection.execute("SELECT pg_current_snapshot()::text").fetchall()
    return Snapshot.of(now)


def is_later(one: int, other: int) -> bool:
    """Say whether a transaction has a later number than another one; both are the last 32 bits."""
    return 0 < (one - other) % _CIRCLE < _CIRCLE >> 1


def _is_free(connection: Connection[Any], name: str) -> bool:
    from psycopg.errors import LockNotAvailable

    connection.execute("BEGIN")
    try:
        connection.execute(f"SET LOCAL lock_timeout = '{_LOCK_SECONDS}s'".encode())
        connection.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE".encode())
    except LockNotAvailable:
        return False
    finally:
        connection.execute("ROLLBACK")
    return True


@contextmanager
def read_rows(connection: Connection[Any], table: str, name: str) -> Iterator[Rows]:
    """Lend a table's rows, within a transaction; the table keeps its columns as long.

    Args:
        connection: each statement is a transaction of its own there.
        table: its `schema.table`.
        name: the same, as SQL names it.

    Raises:
        NeedsResync: the table is gone.
        UnfitSource: a column isn't read.
    """
    connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
    try:
        for setting, value in {**SETTINGS, "client_encoding": "UTF8", "statement_timeout": "0"}.items():
            connection.execute(f"SET LOCAL {setting} = '{value}'".encode())
        connection.execute(f"LOCK TABLE {name} IN ACCESS SHARE MODE".encode())  # before the snapshot is taken
        snapshot, reached, when = connection.execute(_WHERE).fetchall()[0]
        columns = _columns(connection.execute(_COLUMNS, [name]).fetchall())
        if not columns:
            raise NeedsResync("the table was dropped, or renamed, in the source", table=table)
        listed = ", ".join(quoted(each.column.name) for each in columns)
        rows = f"SELECT {listed} FROM ONLY {name}"  # noqa: S608 - names are quoted
        connection.execute(f"DECLARE sterna NO SCROLL CURSOR FOR {rows}".encode())
        yield Rows(columns, snapshot, int(reached), int(when), _fetched(connection, columns))
    finally:
        connection.execute("ROLLBACK")


def _columns(found: Sequence[Sequence[Any]]) -> tuple[SourceColumn, ...]:
    """Return columns as the engine's schema of a change would make them (`verbatim`)."""
    fields = [
        {"field": name, "type": "string", "parameters": _parameters(int(number), kind, is_array, int(modifier))}
        for name, number, kind, is_array, modifier in found
    ]
    return columns_of_schema({"fields": [{"field": "after", "fields": fields}]}) if fields else ()


def _parameters(number: int, name: str, is_array: bool, modifier: int) -> Mapping[str, str]:
    size = scale = 0
    if number == _BIT:
        size = max(modifier, 1)
    elif number == _NUMERIC and modifier >= _HEADER:
        size, scale = (modifier - _HEADER) >> 16 & 0xFFFF, (modifier - _HEADER) & 0xFFFF
    told = {TYPE: number, NAME: name, ARRAY: str(is_array).lower(), SIZE: size, SCALE: scale}
    return {key: str(value) for key, value in told.items()}


def _fetched(connection: Connection[Any], columns: Sequence[SourceColumn]) -> Iterator[list[dict[str, str | None]]]:
    names = [each.column.name for each in columns]
    while True:
        result = connection.execute(f"FETCH {_ROWS} FROM sterna".encode()).pgresult  # in text, as no value is binary
        assert result is not None
        if not result.ntuples:
            return
        rows = range(result.ntuples)
        yield [{name: _text(result.get_value(row, at)) for at, name in enumerate(names)} for row in rows]


def _text(raw: bytes | None) -> str | None:
    return None if raw is None else raw.decode()


def quoted(name: str) -> str:
    """Return a name as SQL of a Postgres' has it."""
    return '"' + name.replace('"', '""') + '"'
