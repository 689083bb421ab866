"""What a step makes of the changes of each row, and what its MERGE does to the table, as another engine runs both."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sterna.errors import UnfitSource
from sterna.pipelines.cdc.apply import absent_columns, empty_rows, latest_by_key, merge_sql, take_rows
from sterna.pipelines.cdc.change_buffer import ABSENT, COMMITTED, OPERATION, SEQUENCE
from sterna.pipelines.cdc.plan import Target
from sterna.pipelines.ingest.columns import Column

_MATCHED, _NEW = 1, 2
_UTC = datetime(2026, 11, 29, tzinfo=UTC)
_ROW = (7, "before", False)


def merged(key: int, operation: str, *, told: bool, only: bool, soft: bool, cleared: bool) -> list[tuple[object, ...]]:
    """Return the rows of a table with row 1 after a step that has one row; `n` of it is told as "new", or is not."""
    database = duckdb.connect()
    database.execute("CREATE TABLE t(id INT, n TEXT, last_updated_ts INT, is_deleted BOOLEAN)")
    database.execute("INSERT INTO t VALUES (1, 'before', 7, false)")
    database.execute(
        "CREATE TABLE sterna_cdc_rows AS SELECT ?::INT id, ?::TEXT n, ?::BOOLEAN _sterna_told_n, "
        f"?::BOOLEAN _sterna_only, ?::TEXT {OPERATION}, 8 {COMMITTED}",
        [key, "new" if told else None, told, only, operation],
    )
    text = merge_sql("t", ["id"], ["n"], ["n"], soft_deletes=soft, delete_unmatched=cleared).replace("`", '"')
    text = text.replace("<=>", "IS NOT DISTINCT FROM")
    database.execute(re.sub(r'\bt\.("\w+") = ', r"\1 = ", text))
    return database.execute("SELECT * FROM t ORDER BY id").fetchall()


def wanted(key: int, operation: str, *, told: bool, only: bool, soft: bool, cleared: bool) -> list[tuple[object, ...]]:
    """Return the same by plain rules."""
    rows: dict[int, tuple[object, ...]] = {1: ("before", 7, False)}
    if cleared and key != 1:
        rows = {1: ("before", 7, True)} if soft else {}
    if only:
        return [(id, *row) for id, row in rows.items()]
    if operation == "u":
        rows[key] = ("new" if told else rows[key][0] if key in rows else None, 8, False)
    elif key in rows:
        rows = {key: (rows[key][0], 8, True)} if soft else {}
    # Without soft deletions nobody sets the flag of a row that is new.
    return [(id, n, at, flag if soft or id == 1 else None) for id, (n, at, flag) in sorted(rows.items())]


@pytest.mark.parametrize(("soft", "cleared"), list(product((False, True), repeat=2)))
@pytest.mark.parametrize("only", [False, True])
@pytest.mark.parametrize(("operation", "told"), [("u", True), ("u", False), ("d", False)])
@pytest.mark.parametrize("key", [_MATCHED, _NEW])
def test_each_kind_of_row(key: int, operation: str, told: bool, only: bool, soft: bool, cleared: bool) -> None:
    case = {"told": told, "only": only, "soft": soft, "cleared": cleared}
    assert merged(key, operation, **case) == wanted(key, operation, **case)


_changes = st.lists(
    st.tuples(
        st.integers(1, 2),  # the key
        st.sampled_from("ud"),
        st.sampled_from(["a", "b", None]),
        st.booleans(),  # whether the value is told
        st.integers(1, 2),  # when the source committed it: changes of one transaction have the same time
    ),
    min_size=1,
    max_size=8,
)


@settings(max_examples=200)
@given(_changes, st.booleans(), st.randoms(use_true_random=False))
def test_the_last_change_of_a_row_counts_and_the_last_value_that_was_told(
    changes: list[Any], listed: bool, order: Any
) -> None:
    """Also where the key is an array, which Arrow doesn't group by."""
    wanted: dict[int, tuple[object, ...]] = {}
    for key, operation, value, is_set, committed in changes:
        _, _, was, was_set = wanted.get(key, (None, None, None, False))
        now = operation == "u" and is_set
        wanted[key] = (operation, _UTC + timedelta(seconds=committed), value if now else was, was_set or now)
    places = list(range(len(changes)))
    order.shuffle(places)
    latest = latest_by_key(rows_of(changes, listed=listed).take(places), ["id"], ["n"]).to_pylist()
    columns = (OPERATION, COMMITTED, "n", "_sterna_told_n")
    got = {row["id"][0] if listed else row["id"]: tuple(row[name] for name in columns) for row in latest}
    assert (got, len(latest)) == (wanted, len(wanted))


def rows_of(changes: list[Any], *, listed: bool) -> pa.Table:
    """Return changes as the files of two segments have them."""
    columns = list(zip(*changes, strict=True))
    key = pa.array([[id] for id in columns[0]] if listed else columns[0])
    absent = pa.array([[] if told else ["n"] for told in columns[3]], pa.list_(pa.string()))
    committed = pa.array([_UTC + timedelta(seconds=at) for at in columns[4]], pa.timestamp("us", "UTC"))
    table = pa.table({"id": key, "n": pa.array(columns[2], pa.string()), OPERATION: columns[1], COMMITTED: committed})
    table = table.append_column(ABSENT, absent).append_column(SEQUENCE, pa.array(range(len(changes))))
    return pa.concat_tables([table.slice(0, len(changes) // 2), table.slice(len(changes) // 2)])


def test_what_every_change_tells_needs_nothing_of_the_table() -> None:
    rows = rows_of(
        [(1, "u", "a", True, 1), (2, "u", "b", True, 1), (1, "u", "c", True, 2), (2, "d", None, True, 2)], listed=False
    )
    assert absent_columns(rows) == set()
    assert [(row["id"], row["n"], row[OPERATION]) for row in latest_by_key(rows, ["id"]).to_pylist()] == [
        (1, "c", "u"),
        (2, None, "d"),
    ]
    text = merge_sql("t", ["id"], ["n"], absent_columns(rows), soft_deletes=False, delete_unmatched=False)
    assert "THEN UPDATE SET t.`id` = s.`id`, t.`n` = s.`n`, t.`last_updated_ts` = s._sterna_ts " in text
    partial = rows_of([(1, "u", "a", False, 1)], listed=False)
    assert absent_columns(partial) == {"n"}
    text = merge_sql("t", ["id"], ["n"], {"n"}, soft_deletes=False, delete_unmatched=False)
    assert "t.`n` = CASE WHEN s.`_sterna_told_n` THEN s.`n` ELSE t.`n` END" in text


def test_a_zero_is_one_key_whatever_its_sign() -> None:
    rows = rows_of([(0.0, "u", "a", True, 1), (-0.0, "u", "b", True, 1), (math.nan, "u", "c", True, 1)], listed=False)
    assert [row["n"] for row in latest_by_key(rows, ["id"]).to_pylist()] == ["b", "c"]


def test_a_table_that_is_empty_and_has_another_key_is_its_own_trouble() -> None:
    """What nobody foresees ends all sources of a region: a table made anew with another key, and without a row."""
    columns = [Column("id", "int"), Column("n", "string")]
    rows = empty_rows(Target("public.a", "acme.a", ("id",), False, ""), columns)
    assert (rows.num_rows, rows.column_names[0]) == (0, "id")
    with pytest.raises(UnfitSource, match=r"a key with column code, which acme\.a lacks"):
        empty_rows(Target("public.a", "acme.a", ("code",), False, ""), columns)


@given(
    st.lists(st.lists(st.none() | st.text(max_size=9), max_size=4), min_size=1, max_size=5),
    st.lists(st.none() | st.integers(0, 19), max_size=9),
    st.integers(1, 40),
)
def test_a_large_column_is_taken_as_a_small_one_is(
    chunks: list[list[str]], places: list[int | None], most: int
) -> None:
    column = pa.chunked_array(chunks, pa.string())
    wanted_places = [place for place in places if place is None or place < len(column)]
    taken = take_rows(column, pa.chunked_array([wanted_places], pa.int32()), most)
    values = column.to_pylist()
    assert taken.to_pylist() == [None if place is None else values[place] for place in wanted_places]


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (pa.float64(), [0.0, -0.0]),
        (pa.float64(), [math.nan, -math.nan, math.inf - math.inf]),
        (pa.list_(pa.float64()), [[1.0, 0.0], [1.0, -0.0]]),
        (pa.list_(pa.float64()), [[math.nan], [math.inf - math.inf]]),
    ],
)
def test_keys_that_spark_joins_are_one(kind: pa.DataType, values: list[Any]) -> None:
    count = len(values)
    rows = pa.table(
        {
            "id": pa.array(values, kind),
            SEQUENCE: pa.array(range(count), pa.int64()),
            OPERATION: ["u"] * count,
            COMMITTED: pa.array([_UTC] * count, pa.timestamp("us", "UTC")),
            ABSENT: pa.array([[]] * count, pa.list_(pa.string())),
        }
    )
    assert latest_by_key(rows, ["id"]).num_rows == 1
