"""What a query's process answers, beside what PyIceberg reads of the same table without any filter pushed down."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.table import StaticTable
from pyiceberg.types import LongType

from sterna.errors import (
    AnswerTooLarge,
    BrokenMetadata,
    NeedsSpark,
    ObjectMissing,
    OutOfTime,
    QueryFailed,
    SnapshotGone,
    UnfitParameters,
)
from sterna.serving.queries.engine import tables as engine_tables
from sterna.serving.queries.engine.run import run_query
from sterna.serving.queries.engine.values import json_value
from tests.support.small_world import World
from tests.unit.queries.tables import (
    ROWS,
    current,
    document,
    files_of,
    in_place,
    job,
    path_of,
    pinned,
    sales,
    with_deletes,
    written,
)

ALL = "SELECT * FROM ns.sales"
FILTERS = (
    "id = 17",
    "id > 190 OR id < 3",
    "id IN (1, 2, 399)",
    "price > 100",
    "price >= 'nan'::double",
    "price < 'nan'::double",
    "price = 'nan'::double",
    "price <> 3",
    "NOT price < 100",
    "isnan(price)",
    "price IS NULL AND small = 2",
    "small BETWEEN 1 AND 2",
    "name LIKE 'n1%'",
    "name > 'n2' AND name <= 'n7'",
    "amount >= 1.23 AND amount < 1.4",
    "amount = 1",
    "day >= DATE '1971-01-01' AND seen < TIMESTAMPTZ '1970-01-09 00:00:00+00'",
    "local >= TIMESTAMP '1970-01-01 00:01:00'",
    "id >= 0",
    "id >= 200",
    "id < 200",
    "id <> 1000",
    "id NOT IN (1000, 1001)",
    "id >= 200 AND small < 100",
    "id >= 200 OR name = 'n1'",
    "price >= 0",
    "price <= 'infinity'::DOUBLE",
    "NOT (price > 1e300)",
    "small >= 0",
    "NOT (small > 100)",
    "amount < 1000000",
    "day < DATE '2200-01-01'",
    "name < 'z'",
    "good",
    "NOT good",
    "good IS NULL",
    "bytes = '\\x07'::blob",
    "place.x > 150",
    "list_contains(tags, 40)",
    "id % 2 = 0 AND price > 5 AND name IS NOT NULL",
)


@pytest.fixture
def table(world: World) -> str:
    """The same rows in two files, without deletes."""
    return in_place(world, written(world, sales(), sales(ROWS)))


def rows(world: World, uri: str, sql: str, **fields: Any) -> list[dict[str, Any]]:
    answer_rows: list[dict[str, Any]] = run_query(job(world, sql, pinned(uri), **fields))["rows"]
    return answer_rows


def scanned(uri: str, snapshot: int | None = None) -> pa.Table:
    return StaticTable.from_metadata(uri).scan(snapshot_id=snapshot or current(uri)).to_arrow()


def as_json(arrow_table: pa.Table) -> list[dict[str, Any]]:
    return [
        {name: json_value(arrow_table.column(name)[at]) for name in arrow_table.column_names}
        for at in range(arrow_table.num_rows)
    ]


def by_id(json_rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True) for row in json_rows)


def kinds(monkeypatch: pytest.MonkeyPatch) -> list[type]:
    """What tables are read through, as they are opened."""
    seen: list[type] = []
    real = engine_tables.PinnedDataset.__init__

    def opened(self: Any, source: Any) -> None:
        seen.append(type(source))
        real(self, source)

    monkeypatch.setattr(engine_tables.PinnedDataset, "__init__", opened)
    return seen


@pytest.mark.parametrize("deletes", ["", "positions", "vectors"])
def test_every_row_and_no_deleted_one(world: World, table: str, deletes: str, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = kinds(monkeypatch)
    uri = with_deletes(table, deletes) if deletes else table
    answer_rows = rows(world, uri, ALL)
    gone = {"": 0, "positions": 6, "vectors": 3}[deletes]
    assert len(answer_rows) == 2 * ROWS - gone
    assert by_id(answer_rows) == by_id(as_json(scanned(uri)))
    assert seen == [engine_tables.LiveRows if deletes else engine_tables.DataFiles]


@pytest.mark.slow
@pytest.mark.parametrize("deletes", ["", "positions"])
def test_filters_that_are_pushed_down_leave_what_they_leave_of_all_rows(world: World, table: str, deletes: str) -> None:
    import duckdb

    uri = with_deletes(table, deletes) if deletes else table
    whole = scanned(uri)
    with duckdb.connect(":memory:") as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute("CREATE SCHEMA ns")
        connection.register("whole", whole)
        # A table of its own, so that nothing is pushed into Arrow.
        connection.execute("CREATE TABLE ns.sales AS SELECT * FROM whole")
        for text in FILTERS:
            sql = f"SELECT id, name FROM ns.sales WHERE {text}"
            expected = by_id([{"id": str(id), "name": name} for id, name in connection.execute(sql).fetchall()])
            assert by_id(rows(world, uri, sql)) == expected, text


def test_an_older_snapshot_is_what_it_was(world: World) -> None:
    uri = in_place(world, written(world, sales(), sales(ROWS)))
    first = document(uri)["snapshots"][0]["snapshot-id"]
    answer = run_query(job(world, "SELECT count(*) AS n, max(id) AS last FROM ns.sales", pinned(uri, first), kpi=True))
    assert answer == {"types": {"n": "long", "last": "long"}, "rows": [{"n": str(ROWS), "last": str(ROWS - 1)}]}


def test_a_snapshot_has_its_own_schema_and_a_commit_the_current_one(world: World) -> None:
    written(world, sales())
    table = world.writer.load_table(("ns", "sales"))
    with table.update_schema() as update:
        update.rename_column("price", "cost").delete_column("name").update_column("small", LongType())
    table = world.writer.load_table(("ns", "sales"))
    table.append(table.scan().to_arrow().slice(0, 10))
    uri = in_place(world, table.metadata_location)
    first, second = (snapshot["snapshot-id"] for snapshot in document(uri)["snapshots"])
    old = run_query(job(world, ALL, pinned(uri, first)))
    assert {"price", "name"} <= old["types"].keys() and old["types"]["small"] == "int"
    new = run_query(job(world, ALL, pinned(uri, first, own_schema=False)))
    assert "cost" in new["types"] and "name" not in new["types"] and new["types"]["small"] == "long"
    assert [row["cost"] for row in new["rows"]] == [row["price"] for row in old["rows"]]
    both = run_query(job(world, "SELECT count(*) AS n, count(cost) AS c FROM ns.sales", pinned(uri, second), kpi=True))
    assert both["rows"][0]["n"] == str(ROWS + 10)


def test_a_table_without_a_snapshot_has_no_rows(world: World) -> None:
    world.writer.create_table(("ns", "sales"), sales().schema, location=f"file://{world.folder}/us/lake/sales")
    uri = in_place(world, world.writer.load_table(("ns", "sales")).metadata_location)
    from sterna.serving.queries.job import PinnedTable

    empty = PinnedTable(("ns", "sales"), uri, None, own_schema=False)
    assert run_query(job(world, "SELECT count(*) AS n FROM ns.sales", empty))["rows"] == [{"n": "0"}]
    assert run_query(job(world, ALL, empty))["rows"] == []


def test_what_neither_reads_exactly_is_said_to_need_spark(world: World, table: str) -> None:
    with pytest.raises(NeedsSpark, match="equality deletes"):
        rows(world, with_deletes(table, "equality"), ALL)
    metadata = document(table)
    metadata["schemas"][0]["fields"][2]["type"] = "uuid"
    other = path_of(table).parent / "99998-uuid.metadata.json"
    other.write_text(json.dumps(metadata))
    with pytest.raises(NeedsSpark, match="column small has the type uuid"):
        rows(world, f"file://{other}", ALL)


def test_two_tables_are_joined_whatever_their_names_are(world: World) -> None:
    few = pa.table({"id": pa.array([1, 2], pa.int64()), "Note": ["a", "b"]})
    uris = [written(world, sales()), written(world, few, name="notes")]
    one, two = (in_place(world, uri) for uri in uris)
    keys = (("a.b", 'quo"te'), ("lake", "db", "notes"))
    sql = 'SELECT id, "Note" FROM "a.b"."quo""te" JOIN lake.db.notes USING (id) ORDER BY id'
    answer = run_query(job(world, sql, pinned(one, key=keys[0]), pinned(two, key=keys[1])))
    assert answer["rows"] == [{"id": "1", "Note": "a"}, {"id": "2", "Note": "b"}]


@pytest.mark.parametrize(
    ("kind", "text", "column"),
    [
        ("long", "9223372036854775807", "id"),
        ("int", "3", "small"),
        ("double", "3.0", "price"),
        ("string", "n1' OR 1=1", "name"),
        ("decimal", "1.23", "amount"),
        ("decimal", "-0.5", "amount"),
        ("decimal", "0", "amount"),
        ("date", "1970-01-04", "day"),
        ("timestamp", "1970-01-01T00:00:01.000001", "local"),
        ("timestamptz", "1970-01-01T01:00:00.000001+00:00", "seen"),
        ("boolean", "true", "good"),
    ],
)
def test_parameters_are_bound_with_their_types(world: World, table: str, kind: str, text: str, column: str) -> None:
    sql = f"SELECT count(*) AS n, $value AS v FROM ns.sales WHERE {column} = $value"
    answer = run_query(job(world, sql, pinned(table), params={"value": (kind, text)}))
    assert answer["types"]["v"].split("(")[0] == kind
    assert int(answer["rows"][0]["n"]) >= (
        text in ("3", "3.0", "1.23", "true") or kind in ("date", "timestamp", "timestamptz")
    )


UNFIT = {
    "SELECT id FROM ns.sales LIMIT $n": ("long", "-1"),
    "SELECT id FROM ns.sales WHERE day = CAST($n AS DATE)": ("string", "no-date"),
    "SELECT id FROM ns.sales WHERE regexp_matches(name, $n)": ("string", "(q"),
    "SELECT id, $n * 9223372036854775807 AS x FROM ns.sales": ("long", "9223372036854775807"),
}
# What the parameters do with the rows: whose fault it is can't be told.
WITH_ROWS = {
    "SELECT CAST(name AS INTEGER) AS x FROM ns.sales WHERE id >= $n": ("long", "0"),
    "SELECT sum(id * $n) AS x FROM ns.sales": ("long", str((1 << 63) - 1)),
    "SELECT CAST(name || $n AS INTEGER) AS x FROM ns.sales": ("string", "q4711"),
    "SELECT TIMESTAMP '294246-12-31 00:00:00' + INTERVAL (id) YEAR AS x FROM ns.sales WHERE id >= $n": ("long", "199"),
}


@pytest.mark.parametrize(("sql", "value"), UNFIT.items())
def test_values_without_an_answer_are_told_from_sql_that_is_wrong(
    world: World, table: str, sql: str, value: tuple[str, str]
) -> None:
    with pytest.raises(UnfitParameters) as unfit:
        rows(world, table, sql, params={"n": value})
    assert value[1] not in str(unfit.value)
    text = f"'{value[1]}'" if value[0] == "string" else f"({value[1]})"
    with pytest.raises(QueryFailed):
        rows(world, table, sql.replace("$n", text))


@pytest.mark.parametrize(("sql", "value"), WITH_ROWS.items())
def test_what_the_rows_have_a_part_in_is_not_blamed_on_the_parameters(
    world: World, table: str, sql: str, value: tuple[str, str]
) -> None:
    with pytest.raises(QueryFailed) as failed:
        rows(world, table, sql, params={"n": value})
    assert value[1] not in str(failed.value) or len(value[1]) < 4


@pytest.mark.parametrize("deletes", ["", "positions"])
@pytest.mark.parametrize("broken", ["pages", "footer"])
def test_a_broken_file_is_never_the_parameters_fault(world: World, table: str, deletes: str, broken: str) -> None:
    uri = with_deletes(table, deletes) if deletes else table
    path = path_of(files_of(table)[0])
    data = bytearray(path.read_bytes())
    part = slice(4, len(data) // 3) if broken == "pages" else slice(len(data) - 60, len(data) - 8)
    data[part] = b"\xff" * (part.stop - part.start)
    path.write_bytes(data)
    with pytest.raises(QueryFailed, match=r"ns\.sales"):
        rows(world, uri, f"{ALL} WHERE id > $n", params={"n": ("long", "-1")})


def test_a_figure_without_a_row_is_its_parameters_fault_where_it_has_any(world: World, table: str) -> None:
    with pytest.raises(UnfitParameters):
        rows(world, table, f"{ALL} WHERE id = $n", kpi=True, params={"n": ("long", "-7")})
    for sql in (f"{ALL} WHERE id > $n", "SELECT nope FROM ns.sales WHERE id = $n"):
        with pytest.raises(QueryFailed):
            rows(world, table, sql, kpi=True, params={"n": ("long", "0")})


@pytest.mark.parametrize("text", ["0", "-0." + "0" * 37 + "1", "0." + "1" * 38, "9" * 38, "1." + "0" * 37])
def test_a_decimal_may_have_all_its_digits_on_either_side(world: World, table: str, text: str) -> None:
    params = {"value": ("decimal", text)}
    assert rows(world, table, "SELECT $value AS v FROM ns.sales LIMIT 1", params=params) == [{"v": text}]


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "SELECT * FROM '/etc/passwd'",
        "SELECT * FROM glob('/etc/*')",
        "COPY ns.sales TO '/tmp/sterna-never.csv'",
        "ATTACH '/tmp/sterna-never.db' AS x",
        "LOAD httpfs",
        "INSTALL httpfs",
        "SET memory_limit = '10GB'",
        "SET enable_external_access = true",
        "SELECT 1; SELECT 2",
        "SELECT * FROM uri",
        "SELECT getenv('HOME')",
        "CREATE TABLE x AS SELECT 1",
        "SELECT current_setting('nope')",
        "selec",
    ],
)
def test_nothing_but_the_tables_is_in_reach(world: World, table: str, sql: str) -> None:
    with pytest.raises(QueryFailed):
        rows(world, table, sql)
    assert not Path("/tmp/sterna-never.csv").exists() and not Path("/tmp/sterna-never.db").exists()


def test_what_is_locked_stays_locked_behind_a_select(world: World, table: str) -> None:
    # Were the count of statements ever wrong, these must still be refused by the engine itself.
    with pytest.raises(QueryFailed, match=r"lock|Permission|disabled"):
        rows(world, table, "SELECT * FROM read_csv('/etc/passwd'), ns.sales")


def test_limits(world: World, table: str) -> None:
    endless = "SELECT sum(a.range * b.range) AS n FROM range(10000000) a, range(10000000) b"
    with pytest.raises(OutOfTime):
        rows(world, table, endless, seconds=0.3)
    with pytest.raises(AnswerTooLarge):
        rows(world, table, ALL, rows=2 * ROWS - 1)
    assert len(rows(world, table, ALL, rows=2 * ROWS)) == 2 * ROWS
    with pytest.raises(AnswerTooLarge):
        rows(world, table, ALL, bytes=1000)
    with pytest.raises(AnswerTooLarge):
        rows(world, table, "SELECT repeat('x', 100000000) AS x FROM ns.sales LIMIT 1")
    with pytest.raises(QueryFailed, match="memory"):
        rows(world, table, "SELECT list(a.range) AS l FROM range(100000000) a", memory=64 << 20)


def test_an_answer_that_isn_t_what_it_is_to_be(world: World, table: str) -> None:
    for sql in (ALL, f"{ALL} WHERE id < 0"):
        with pytest.raises(QueryFailed, match="one row"):
            rows(world, table, sql, kpi=True)
    with pytest.raises(QueryFailed, match="one name"):
        rows(world, table, "SELECT id, id FROM ns.sales")
    with pytest.raises(QueryFailed, match="cast it"):
        rows(world, table, "SELECT INTERVAL 1 DAY AS i FROM ns.sales")


def test_files_that_are_gone_or_elsewhere(world: World, table: str) -> None:
    with pytest.raises(SnapshotGone):
        run_query(job(world, ALL, pinned(table, 12345)))
    foreign = world.writer.load_table(("ns", "sales")).metadata_location
    with pytest.raises(BrokenMetadata, match="another region"):
        rows(world, foreign, ALL)
    path_of(files_of(table)[0]).unlink()
    with pytest.raises(ObjectMissing):
        rows(world, table, ALL)


def test_a_filter_that_leaves_a_file_whole_reads_none_of_its_columns(world: World, table: str) -> None:
    """The file's statistics prove it: a number that can't be decoded is never met."""
    file = path_of(files_of(table)[0])
    column = pq.read_metadata(file).row_group(0).column(0)
    assert column.path_in_schema == "id"
    start = column.dictionary_page_offset or column.data_page_offset
    bounds = column.statistics.min, column.statistics.max
    data = bytearray(file.read_bytes())
    data[start : start + column.total_compressed_size] = b"\xff" * column.total_compressed_size
    file.write_bytes(data)
    sql = "SELECT count(small) AS n FROM ns.sales WHERE id BETWEEN {} AND {}"
    smalls = sales().column("small")
    assert rows(world, table, sql.format(*bounds)) == [{"n": str(len(smalls) - smalls.null_count)}]
    with pytest.raises(QueryFailed):
        rows(world, table, sql.format(bounds[0] + 1, bounds[1]))


def test_another_question_about_a_snapshot_reads_no_metadata_again(world: World, table: str) -> None:
    """No file of a replica changes; another registry or other credentials may allow other files."""
    sql = "SELECT count(*) AS n FROM ns.sales WHERE id < $n"
    answers = [
        run_query(job(world, sql, pinned(table, snapshot), params={"n": ("long", str(n))}))["rows"]
        for snapshot, n in [(current(table), 300), (document(table)["snapshots"][0]["snapshot-id"], 300)]
    ]
    assert answers == [[{"n": "300"}], [{"n": str(ROWS)}]]
    pin = pinned(table)
    for file in path_of(table).parent.iterdir():
        file.unlink()
    assert run_query(job(world, sql, pin, params={"n": ("long", "7")}))["rows"] == [{"n": "7"}]
    with pytest.raises(ObjectMissing):
        run_query(job(world, sql, pin, params={"n": ("long", "7")}, credentials={"AIRFLOW_CONN_OTHER": "{}"}))


@pytest.mark.parametrize("own_schema", [True, False])
def test_a_snapshot_of_a_schema_that_is_not_there_is_refused_by_name(
    world: World, table: str, own_schema: bool, tmp_path: Path
) -> None:
    """Its columns can't be told; the current ones may be others of the same names."""
    metadata = document(table)
    metadata["snapshots"][-1]["schema-id"] = 77
    other = path_of(table).parent / "99998-unknown-schema.metadata.json"
    other.write_text(json.dumps(metadata))
    pin = pinned(f"file://{other}", current(f"file://{other}"), own_schema=own_schema)
    if not own_schema:  # by a cursor, a table is read by its current schema
        assert run_query(job(world, "SELECT count(*) AS n FROM ns.sales", pin))["rows"]
        return
    with pytest.raises(BrokenMetadata, match="schema 77") as refused:
        run_query(job(world, "SELECT count(*) AS n FROM ns.sales", pin))
    assert refused.value.file == f"file://{other}"


def test_values_are_told_without_loss(world: World, table: str) -> None:
    sql = """
        SELECT 12345678901234567890123::HUGEINT AS huge, 1.50::DECIMAL(5, 2) AS dec, 9007199254740993::BIGINT AS big,
        7::TINYINT AS tiny, 0.1::DOUBLE AS double, 'nan'::DOUBLE AS nan, '-inf'::DOUBLE AS low, TRUE AS yes,
        DATE '2026-01-31' AS day, TIMESTAMP '2026-01-31 12:00:00.000001' AS local, TIME '10:00' AS clock,
        TIMESTAMPTZ '2026-01-31 12:00:00+02' AS at, TIMESTAMP_NS '2026-01-31 12:00:00.123456789' AS fine,
        [1::BIGINT, NULL] AS list, {'x': 1, 'y': 2.5::DOUBLE} AS struct, MAP {'k': 1.5} AS map, 'x'::BLOB AS bytes,
        TIMESTAMP '0044-03-15 00:00:00' AS old, NULL AS nothing, 'ä\n"' AS text
        FROM ns.sales LIMIT 1
    """
    answer = run_query(job(world, sql, pinned(table), kpi=True))
    assert json.loads(json.dumps(answer["rows"][0], allow_nan=False)) == {
        "huge": "12345678901234567890123",
        "dec": "1.50",
        "big": "9007199254740993",
        "tiny": 7,
        "double": 0.1,
        "nan": "NaN",
        "low": "-Infinity",
        "yes": True,
        "day": "2026-01-31",
        "local": "2026-01-31T12:00:00.000001",
        "clock": "10:00:00",
        "at": "2026-01-31T10:00:00Z",
        "fine": "2026-01-31T12:00:00.123456789",
        "list": ["1", None],
        "struct": {"x": 1, "y": 2.5},
        "map": [["k", "1.5"]],
        "bytes": "eA==",
        "old": "0044-03-15T00:00:00",
        "nothing": None,
        "text": 'ä\n"',
    }
    assert answer["types"]["huge"] == "decimal(38, 0)" and answer["types"]["map"] == "map<string, decimal(2, 1)>"
    assert answer["types"]["struct"] == "struct<x: int, y: double>" and answer["types"]["at"] == "timestamptz"
