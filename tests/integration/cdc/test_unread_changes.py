"""A change of rows that the engine's reader of the log doesn't read stops its table, and is never passed over.

A session's `binlog_row_value_options = PARTIAL_JSON` made updates that the engine passed over without a word: the
table on `main` kept an old JSON for ever. What else falls under it: rows that a MariaDB compresses, since
`log_bin_compress` was on for a moment between two looks at it; both also of tables that nobody follows, which stop
nothing; and statements that are compressed, of which nobody can tell whose they are.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from sterna.errors import SourceUnreachable
from tests.integration.cdc.test_exact_log import BOTH, Source, server, source
from tests.support.binlog_events import event, rows, table_map

__all__ = ["server", "source"]

_WRITE_ROWS, _PARTIAL_UPDATE, _COMPRESSED_QUERY = 30, 39, 165
_COMPRESSED = range(166, 172)


def read_events(*events: bytes) -> tuple[list[dict[str, Any]], list[str], str]:
    """What the engine tells of some events, the kinds of data that it makes of them, and what it fails with."""
    job = json.dumps({"followed": ["s.t", "s.u"], "events": [event.hex() for event in events]})
    ran = subprocess.run(
        [sys.executable, "-m", "tests.support.binlog_events"],
        input=f"{job}\n",
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    lines = [json.loads(line) for line in ran.stdout.splitlines() if line.startswith(("{", "["))]
    return [message for message in lines if isinstance(message, dict)], (lines or [[]])[-1], ran.stderr


def test_rows_that_are_not_read_are_told_of_their_table() -> None:
    events = [table_map(7, "s.t"), rows(_WRITE_ROWS, 7), rows(_PARTIAL_UPDATE, 7), table_map(9, "s.other")]
    events += [rows(_PARTIAL_UPDATE, 9), *(rows(kind, 9) for kind in _COMPRESSED), table_map(8, "s.u")]
    events += [*(rows(kind, 8) for kind in _COMPRESSED), rows(_WRITE_ROWS, 9), rows(_WRITE_ROWS, 8)]
    messages, kinds, failed = read_events(*events)
    assert [message["trouble"] for message in messages] == ["s.t", "s.u"], failed
    assert "binlog_row_value_options" in messages[0]["said"]
    assert "log_bin_compress" in messages[1]["said"]
    assert kinds[:3] == ["TableMapEventData", "WriteRowsEventData", ""]
    assert kinds[-2:] == ["WriteRowsEventData"] * 2  # the reader stands where the next event begins


@pytest.mark.parametrize("events", [[rows(_PARTIAL_UPDATE, 7)], [event(_COMPRESSED_QUERY, bytes(20))]])
@pytest.mark.rare
def test_what_belongs_to_nobody_ends_the_engine(events: list[bytes]) -> None:
    messages, _, failed = read_events(*events)
    assert messages == []
    assert "IllegalStateException" in failed


@pytest.mark.rare
@pytest.mark.parametrize("server", ["mariadb"], indirect=True, scope="module")
def test_a_statement_that_is_compressed_ends_the_reader(source: Source) -> None:
    source.sql("CREATE TABLE t (id int PRIMARY KEY, n int)")
    source.sql("INSERT INTO t VALUES (1, 0)")
    source.settle("t")
    source.sql("SET GLOBAL log_bin_compress = ON")
    source.sql(f"CREATE TABLE other (id int PRIMARY KEY) COMMENT '{'x' * 1000}'")
    source.sql("SET GLOBAL log_bin_compress = OFF")
    for _ in range(2):
        with pytest.raises(SourceUnreachable, match="a statement is compressed"):
            source.settle("t")
        source.reading.restart()


@pytest.mark.rare
@BOTH
def test_a_change_that_the_engine_does_not_read_stops_its_table(source: Source) -> None:
    """A session of a MySQL has JSON told in part, or a MariaDB compresses its log for a moment."""
    source.reading = source.reader_of("good", "t")
    source.reading.stops = (f"{source.name}.t",)
    for table in ("good", "t", "other"):
        source.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, j json)")
        source.sql(f"""INSERT INTO {table} VALUES (1, 0, '{{"a": 1, "b": "{"x" * 5000}"}}')""")
    source.settle("good")
    on, off = ("SET SESSION binlog_row_value_options = 'PARTIAL_JSON'", "SET SESSION binlog_row_value_options = ''")
    if source.is_maria:
        on, off = ("SET GLOBAL log_bin_compress = ON", "SET GLOBAL log_bin_compress = OFF")
    for table in ("other", "t"):
        source.sql(on)
        source.sql(f"UPDATE {table} SET j = json_set(j, '$.a', 2)")
        source.sql(off)
        source.sql("UPDATE good SET n = n + 1")
    source.settle("good")
    (stop,) = source.reading.last().stopped.values()
    assert ("log_bin_compress" if source.is_maria else "binlog_row_value_options") in stop.message
    (row,) = source.reading.rows()[f"{source.name}.t"].values()
    assert json.loads(row["j"])["a"] == 1
