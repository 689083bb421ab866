"""One table of a Postgres is read again while the others go on: no row is lost or doubled, of it or of them.

Its rows are those of one snapshot; of changes that the log has behind the place of the last drop, those come that the
snapshot doesn't see. What else falls under it: transactions that are open at that moment and end before or behind it,
those that change both tables, rolled back ones and savepoints; truncation; long values that aren't told; a table that
was stopped by a value, a new name, another key, or was dropped and made anew; one that isn't stopped; one that is still
unfit; rows in several drops; an engine that begins anew before the log has passed the snapshot; every type, as rows
that are read again and changes behind them have to be of the same types on `main`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.errors import DeadlockDetected

from sterna.pipelines.cdc import capture
from tests.integration.cdc.reading import Rows
from tests.integration.cdc.test_exact_postgres import _CREATE_TYPES, Source, list_differences, source, values_of

__all__ = ["source"]

_TWO = "CREATE TABLE a (id int PRIMARY KEY, n int, v text); CREATE TABLE b (id int PRIMARY KEY, n int)"


def again(source: Source, table: str = "public.a") -> int:
    """Ask for a table."""
    journal = source.reading.journal
    return journal.request_resync(journal.latest_capture_id(), table)


def settled(source: Source, *tables: str) -> dict[str, Rows]:
    """Read until what was written last has come; return the rows of some tables."""
    source.sql("INSERT INTO b VALUES (1000000, 0) ON CONFLICT (id) DO UPDATE SET n = b.n + 1")
    ((last,),) = source.sql("SELECT n FROM b WHERE id = 1000000")
    rows_by_table = source.reading.until(lambda rows: rows["public.b"].get(1000000, {}).get("n") == last)
    return {table: dict(rows_by_table.get(f"public.{table}", {})) for table in tables}


def in_source(source: Source, table: str) -> dict[Any, dict[str, Any]]:
    with psycopg.connect(source.database.url()) as connection:
        cursor = connection.execute(f"SELECT * FROM {table}".encode())
        names = [column.name for column in cursor.description or ()]
        return {row[0]: dict(zip(names, row, strict=True)) for row in cursor.fetchall()}


def read_again(source: Source, table: str = "public.a") -> None:
    """Let a table be read again, and wait for it."""
    request = again(source, table)
    settled(source)
    source.reading.until(lambda rows: source.reading.last().handled_requests >= request)
    assert source.reading.last().handled_requests == request


@pytest.mark.rare
def test_each_type_comes_as_it_came_before(source: Source) -> None:
    source.sql(_TWO)
    source.sql("CREATE SCHEMA other")
    source.sql(_CREATE_TYPES)
    source.apply_settings()
    values = values_of(source)
    types = {f"c{at}": type for at, type in enumerate(values)}
    columns = ", ".join(f"{column} {type}" for column, type in types.items())
    source.sql(f"CREATE TABLE kinds (id int PRIMARY KEY, n int, {columns}); ALTER TABLE kinds REPLICA IDENTITY FULL")
    for at in range(max(map(len, values.values()))):
        row = ", ".join(literals[at] if at < len(literals) else "NULL" for literals in values.values())
        source.sql(f"INSERT INTO kinds VALUES ({at}, 0, {row})")
    source.reading.until(lambda rows: "public.kinds" in rows)
    before = source.reading.last().columns["public.kinds"]
    read_again(source, "public.kinds")
    assert source.reading.last().columns["public.kinds"] == before
    assert list_differences(source, "kinds", types, dict(source.reading.rows()["public.kinds"])) == []
    source.sql("UPDATE kinds SET n = 1 WHERE id = 1; INSERT INTO kinds (id, n) VALUES (99, 1)")
    assert list_differences(source, "kinds", types, settled(source, "kinds")["kinds"]) == []
    assert source.reading.last().columns["public.kinds"] == before


@pytest.mark.rare
@pytest.mark.parametrize(
    ("statements", "reason"),
    [
        ("INSERT INTO a VALUES (9, 9, 'x')", ""),
        ("ALTER TABLE a RENAME v TO w; UPDATE a SET n = n + 1; DELETE FROM a WHERE id = 2", "may be a new name"),
        ("ALTER TABLE a ADD filled int DEFAULT 7; UPDATE a SET n = 5 WHERE id = 1", "was added with a value"),
        ("DROP TABLE a; CREATE TABLE a (id int PRIMARY KEY, n int, v text); INSERT INTO a VALUES (7, 7, 'x')", "anew"),
        ("ALTER TABLE a DROP CONSTRAINT a_pkey, ADD PRIMARY KEY (n); UPDATE a SET v = 'z' WHERE n = 1", "primary key"),
    ],
)
def test_a_stopped_table_comes_again_and_the_other_one_goes_on(source: Source, statements: str, reason: str) -> None:
    source.reading.stops = ("public.a",)
    source.sql(_TWO)
    source.sql("INSERT INTO a SELECT g, g, 'v' FROM generate_series(1, 4) g; INSERT INTO b VALUES (1, 1)")
    settled(source)
    source.sql(statements)
    settled(source)
    assert reason in (source.reading.last().stopped["public.a"].message if reason else "")
    source.sql("DELETE FROM a WHERE id = 3")
    first = source.reading.last().number + 1
    read_again(source)
    last = source.reading.last()
    assert (last.capture_id, last.stopped) == (1, {})
    assert last.resyncs["public.a"].first >= first
    assert dict(source.reading.rows()["public.a"]) == in_source(source, "a")
    for _ in range(2):
        source.sql("INSERT INTO a (id, n) SELECT max(id) + 1, max(n) + 1 FROM a; INSERT INTO b VALUES (2, 2)")
        source.sql("UPDATE a SET n = n + 100; DELETE FROM b WHERE id = 2")
        came = settled(source, "a", "b")
        assert came == {table: in_source(source, table) for table in ("a", "b")}
        source.reading.restart()
    assert source.reading.last().resyncs == last.resyncs


@pytest.mark.rare
def test_a_table_that_is_still_unfit_stays_stopped_and_says_why(source: Source) -> None:
    source.reading.stops = ("public.a",)
    source.sql(_TWO)
    source.sql("ALTER TABLE a ADD d date; INSERT INTO a VALUES (1, 1, 'v', '2020-01-01')")
    settled(source)
    source.sql("INSERT INTO a VALUES (2, 2, 'v', '10000-01-01'); INSERT INTO b VALUES (1, 1)")
    settled(source)
    read_again(source)
    stop = source.reading.last().stopped["public.a"]
    assert "a value of column d has no place" in stop.message
    assert "(id) = (2)" in stop.message
    source.sql("DELETE FROM a WHERE id = 2; ALTER TABLE a DROP CONSTRAINT a_pkey")
    read_again(source)
    assert "without a primary key" in source.reading.last().stopped["public.a"].message
    source.sql("ALTER TABLE a ADD PRIMARY KEY (id)")
    read_again(source)
    assert settled(source, "a", "b") == {table: in_source(source, table) for table in ("a", "b")}


def test_what_is_open_while_rows_are_read_comes_once(source: Source, monkeypatch: pytest.MonkeyPatch) -> None:
    """Writers change both tables in each transaction, some for long; the rows come in several drops."""
    monkeypatch.setattr(capture, "MAX_SEGMENT_ROWS", 150)
    source.sql(_TWO)
    source.sql("ALTER TABLE a ALTER v SET STORAGE EXTERNAL")
    source.sql("INSERT INTO a SELECT g, 0, repeat('x', 9000) FROM generate_series(1, 400) g")
    settled(source)
    with psycopg.connect(source.database.url()) as held:
        held.execute("INSERT INTO a VALUES (900, 1, 'held'); INSERT INTO b VALUES (900, 1)")
        held.execute("DELETE FROM a WHERE id = 400; SAVEPOINT s; UPDATE a SET n = 7 WHERE id = 399; RELEASE s")
        read_again(source)
    assert settled(source, "a", "b") == {table: in_source(source, table) for table in ("a", "b")}
    over = threading.Event()

    def write(seed: int) -> None:
        rng = random.Random(seed)
        with psycopg.connect(source.database.url(), autocommit=True) as connection:
            while not over.wait(rng.choice((0.01, 0.03))):  # faster ones leave the engine with a log of minutes
                with suppress(DeadlockDetected), connection.transaction(force_rollback=rng.random() < 0.1):
                    for _ in range(rng.randrange(1, 6)):
                        change(connection.execute, rng)
                        over.wait(rng.choice((0.0, 0.0, 0.01)))

    writers = [threading.Thread(target=write, args=(seed,)) for seed in range(3)]
    for writer in writers:
        writer.start()
    try:
        read_again(source)
        source.reading.restart()
    finally:
        over.set()
        for writer in writers:
            writer.join()
    came = settled(source, "a", "b")
    assert came == {table: in_source(source, table) for table in ("a", "b")}
    resync = source.reading.last().resyncs["public.a"]
    assert resync.last > resync.first


def change(execute: Callable[[Any], Any], rng: random.Random) -> None:
    one, kind = rng.randrange(500), rng.random()
    if kind < 0.3:
        execute(
            f"INSERT INTO a VALUES ({one}, 1, repeat('y', {rng.choice((1, 9000))})) ON CONFLICT DO NOTHING".encode()
        )
    elif kind < 0.7:
        execute(f"UPDATE a SET n = n + 1 WHERE id = {one}".encode())
    elif kind < 0.85:
        execute(f"DELETE FROM a WHERE id = {one}".encode())
    elif kind < 0.87:
        execute(b"TRUNCATE a")
        execute(b"INSERT INTO a SELECT g, 0, repeat('z', 9000) FROM generate_series(1, 300) g")
    execute(f"INSERT INTO b VALUES ({rng.randrange(50)}, 1) ON CONFLICT (id) DO UPDATE SET n = b.n + 1".encode())
