"""What a step makes of the changes of each row, and what its MERGE does to the table, as another engine runs both."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import product
from typing import Any, cast

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import functions

from sterna.errors import UnfitSource
from sterna.pipelines.cdc.apply import empty_rows, latest_by_key, merge_sql
from sterna.pipelines.cdc.change_buffer import ABSENT, COMMITTED, OPERATION, SEQUENCE
from sterna.pipelines.cdc.plan import Target
from sterna.pipelines.ingest.columns import Column

_MATCHED, _NEW = 1, 2
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
    text = merge_sql("t", ["id"], ["n"], soft_deletes=soft, delete_unmatched=cleared).replace("`", '"')
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


@dataclass(frozen=True)
class Expression:
    """A column of a `Frame`, as DuckDB writes it."""

    text: str

    def alias(self, name: str) -> Expression:
        return Expression(f'{self.text} AS "{name}"')


@dataclass(frozen=True)
class Frame:
    """As much of a Spark frame as `folded` needs: it builds a query."""

    query: str
    keys: str = ""

    def groupBy(self, *keys: Expression) -> Frame:
        return Frame(self.query, ", ".join(key.text for key in keys))

    def agg(self, *columns: Expression) -> Frame:
        chosen = ", ".join(column.text for column in columns)
        return Frame(f"SELECT {self.keys}, {chosen} FROM ({self.query}) GROUP BY {self.keys}")

    def withColumn(self, name: str, column: Expression) -> Frame:
        return Frame(f'SELECT *, {column.text} AS "{name}" FROM ({self.query})')


def expression(text: str) -> Expression:
    # Spark's max_by also takes a value that is null; DuckDB's doesn't.
    return Expression(text.replace("`", '"').replace("max_by(", "arg_max_null("))


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


@settings(max_examples=30)
@given(_changes, st.randoms(use_true_random=False))
def test_the_last_change_of_a_row_counts_and_the_last_value_that_was_told(changes: list[Any], order: Any) -> None:
    rows = [(*change, place) for place, change in enumerate(changes)]
    wanted: dict[int, tuple[object, ...]] = {}
    for key, operation, value, is_set, committed, _ in rows:
        _, _, was, was_set = wanted.get(key, (None, None, None, False))
        now = operation == "u" and is_set
        wanted[key] = (operation, committed, value if now else was, was_set or now)
    order.shuffle(rows)
    database = duckdb.connect()
    database.execute(f"CREATE TABLE r(id INT, {OPERATION} TEXT, n TEXT, told BOOLEAN, {COMMITTED} INT, {SEQUENCE} INT)")
    database.executemany("INSERT INTO r VALUES (?, ?, ?, ?, ?, ?)", rows)
    query = f"SELECT *, CASE WHEN told THEN []::TEXT[] ELSE ['n'] END AS {ABSENT} FROM r"
    with pytest.MonkeyPatch.context() as patch:
        for name in ("expr", "col"):
            patch.setattr(functions, name, expression)
        frame = cast(Any, latest_by_key(cast(Any, Frame(query)), ["id"], ["n"]))
    merged_rows = database.execute(
        f"SELECT id, {OPERATION}, {COMMITTED}, n, _sterna_told_n FROM ({frame.query})"
    ).fetchall()
    assert {key: tuple(rest) for key, *rest in merged_rows} == wanted


def test_a_table_that_is_empty_and_has_another_key_is_its_own_trouble() -> None:
    """What nobody foresees ends all sources of a region: a table made anew with another key, and without a row."""
    columns = [Column("id", "int"), Column("n", "string")]
    rows = empty_rows(Target("public.a", "acme.a", ("id",), False, ""), columns)
    assert (rows.num_rows, rows.column_names[0]) == (0, "id")
    with pytest.raises(UnfitSource, match=r"a key with column code, which acme\.a lacks"):
        empty_rows(Target("public.a", "acme.a", ("code",), False, ""), columns)
