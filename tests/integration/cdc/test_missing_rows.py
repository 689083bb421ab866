"""Rows that the log or the engine's snapshot would leave out, of a Postgres whose log doesn't say so.

A table that is rewritten looks empty to a snapshot from before
(https://www.postgresql.org/docs/current/mvcc-caveats.html). The engine takes its snapshot with the slot, and locks
tables a moment later: in between it is held here, as nothing else has that moment at will. What else falls under it:
VACUUM FULL, which keeps rows for older snapshots; and rewrites behind the initial rows, which harm nothing.

Under a deferrable key two rows have one key for a while, and the log's deletion of one of them is that of both.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import psycopg
import pytest

from tests.integration.cdc.test_exact_postgres import Source, source

__all__ = ["source"]

_SLOT = "SELECT confirmed_flush_lsn IS NOT NULL FROM pg_replication_slots WHERE slot_name ~ '{}'"
_WAITING = "SELECT query FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"


_REWRITES = {
    "ALTER TABLE t ALTER n TYPE bigint": 0,
    "ALTER TABLE t ADD u uuid DEFAULT gen_random_uuid()": 0,
    "ALTER TABLE t SET UNLOGGED; ALTER TABLE t SET LOGGED": 0,
    "TRUNCATE t": 0,
    "TRUNCATE t; INSERT INTO t VALUES (5, 5)": 0,
    "ALTER TABLE t ALTER n TYPE bigint; INSERT INTO t VALUES (5, 5)": 0,
    "DELETE FROM t WHERE id = 1; VACUUM FULL t": 2,
    "UPDATE t SET n = 7; CLUSTER t USING t_pkey": 2,
    "CREATE TABLE p (LIKE t) PARTITION BY RANGE (id); ALTER TABLE p ATTACH PARTITION t DEFAULT": 2,
    "ALTER TABLE t ADD m int DEFAULT 7; ALTER TABLE t DROP n": 2,
}
"""How many rows of two a snapshot from before sees: all of them, or none."""


def awaited(look: Callable[[], Any]) -> Any:
    """Look until there is something."""
    end = time.monotonic() + 150.0
    while time.monotonic() < end:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("it never came")


@contextmanager
def between_snapshot_and_locks(
    source: Source, reading: ThreadPoolExecutor, until: Callable[..., bool]
) -> Iterator[Any]:
    """Begin to read; lend what is being read while the engine has its snapshot, and no lock."""
    slot = _SLOT.format(source.name)
    with psycopg.connect(source.database.url()) as writer:
        writer.execute("CREATE TABLE open (id int)")  # the server waits for its end before it takes a snapshot
        being_read = reading.submit(source.reading.until, until)
        awaited(lambda: source.sql(slot))
        pid = source.reading.engine_pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
    try:
        awaited(lambda: source.sql(slot) == [(True,)])
        yield being_read
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(("statements", "seen"), list(_REWRITES.items()))
def test_a_rewrite_takes_all_rows_out_of_an_older_snapshot_or_none(source: Source, statements: str, seen: int) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int); INSERT INTO t VALUES (1, 1), (2, 2)")
    with psycopg.connect(source.database.url()) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1")
        for statement in statements.split("; "):
            source.sql(statement)
        assert reader.execute("SELECT count(*) FROM t").fetchall() == [(seen,)]


def test_a_table_that_is_rewritten_before_its_rows_are_read_is_stopped_by_name(source: Source) -> None:
    source.reading.stops, source.reading.max_restarts = ("public.lost",), 0
    for table in ("kept", "lost", "other"):
        source.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, n int); INSERT INTO {table} VALUES (1, 1), (2, 2)")
    source.sql("CREATE TABLE void (id int PRIMARY KEY)")
    with ThreadPoolExecutor(1) as reading, psycopg.connect(source.database.url()) as locker:
        with between_snapshot_and_locks(source, reading, lambda rows: 2 in rows.get("public.other", {})) as being_read:
            source.sql("ALTER TABLE lost ALTER n TYPE bigint")
            source.sql("VACUUM FULL kept")
            locker.execute("LOCK TABLE other IN ACCESS EXCLUSIVE MODE")
        # All tables are locked before any row is read.
        assert "LOCK TABLE" in awaited(lambda: source.sql(_WAITING))[0][0]
        locker.rollback()
        rows = being_read.result()
    assert {name: sorted(table) for name, table in rows.items()} == {"public.kept": [1, 2], "public.other": [1, 2]}
    ((table, stop),) = source.reading.last().stopped.items()
    assert (table, stop.error, stop.last) == ("public.lost", "NeedsResync", 0)
    assert "none of its rows came" in stop.message
    hint = stop.to_error(table, source.name, alone=True).hint
    assert f"sterna cdc resync {source.name} --table public.lost" in hint
    source.sql("ALTER TABLE other ALTER n TYPE bigint; ALTER TABLE void ALTER id TYPE bigint; TRUNCATE kept")
    source.sql("INSERT INTO other VALUES (3, 3); INSERT INTO void VALUES (3)")
    journal = source.reading.journal
    request = journal.request_resync(journal.latest_capture_id(), "public.lost")
    rows = source.reading.until(
        lambda rows: 3 in rows.get("public.void", {}) and source.reading.last().handled_requests >= request
    )
    assert source.reading.last().stopped == {}
    assert {name: sorted(table) for name, table in rows.items()} == {
        "public.kept": [],
        "public.lost": [1, 2],
        "public.other": [1, 2, 3],
        "public.void": [3],
    }


def test_what_is_rewritten_before_its_rows_are_read_is_read_from_a_later_snapshot(source: Source) -> None:
    for table in ("changed", "cut", "other"):
        source.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, n int); INSERT INTO {table} VALUES (1, 1), (2, 2)")
    with (
        ThreadPoolExecutor(1) as reading,
        between_snapshot_and_locks(source, reading, lambda rows: 2 in rows.get("public.other", {})) as being_read,
    ):
        source.sql("ALTER TABLE changed ALTER n TYPE bigint; TRUNCATE cut; INSERT INTO cut VALUES (3, 3)")
    rows = being_read.result()
    assert source.reading.last().stopped == {}
    assert {name: sorted(table) for name, table in rows.items()} == {
        "public.changed": [1, 2],
        "public.cut": [3],
        "public.other": [1, 2],
    }


def test_a_key_that_becomes_deferrable_stops_its_table_before_one_row_is_taken_for_another(source: Source) -> None:
    """`UPDATE … SET id = id + 1` deletes 1, inserts 2, deletes 2 and inserts 3 then, as the log has it."""
    source.reading.stops = ("public.whole",)
    for table in ("whole", "other"):
        source.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, n int); INSERT INTO {table} VALUES (1, 1), (2, 2)")
    source.sql("ALTER TABLE whole REPLICA IDENTITY FULL")
    source.reading.until(lambda rows: 2 in rows.get("public.other", {}))
    source.sql(
        "ALTER TABLE whole DROP CONSTRAINT whole_pkey, ADD PRIMARY KEY (id) DEFERRABLE;"
        "UPDATE whole SET id = id + 1; INSERT INTO other VALUES (3, 3)"
    )
    rows = source.reading.until(lambda rows: 3 in rows["public.other"])
    assert {name: sorted(table) for name, table in rows.items()} == {"public.whole": [1, 2], "public.other": [1, 2, 3]}
    ((table, stop),) = source.reading.last().stopped.items()
    assert (table, stop.error) == ("public.whole", "UnfitSource")
    assert "its primary key is deferrable" in stop.message
