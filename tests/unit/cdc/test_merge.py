"""What the MERGE of a step does to each kind of row, as another engine's SQL runs it."""

from __future__ import annotations

import re
from itertools import product

import duckdb
import pytest

from sterna.cdc.apply import merge_text
from sterna.cdc.gathering import COMMITTED, OPERATION

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
    text = merge_text("t", ["id"], ["n"], soft=soft, cleared=cleared).replace("`", '"')
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
