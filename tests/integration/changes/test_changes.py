"""The rows between two snapshots, against the rows themselves: every kind of table and of delete."""

from __future__ import annotations

import gc
import time
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.connect.session import SparkSession as ConnectSession

from sterna.errors import EngineRefused, Gap, NeedsClassicSpark, NotAnAncestor, UsageError
from sterna.pipelines.changes import CHANGE, between, rows
from sterna.pipelines.changes.between import plan_changes
from sterna.spark.changelog_scan import load_named
from sterna.spark.errors import permanent_error
from tests.support.iceberg_java import commit_rows, data_file, equality_deletes, iceberg, load_table
from tests.support.often import often
from tests.support.promoted import (
    ENCODINGS,
    NARROW,
    differing,
    encodings,
    narrow_rows,
    promotions,
    properties,
    wide_rows,
    widened,
)
from tests.support.row_changes import Oracle, check, counted, line, net
from tests.support.world import merge_on_read

CATALOG = "changes_here"
COPY_ON_WRITE = "TBLPROPERTIES ('format-version'='{}')"
ODD = (
    "id BIGINT, d DOUBLE, f FLOAT, m MAP<STRING, DOUBLE>, s STRUCT<a: ARRAY<STRUCT<x: FLOAT>>, "
    "m: MAP<INT, MAP<STRING, INT>>>, p DECIMAL(20,3), b BINARY, t TIMESTAMP"
)
ODD_ROWS = (
    "SELECT id, IF(id % 3 = 0, double('nan'), IF(id % 3 = 1, 0.0D, NULL)), IF(id % 2 = 0, float('nan'), 0.0F), "
    "IF(id % 4 = 0, NULL, map('k', 0.0D, 'l', id)), IF(id % 5 = 0, NULL, named_struct('a', "
    "array(named_struct('x', 0.0F), NULL), 'm', map(1, map('a', 1), 2, NULL))), id / 7, "
    "CAST(concat('b', id % 2) AS BINARY), timestamp_micros(id) FROM range({}, {})"
)
PLAIN_ROWS = "INSERT INTO {t} SELECT id, concat('v', id % 4), id % 3 FROM range({}, {})"

# A table's columns and properties, and what is done to it, a snapshot each or none.
CASES: dict[str, tuple[str, list[str]]] = {
    "v1": (
        f"(id BIGINT, v STRING, part BIGINT) USING iceberg PARTITIONED BY (part) {COPY_ON_WRITE.format(1)}",
        [
            PLAIN_ROWS.format(0, 12, t="{t}"),
            "DELETE FROM {t} WHERE id IN (1, 2)",
            "INSERT OVERWRITE {t} SELECT id, concat('v', id % 4), id % 3 FROM range(3, 9)",
            PLAIN_ROWS.format(3, 6, t="{t}"),
            "UPDATE {t} SET part = 7 WHERE id = 5",
        ],
    ),
    "v2 position deletes": (
        f"(id BIGINT, v STRING, part BIGINT) USING iceberg PARTITIONED BY (part) {merge_on_read(2)}",
        [
            PLAIN_ROWS.format(0, 12, t="{t}"),
            PLAIN_ROWS.format(0, 12, t="{t}"),
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity'='partition')",
            "DELETE FROM {t} WHERE id IN (0, 4)",
            "ALTER TABLE {t} SET TBLPROPERTIES ('write.delete.granularity'='file')",
            "UPDATE {t} SET v = 'new' WHERE id IN (3, 4, 5)",
            "CALL {c}.system.rewrite_position_delete_files(table => '{n}', options => map('rewrite-all', 'true'))",
            "DELETE FROM {t} WHERE part = 1",
        ],
    ),
    "v3 vectors, odd values": (
        f"({ODD}) USING iceberg {merge_on_read(3)}",
        [
            "INSERT INTO {t} " + ODD_ROWS.format(0, 12),
            "DELETE FROM {t} WHERE id = 3",
            "UPDATE {t} SET d = -0.0D, m = map('l', id, 'k', -0.0D) WHERE id IN (1, 4, 7)",
            "UPDATE {t} SET s = named_struct('a', s.a, 'm', map(2, NULL, 1, map('a', 1))) WHERE id IN (2, 4)",
            "UPDATE {t} SET f = 0.0F WHERE id IN (2, 3)",
        ],
    ),
    "v2 copy-on-write, odd values": (
        f"({ODD}) USING iceberg {COPY_ON_WRITE.format(2)}",
        [
            "INSERT INTO {t} " + ODD_ROWS.format(0, 12),
            "UPDATE {t} SET d = -0.0D, m = map('l', id, 'k', -0.0D) WHERE id IN (1, 4, 7)",
            "DELETE FROM {t} WHERE id < 3",
        ],
    ),
    "v3 copy-on-write, variants": (
        f"(id BIGINT, v VARIANT) USING iceberg {COPY_ON_WRITE.format(3)}",
        [
            """INSERT INTO {t} SELECT id, parse_json('{{"a": 1, "b": [1, 2.5]}}') FROM range(6)""",
            """UPDATE {t} SET v = parse_json('{{"b": [1, 2.5], "a": 1}}') WHERE id = 1""",
            """UPDATE {t} SET v = parse_json(IF(id = 2, 'null', '1')) WHERE id IN (2, 3)""",
            "UPDATE {t} SET v = NULL WHERE id = 2",
        ],
    ),
    "upgraded": (
        f"(id BIGINT, v STRING, part BIGINT) USING iceberg {merge_on_read(2)}",
        [
            PLAIN_ROWS.format(0, 12, t="{t}"),
            "DELETE FROM {t} WHERE id IN (1, 2)",
            "ALTER TABLE {t} SET TBLPROPERTIES ('format-version'='3')",
            "DELETE FROM {t} WHERE id IN (3, 4)",
            "UPDATE {t} SET v = 'new' WHERE id IN (5, 6)",
            "CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))",
            "UPDATE {t} SET v = 'newer' WHERE id IN (6, 7)",
        ],
    ),
    "evolved": (
        f"(id INT, v STRING, s STRUCT<x: INT>, gone STRING) USING iceberg PARTITIONED BY (bucket(2, id)) "
        f"{merge_on_read(2)}",
        [
            "INSERT INTO {t} SELECT id, concat('v', id), named_struct('x', id), 'g' FROM range(8)",
            "ALTER TABLE {t} ADD COLUMN s.y DOUBLE",
            "ALTER TABLE {t} ALTER COLUMN s.x TYPE BIGINT",
            "ALTER TABLE {t} RENAME COLUMN v TO w",
            "ALTER TABLE {t} DROP COLUMN gone",
            "ALTER TABLE {t} REPLACE PARTITION FIELD bucket(2, id) WITH truncate(2, w)",
            "INSERT INTO {t} SELECT id, 'v', named_struct('x', id + 3000000000, 'y', -0D) FROM range(8, 11)",
            "DELETE FROM {t} WHERE id IN (1, 9)",
            "ALTER TABLE {t} ADD COLUMN `v` STRING FIRST",
            "UPDATE {t} SET v = 'again' WHERE id IN (2, 10)",
        ],
    ),
    **{
        f"partitioned and ordered by a later column, v{version}": (
            f"(id BIGINT, v STRING) USING iceberg PARTITIONED BY (bucket(2, id)) {merge_on_read(version)}",
            [
                "INSERT INTO {t} SELECT id, concat('v', id % 4) FROM range(0, 12)",
                "DELETE FROM {t} WHERE id = 3",
                "ALTER TABLE {t} ADD COLUMN part BIGINT",
                "ALTER TABLE {t} ADD PARTITION FIELD truncate(2, part) AS late",
                "ALTER TABLE {t} WRITE ORDERED BY part",
                "INSERT INTO {t} SELECT id, concat('v', id % 4), id % 3 FROM range(6, 18)",
                "UPDATE {t} SET part = 7 WHERE id IN (5, 9)",
            ],
        )
        for version in (2, 3)
    },
    "partitioned by a later column, once not": (
        f"(id BIGINT, v STRING) USING iceberg {merge_on_read(2)}",
        [
            "INSERT INTO {t} SELECT id, concat('v', id % 4) FROM range(0, 6)",
            "DELETE FROM {t} WHERE id = 3",
            "ALTER TABLE {t} ADD COLUMN part BIGINT",
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            "INSERT INTO {t} SELECT id, 'v', id % 3 FROM range(4, 8)",
        ],
    ),
    "partitioned by a later column, v1": (
        f"(id BIGINT, v STRING) USING iceberg PARTITIONED BY (v) {COPY_ON_WRITE.format(1)}",
        [
            "INSERT INTO {t} SELECT id, concat('v', id % 4) FROM range(0, 6)",
            "DELETE FROM {t} WHERE id = 3",
            "ALTER TABLE {t} ADD COLUMN part BIGINT",
            "ALTER TABLE {t} ADD PARTITION FIELD part",
            "ALTER TABLE {t} DROP PARTITION FIELD v",
            "INSERT INTO {t} SELECT id, 'v', id % 3 FROM range(4, 8)",
        ],
    ),
    "overwritten by the same, v3": (
        f"(id BIGINT, v STRING, part BIGINT) USING iceberg {merge_on_read(3)}",
        [
            PLAIN_ROWS.format(0, 6, t="{t}"),
            PLAIN_ROWS.format(0, 3, t="{t}"),
            "INSERT OVERWRITE {t} SELECT id, concat('v', id % 4), id % 3 FROM range(0, 5)",
            "UPDATE {t} SET id = 1 - id, v = 'v0', part = 0 WHERE id < 2",
        ],
    ),
}

_EVERY_RUN = (
    *("v1", "v2 position deletes", "v3 vectors, odd values", "upgraded", "evolved"),
    "partitioned and ordered by a later column, v3",
)


@pytest.fixture(scope="module")
def here(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session with a catalog in a folder, and the time zone that the rows are compared in."""
    prefix = f"spark.sql.catalog.{CATALOG}"
    for name, text in {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "hadoop",
        f"{prefix}.warehouse": str(tmp_path_factory.mktemp("warehouse")),
        f"{prefix}.cache-enabled": "false",
    }.items():
        spark.conf.set(name, text)
    yield spark


@pytest.fixture(scope="module")
def oracle(here: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Oracle:
    return Oracle(here, tmp_path_factory.mktemp("oracle"))


def make(spark: SparkSession, name: str, columns: str, statements: list[str]) -> str:
    table = f"{CATALOG}.db.{name}"
    spark.sql(f"CREATE TABLE {table} {columns}")
    for statement in statements:
        spark.sql(statement.format(t=table, c=CATALOG, n=f"db.{name}"))
    return table


def plain(spark: SparkSession, name: str, version: int = 2, more: tuple[str, ...] = ()) -> str:
    columns = f"(id BIGINT, v STRING, part BIGINT) USING iceberg {merge_on_read(version)}"
    return make(spark, name, columns, [PLAIN_ROWS.format(0, 6, t="{t}"), *more])


def snapshots(spark: SparkSession, table: str) -> list[int]:
    return [snapshot for snapshot, _ in line(spark, table)]


@pytest.mark.parametrize("case", often(CASES, _EVERY_RUN))
def test_changes_applied_to_the_first_give_the_second(here: SparkSession, oracle: Oracle, case: str) -> None:
    columns, statements = CASES[case]
    table = make(here, f"c{list(CASES).index(case)}", columns, statements)
    kept = snapshots(here, table)
    for start, end in (*pairwise(kept), (kept[0], kept[-1])):
        check(here, oracle, table, start, end)
    whole = net(here, table, None, kept[-1])
    assert whole == (Counter(), oracle.rows(table, kept[-1], kept[-1])), "from before the first row"


@pytest.mark.parametrize("encoding", often(ENCODINGS, ["both"]))
def test_files_from_before_columns_were_widened_are_read_by_the_wide_types(here: SparkSession, encoding: str) -> None:
    old, new = narrow_rows(0, 6_000), wide_rows(50_000, 60)
    insert = f"INSERT INTO {{t}} {old}"
    table = make(here, f"widened_{encoding}", f"({NARROW}) USING iceberg {properties(encoding)}", [insert])
    files = here.sql(f"SELECT file_path FROM {table}.files").collect()
    assert [encodings(row[0]) for row in files] == [{encoding}]
    for statement in (*promotions(table), f"INSERT INTO {table} {new}", f"DELETE FROM {table} WHERE id % 2 = 0"):
        here.sql(statement)
    kept = snapshots(here, table)
    for start, gone in ((kept[0], f"SELECT * FROM ({old}) WHERE id % 2 = 0"), (None, f"SELECT * FROM ({old}) LIMIT 0")):
        between(here, table, start, kept[-1], view="widened_changes")
        come = f"SELECT * FROM ({new}) WHERE id % 2 = 1"
        if start is None:
            come = f"{widened(come)} UNION ALL {widened(f'SELECT * FROM ({old}) WHERE id % 2 = 1')}"
        here.sql("SELECT * FROM widened_changes WHERE _change_type = 'insert'").createOrReplaceTempView("widened_come")
        here.sql("SELECT * FROM widened_changes WHERE _change_type = 'delete'").createOrReplaceTempView("widened_gone")
        assert here.sql(differing("widened_come", come)).collect() == []
        assert here.sql(differing("widened_gone", gone)).collect() == []
        assert here.table("widened_come").count() == (30 if start else 3_030)


@pytest.mark.parametrize("partition", ["", "part=0"])
def test_equality_deletes(here: SparkSession, oracle: Oracle, partition: str) -> None:
    by = "PARTITIONED BY (part)" if partition else ""
    table = make(
        here,
        f"equality_{bool(partition)}",
        f"(id BIGINT, v STRING, part BIGINT) USING iceberg {by} {merge_on_read(2)}",
        [PLAIN_ROWS.format(0, 9, t="{t}"), PLAIN_ROWS.format(20, 29, t="{t}")],
    )
    for turn, ids in enumerate(([0, 3, 20], [3, 4, 100])):
        loaded = load_table(here, table)
        new = [{"id": key, "v": f"upserted {turn}", "part": 0} for key in ids]
        data = data_file(here, loaded, new, partition=partition)
        deletes = equality_deletes(here, loaded, ["id"], [{"id": key} for key in ids], partition=partition)
        commit_rows(loaded, data=[data], deletes=[deletes])
    kept = snapshots(here, table)
    for start, end in ((kept[0], kept[3]), (kept[1], kept[2]), (kept[2], kept[3])):
        check(here, oracle, table, start, end)


@pytest.mark.parametrize("name", ["_file", "_deleted"])
def test_a_column_with_the_name_of_a_metadata_column_is_told_until_it_is_renamed(here: SparkSession, name: str) -> None:
    table = plain(here, f"reserved{name}")
    row = f"INSERT INTO {table} VALUES (9, 'x', 0)"
    load_table(here, table).updateSchema().renameColumn("v", name).commit()
    here.sql(row)
    start, end = snapshots(here, table)
    with pytest.raises(Exception, match=name) as caught:
        between(here, table, start, end).collect()
    refused = (
        caught.value
        if isinstance(caught.value, EngineRefused)
        else permanent_error(caught.value, table, read_only=True)
    )
    assert isinstance(refused, EngineRefused)
    assert f"it has a column {name}, and Iceberg has a metadata column of that name" in refused.message
    here.sql(f"ALTER TABLE {table} RENAME COLUMN `{name}` TO v")
    here.sql(row)
    (change,) = between(here, table, end, snapshots(here, table)[-1]).collect()
    assert change.asDict() == {"_change_type": "insert", "id": 9, "v": "x", "part": 0}


def test_iceberg_says_the_same_where_it_says_anything(here: SparkSession) -> None:
    columns, statements = CASES["v1"]
    table = make(here, "changelog", columns, statements)
    kept = snapshots(here, table)
    for start, end in ((kept[0], kept[-1]), (kept[1], kept[3])):
        options = f"map('start-snapshot-id', '{start}', 'end-snapshot-id', '{end}')"
        name = table.partition(".")[2]
        here.sql(f"CALL {CATALOG}.system.create_changelog_view(table => '{name}', options => {options})").collect()
        changelog = here.table("changelog_changes").collect()
        signed = counted(row[:3] for row in changelog if row["_change_type"] == "INSERT")
        signed.subtract(counted(row[:3] for row in changelog if row["_change_type"] == "DELETE"))
        old, new = net(here, table, start, end)
        ours = Counter(new)
        ours.subtract(old)
        assert {row: n for row, n in ours.items() if n} == {row: n for row, n in signed.items() if n}


def test_the_way_in_two_steps_is_the_way_in_one(here: SparkSession) -> None:
    columns, statements = CASES["upgraded"]
    table = make(here, "steps", columns, statements)
    first, *middles, last = snapshots(here, table)
    whole = Counter()
    for sign, part in zip((-1, 1), net(here, table, first, last), strict=True):
        whole.update({row: sign * n for row, n in part.items()})
    for middle in middles[1:3]:
        steps = Counter()
        for start, end in ((first, middle), (middle, last)):
            for sign, part in zip((-1, 1), net(here, table, start, end), strict=True):
                steps.update({row: sign * n for row, n in part.items()})
        assert {row: n for row, n in steps.items() if n} == {row: n for row, n in whole.items() if n}


def test_compaction_gives_nothing_and_few_files_are_read(here: SparkSession) -> None:
    table = make(
        here,
        "few",
        f"(id BIGINT, v STRING, part BIGINT) USING iceberg PARTITIONED BY (part) {merge_on_read(3)}",
        ["INSERT INTO {t} SELECT id, 'v', id % 20 FROM range(200)", "DELETE FROM {t} WHERE id = 45"],
    )
    name = table.partition(".")[2]
    here.sql(f"CALL {CATALOG}.system.rewrite_manifests(table => '{name}')").collect()
    rewrite = f"CALL {CATALOG}.system.rewrite_data_files(table => '{name}', options => map('rewrite-all', 'true'))"
    here.sql(rewrite).collect()
    kept = snapshots(here, table)

    def files(start: int, end: int) -> tuple[int, int]:
        return plan_changes(here, load_named(here, table), table, start, end).files

    assert files(kept[0], kept[1]) == (1, 1)
    assert files(kept[1], kept[-1]) == (0, 0)
    assert between(here, table, kept[1], kept[-1]).isEmpty()
    assert files(kept[0], kept[-1]) == (20, 20)
    assert [tuple(row) for row in between(here, table, kept[0], kept[-1]).collect()] == [("delete", 45, "v", 5)]


def test_updates_are_paired_by_row_ids_and_by_a_key(here: SparkSession) -> None:
    changes = (
        "UPDATE {t} SET v = 'new' WHERE id = 1",
        "DELETE FROM {t} WHERE id = 2",
        "UPDATE {t} SET v = 'newer' WHERE id = 1",
        "INSERT INTO {t} VALUES (9, 'nine', 0)",
    )
    updated = {("update_before", 1, "v1"), ("update_after", 1, "newer")}
    rest = {("delete", 2, "v2"), ("insert", 9, "nine")}
    three, two = plain(here, "paired3", 3, changes), plain(here, "paired2", 2, changes)

    def read_changes(table: str, **options: Any) -> set[tuple[Any, ...]]:
        kept = snapshots(here, table)
        return {tuple(row)[:3] for row in between(here, table, kept[0], kept[-1], **options).collect()}

    assert read_changes(three) == rest | updated
    assert read_changes(two) == rest | {("delete", 1, "v1"), ("insert", 1, "newer")}
    for table in (three, two):
        assert read_changes(table, key=["id"]) == rest | {("update_after", 1, "newer")}
        with pytest.raises(UsageError, match="no column nothing"):
            read_changes(table, key=["nothing"])
    with pytest.raises(PySparkException, match="NotAKey"):
        between(here, two, None, key=["part"]).collect()
    with pytest.raises(PySparkException, match="NotAKey"):  # though nobody asks what became of the rows
        between(here, two, None, key=["part"]).select("v").collect()


def test_a_branch_a_tag_and_a_view(here: SparkSession) -> None:
    table = plain(here, "refs", 2, ("ALTER TABLE {t} CREATE TAG first", "ALTER TABLE {t} CREATE BRANCH work"))
    here.sql(f"INSERT INTO {table}.branch_work VALUES (100, 'work', 0)")
    here.sql(f"DELETE FROM {table} WHERE id = 1")
    between(here, table, "first", "work", view="worked")
    gc.collect()
    for _ in range(5):  # nobody but the view needs what is staged
        here._jvm.System.gc()  # type: ignore[union-attr]
        here.range(1).count()
    assert [tuple(row) for row in here.sql("SELECT * FROM worked").collect()] == [("insert", 100, "work", 0)]
    here.catalog.dropTempView("worked")
    assert [row[:2] for row in between(here, table, "first").collect()] == [("delete", 1)]
    arrow = between(here, table, "first").toArrow()
    assert arrow.column_names == [CHANGE, "id", "v", "part"]
    with pytest.raises(UsageError, match="no snapshot, branch or tag 'nothing'"):
        between(here, table, "nothing")
    with pytest.raises(NotAnAncestor):
        between(here, table, "work")


def test_a_gap_and_a_rollback_are_told(here: SparkSession) -> None:
    table = plain(here, "gaps", 2, ("DELETE FROM {t} WHERE id = 1", "DELETE FROM {t} WHERE id = 2"))
    name = table.partition(".")[2]
    first, second, third = snapshots(here, table)
    here.sql(f"CALL {CATALOG}.system.rollback_to_snapshot(table => '{name}', snapshot_id => {second})").collect()
    with pytest.raises(NotAnAncestor, match="read all rows at the end"):
        between(here, table, third)
    here.sql(f"ALTER TABLE {table} CREATE TAG first AS OF VERSION {first}")
    here.sql(f"INSERT INTO {table} VALUES (50, 'x', 0)")
    expire = f"CALL {CATALOG}.system.expire_snapshots(table => '{name}', older_than => now(), retain_last => 1)"
    here.sql(expire).collect()
    with pytest.raises(Gap, match=f"snapshot {second} is not kept"):
        between(here, table, second)
    with pytest.raises(Gap, match=f"snapshot {second}, which is between {first} and"):
        between(here, table, "first")


def test_spark_connect_is_refused_by_name(here: SparkSession) -> None:
    with pytest.raises(NeedsClassicSpark, match="Spark Connect"):
        between(ConnectSession.__new__(ConnectSession), "any.table", 1)


def test_what_nobody_reads_any_more_is_let_go_of(here: SparkSession) -> None:
    table = plain(here, "released", 2, ("DELETE FROM {t} WHERE id = 1",))
    manager = iceberg(here).spark.ScanTaskSetManager.get()
    start, end = snapshots(here, table)
    frame = between(here, table, start, end)
    loaded = load_table(here, table)
    before = loaded.operations().current().metadataFileLocation()
    assert manager.fetchSetIds(loaded).size() == 2
    derived = frame.select("id")
    del frame
    gc.collect()
    here._jvm.System.gc()  # type: ignore[union-attr]
    assert derived.count() == 1, "what is derived reads the same"
    assert load_table(here, table).operations().current().metadataFileLocation() == before, "nothing is written"
    del derived
    until = time.monotonic() + 60
    while manager.fetchSetIds(loaded).size():
        assert time.monotonic() < until, "staged tasks stay for ever"
        gc.collect()
        between(here, table, end, end).collect()  # so that Spark forgets its last query
        here._jvm.System.gc()  # type: ignore[union-attr]


@pytest.mark.parametrize("bug", ["numbers", "duplicates"])
def test_a_bug_is_seen_by_the_check(
    here: SparkSession, oracle: Oracle, bug: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = f"(id BIGINT, d DOUBLE) USING iceberg {COPY_ON_WRITE.format(2)}"
    table = make(
        here,
        f"bug_{bug}",
        columns,
        ["INSERT INTO {t} VALUES (1, 0.0D), (2, 1.0D), (2, 1.0D)", "UPDATE {t} SET d = IF(id = 1, -0.0D, 2.0D)"],
    )
    start, end = snapshots(here, table)
    check(here, oracle, table, start, end)
    if bug == "numbers":
        monkeypatch.setattr(rows, "is_plain", lambda kind: True)
    else:
        side = rows.signed_rows
        monkeypatch.setattr(rows, side.__name__, lambda *arguments: side(*arguments).distinct())
    with pytest.raises(AssertionError):
        check(here, oracle, table, start, end)
