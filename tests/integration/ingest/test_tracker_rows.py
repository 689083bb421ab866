"""The tracker's tables and rows are those of November 2026, and are read by the names of their columns.

`tests/data/written-2026-11/ingest` has what a Postgres said of the tables that the code of that month had made, and the
rows that it had written. What a newer version adds to a table, or where a column stands in it, changes nothing.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from sterna.errors import TrackerLost, TrackerTooNew
from sterna.pipelines.ingest.failover_recovery import read_checkpoint, write_checkpoint
from sterna.pipelines.ingest.model import Batch, State
from sterna.pipelines.ingest.records import INSERT_UPLOAD, build_upload_row
from sterna.pipelines.ingest.tracker_schema import MARKER_FILE, TABLES, Marker, marker_uri, prepare
from tests.support.ingest import TrackedInbox
from tests.support.records_ingest import AT, BATCH_ID, CLOSED, DROPS

_FOLDER = Path(__file__).parents[2] / "data" / "written-2026-11" / "ingest"
_ROWS = (_FOLDER / "tracker-rows.sql").read_text()
_CATALOG = """
SELECT line FROM (
SELECT c.relname || '.' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
  || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
  || coalesce(' DEFAULT ' || pg_get_expr(d.adbin, d.adrelid), '') AS line, 1 AS kind, c.relname AS t, a.attnum AS n
FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
LEFT JOIN pg_attrdef d ON d.adrelid = c.oid AND d.adnum = a.attnum
WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace
UNION ALL
SELECT conrelid::regclass || ' ' || pg_get_constraintdef(oid), 2, conrelid::regclass::text, 0
FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND contype <> 'n'
UNION ALL
SELECT indexdef, 3, tablename, 0 FROM pg_indexes WHERE schemaname = 'public'
) listed ORDER BY kind, t, n, line
"""
_NEWER = ("sterna_ingest_bad", "sterna_ingest_worker")
_NEWER_INDEX = "sterna_ingest_batch_rejected"
_BATCH = replace(
    CLOSED,
    state=State.REJECTED,
    rows=4,
    snapshot=5316,
    commit="c0ffee",
    reason="no é",
    attempts=2,
    settled=AT + timedelta(hours=1),
    worker="w-1",
    leased_until=AT + timedelta(hours=2),
)
_TAKEN = (replace(DROPS[0], state=State.REJECTED, batch=BATCH_ID), DROPS[1])


def _load(eu: TrackedInbox, rows: str = _ROWS) -> None:
    with eu.pool.connection() as connection:
        for statement in rows.splitlines():
            if "sterna_ingest_version" not in statement:
                connection.execute(statement.encode())


def _dump(eu: TrackedInbox) -> str:
    """Return all rows as statements, by the database's own quoting."""
    lines = []
    with eu.pool.connection() as connection:
        for table in TABLES:
            values = ", ".join(f"quote_nullable({name})" for name in table.columns)
            for row in connection.execute(f"SELECT {values} FROM {table.name} ORDER BY 1 DESC".encode()).fetchall():
                lines.append(f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({', '.join(row)});\n")
    return "".join(lines)


def _read(eu: TrackedInbox) -> tuple[Batch | None, list[object]]:
    return eu.tracker.batch(BATCH_ID), [eu.tracker.upload(drop.id) for drop in _TAKEN]


def test_the_tables_are_those_of_november_2026(eu: TrackedInbox) -> None:
    with eu.pool.connection() as connection:
        lines = [row[0] for row in connection.execute(_CATALOG.encode()).fetchall()]
    newer = [line for line in lines if any(name in line for name in (*_NEWER, _NEWER_INDEX))]
    assert [line for line in lines if line not in newer] == (_FOLDER / "tracker-schema.txt").read_text().splitlines()
    assert newer == [
        "sterna_ingest_bad.batch text NOT NULL",
        "sterna_ingest_bad.rows bigint NOT NULL",
        "sterna_ingest_bad.accepted timestamp with time zone",
        "sterna_ingest_worker.name text NOT NULL",
        "sterna_ingest_worker.host text NOT NULL",
        "sterna_ingest_worker.pid integer NOT NULL",
        "sterna_ingest_worker.begun timestamp with time zone NOT NULL DEFAULT clock_timestamp()",
        "sterna_ingest_worker.seen timestamp with time zone NOT NULL DEFAULT clock_timestamp()",
        "sterna_ingest_bad PRIMARY KEY (batch)",
        "sterna_ingest_worker PRIMARY KEY (name)",
        "CREATE INDEX sterna_ingest_bad_open ON public.sterna_ingest_bad USING btree (batch) "
        "WHERE ((accepted IS NULL) AND (rows > 0))",
        "CREATE UNIQUE INDEX sterna_ingest_bad_pkey ON public.sterna_ingest_bad USING btree (batch)",
        "CREATE INDEX sterna_ingest_batch_rejected ON public.sterna_ingest_batch USING btree (settled) "
        "WHERE (state = 'rejected'::text)",
        "CREATE UNIQUE INDEX sterna_ingest_worker_pkey ON public.sterna_ingest_worker USING btree (name)",
    ]


def test_rows_of_november_2026_are_read(eu: TrackedInbox) -> None:
    _load(eu)
    assert _read(eu) == (_BATCH, list(_TAKEN))
    assert eu.queue.list_uploads(BATCH_ID) == [_TAKEN[0]]
    assert read_checkpoint(eu.pool)[:2] == ("c0ffee", AT)


def test_rows_are_written_as_in_november_2026(eu: TrackedInbox) -> None:
    with eu.pool.connection() as connection:
        for drop in DROPS[:2]:
            connection.execute(INSERT_UPLOAD, build_upload_row(drop))
    (row,) = (line for line in _ROWS.splitlines() if "INTO sterna_ingest_batch" in line)
    channel = next(line for line in _ROWS.splitlines() if "INTO sterna_ingest_channel" in line)
    served = next(line for line in _ROWS.splitlines() if "INTO sterna_ingest_served" in line)
    _load(eu, "\n".join([channel, row, served]))
    write_checkpoint(eu.pool, "c0ffee", AT)
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_drop SET taken = accepted")
        connection.execute("UPDATE sterna_ingest_drop SET batch = %s WHERE id = %s", (BATCH_ID, DROPS[0].id))
        connection.execute("UPDATE sterna_ingest_version SET tracker = %s", ("0f" * 16,))
    assert _dump(eu) == _ROWS


def test_where_a_column_stands_and_what_a_newer_version_adds_changes_nothing(eu: TrackedInbox) -> None:
    with eu.pool.connection() as connection:
        older = ("sterna_ingest_served", "sterna_ingest_drop", "sterna_ingest_batch", "sterna_ingest_seen")
        for table in (*older, *_NEWER):
            connection.execute(f"DROP TABLE {table}".encode())
        for table in TABLES:
            if table.name not in ("sterna_ingest_version", "sterna_ingest_channel"):
                turned = dict([("newer", "text NOT NULL DEFAULT 'x'"), *reversed(table.columns.items())])
                for statement in replace(table, columns=turned).statements:
                    connection.execute(statement.encode())
    _load(eu)
    assert _read(eu) == (_BATCH, list(_TAKEN))
    with eu.pool.connection() as connection:
        connection.execute("SELECT setval('sterna_ingest_drop_sequence_seq', 100)")
    assert eu.drop(b"[]\n", key="k").state is State.BUFFERED
    closed = eu.close(asked=True)
    assert len(closed) == 2 and [eu.tracker.batch(batch.id) for batch in closed] == closed
    write_checkpoint(eu.pool, "d0d0", AT)
    assert read_checkpoint(eu.pool)[:2] == ("d0d0", AT)


@pytest.mark.parametrize("column", ["commit_hash", "reason", "leased_until"])
def test_a_column_that_is_absent_is_not_read_as_empty(eu: TrackedInbox, column: str) -> None:
    from sterna.errors import DatabaseRefused

    _load(eu)
    with eu.pool.connection() as connection:
        connection.execute(f"ALTER TABLE sterna_ingest_batch RENAME COLUMN {column} TO other".encode())
    with pytest.raises(DatabaseRefused, match=column):
        eu.tracker.batch(BATCH_ID)


def test_the_marker_is_that_of_november_2026_and_another_versions_is_none(eu: TrackedInbox) -> None:
    uri = marker_uri(eu.inbox)
    with eu.pool.connection() as connection:
        row = connection.execute("SELECT tracker FROM sterna_ingest_version").fetchone()
    assert row is not None
    assert eu.objects.read(uri) == b'{"version": 1, "tracker": "%s"}' % row[0].encode()
    path = Path(uri.removeprefix("file://"))
    path.write_bytes(MARKER_FILE.dumps(Marker(row[0])).replace(b": 1", b": 2"))
    with pytest.raises(TrackerLost):
        prepare(eu.pool, eu.objects, eu.inbox)
    with eu.pool.connection() as connection:
        connection.execute("UPDATE sterna_ingest_version SET version = 2")
    with pytest.raises(TrackerTooNew):
        prepare(eu.pool, eu.objects, eu.inbox)
