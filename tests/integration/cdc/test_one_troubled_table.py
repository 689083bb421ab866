"""One table's trouble, or another database's, stops neither a MariaDB's or MySQL's source nor its other tables.

The troubled table stays as it was in the last drop before, and says why; all others go on. What else falls under it:
values without a place, changes that don't tell all columns (`binlog_row_image` of a session), statements that the
engine's parser lacks, columns that its reader of the log lacks or that come back without what they had, tables that
are dropped; each also of tables and databases that nobody follows; and an engine that begins anew meanwhile.
"""

from __future__ import annotations

import pytest

from tests.integration.cdc.reading import SourceReader
from tests.integration.cdc.test_exact_log import BOTH, Source, server, source

__all__ = ["server", "source"]


def unknown(source: Source, table: str) -> str:
    """A statement that adds a column, which the engine's parser lacks."""
    if source.is_maria:
        return f"ALTER TABLE {table} ADD COLUMN more INET6"
    return f'ALTER TABLE "{table}" ADD COLUMN more int'  # under ANSI_QUOTES


@BOTH
def test_tables_go_on_beside_those_in_trouble(source: Source) -> None:
    troubled = ("image", "stated", "worth", "gone", "child", "back", "swapped")
    source.reading = source.reader_of("good", *troubled)
    source.reading.stops = tuple(f"{source.name}.{table}" for table in troubled)
    for table in ("good", *troubled, "other"):
        source.sql(f"CREATE TABLE {table} (id int PRIMARY KEY, n int, v varchar(9) DEFAULT 'x', d date)")
        source.sql(f"INSERT INTO {table} VALUES (1, 0, 'a', '2020-01-01')")
    before = dict(source.settle("good"))
    source.sql("INSERT INTO gone VALUES (2, 0, 'b', NULL)")
    source.sql("DROP TABLE gone")
    source.sql("ALTER TABLE back DROP d")
    source.sql("ALTER TABLE back ADD d date")
    source.sql("ALTER TABLE swapped DROP d, ADD d date")
    source.sql("UPDATE child SET n = 1")
    source.sql("ALTER TABLE child ADD FOREIGN KEY (n) REFERENCES good (id) ON DELETE CASCADE")
    # Of others: tables beside them, and another database.
    source.sql(f"CREATE DATABASE {source.name}_b")
    source.sql("SET SESSION sql_mode = 'ALLOW_INVALID_DATES,ANSI_QUOTES'")
    source.sql(unknown(source, "other"))
    if source.is_maria:
        source.sql(f"CREATE TABLE {source.name}_b.t (id int PRIMARY KEY, v text COMPRESSED, w varchar(9) COMPRESSED)")
        source.sql(f"INSERT INTO {source.name}_b.t VALUES (1, repeat('x', 200), 'w')")
        source.sql(f"UPDATE {source.name}_b.t SET v = 'y'")
    source.sql(f"USE {source.name}_b")
    source.sql('CREATE TABLE "good" (id int PRIMARY KEY, n int)')
    source.sql(unknown(source, "good"))
    source.sql(f"USE {source.name}")
    # Their own, each amid transactions that change the good one too.
    source.sql(unknown(source, "stated"))
    source.sql("INSERT INTO stated (id, n) VALUES (2, 0)")
    source.connection.begin()
    source.sql("UPDATE worth SET v = 'half'")
    source.sql("UPDATE good SET v = 'b'")
    source.sql("INSERT INTO worth VALUES (2, 0, 'b', '2021-02-30')")
    source.sql("INSERT INTO good VALUES (2, 0, 'c', NULL)")
    source.connection.commit()
    source.sql("SET SESSION binlog_row_image = MINIMAL")
    source.sql("UPDATE image SET n = 7")
    source.sql("SET SESSION binlog_row_image = FULL")
    came = source.settle("good")
    assert before[1]["v"] == "a"
    assert {id: row["v"] for id, row in came.items()} == {1: "b", 2: "c"}
    rows, last = source.reading.rows(), source.reading.last()
    messages = {name.partition(".")[2]: stop.message for name, stop in last.stopped.items()}
    assert sorted(messages) == sorted(troubled)
    assert "lacks columns" in messages["image"]
    assert "isn't understood" in messages["stated"]
    assert "a value of column d has no place" in messages["worth"]
    assert "the row is (id) = (2)" in messages["worth"]
    assert "dropped" in messages["gone"]
    assert messages["back"] == messages["swapped"] == "column d was dropped and is there again, empty"
    assert "a foreign key changes its rows" in messages["child"]
    for table in ("image", "stated", "worth"):
        assert {id: row["v"] for id, row in rows[f"{source.name}.{table}"].items()} == {1: "a"}, table
    source.reading.restart()
    source.sql("INSERT INTO good VALUES (3, 0, 'd', NULL)")
    source.sql("INSERT INTO image VALUES (3, 0, 'd', NULL)")
    came = source.settle("good")
    assert sorted(came) == [1, 2, 3]
    assert sorted(source.reading.rows()[f"{source.name}.image"]) == [1]
    assert source.reading.last().stopped == last.stopped


@pytest.mark.rare
@BOTH
def test_a_newcomer_with_the_name_of_a_followed_table_stops_nothing(source: Source) -> None:
    both = source.reading.source.model_copy(update={"tables": [f"{source.name}.*", f"{source.name}_b.*"]})
    source.reading = SourceReader(both, source.folder / "both")
    source.sql("CREATE TABLE good (id int PRIMARY KEY, n int)")
    source.sql("INSERT INTO good VALUES (1, 0)")
    source.settle("good")
    source.sql(f"CREATE DATABASE {source.name}_b")
    source.sql(f"CREATE TABLE {source.name}_b.good (id int PRIMARY KEY, n int)")
    source.sql(f"INSERT INTO {source.name}_b.good VALUES (9, 9)")
    source.sql("ALTER TABLE good ADD COLUMN more int")  # then it is looked whether tables are still fit
    source.settle("good")
    source.reading.restart()
    source.sql("INSERT INTO good VALUES (2, 0, 2)")
    source.settle("good")
    assert {name: sorted(rows) for name, rows in source.reading.rows().items()} == {f"{source.name}.good": [1, 2]}
    assert source.reading.last().stopped == {}
