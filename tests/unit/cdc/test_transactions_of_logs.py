"""Where a drop may be cut in what a binary log tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterna.cdc.gathering import Gatherer

_LAYOUT = {"columns": [{"name": "id", "typeName": "INT", "optional": False}], "primaryKeyColumnNames": ["id"]}


def _gatherer(folder: Path) -> Gatherer:
    made = Gatherer(folder, "absent", {"shop.t": ("id",)}, lambda table, added: None, {}, {}, {"shop.t": _LAYOUT})
    fields = [{"field": "after", "fields": [{"field": "id", "type": "int32"}]}]
    made.take({"define": 1, "fields": {"fields": fields}})
    return made


def _transaction(gatherer: Gatherer, status: str) -> None:
    gatherer.take({"topic": "s.transaction", "schema": None, "value": {"status": status}})


def _row(gatherer: Gatherer, operation: str, row: Any) -> None:
    source = {"db": "shop", "table": "t", "ts_us": 1}
    told = {"op": operation, "before": row, "after": row, "source": source}
    gatherer.take({"topic": "s.shop.t", "schema": 1, "value": told, "size": 1})


def test_a_statement_leaves_no_transaction_open(tmp_path: Path) -> None:
    """Each begins as a transaction does, and its end isn't told: nothing would be durable until somebody commits."""
    gatherer = _gatherer(tmp_path)
    _transaction(gatherer, "BEGIN")
    _row(gatherer, "c", {"id": 1})
    assert gatherer.is_open
    _transaction(gatherer, "END")
    assert not gatherer.is_open
    _transaction(gatherer, "BEGIN")  # of a table that isn't followed: nothing more is told
    assert not gatherer.is_open
    _transaction(gatherer, "BEGIN")
    _row(gatherer, "t", None)
    assert not gatherer.is_open
    assert [(name, rows) for name, _, rows, _ in gatherer.cut()] == [("shop.t", 2)]


def test_first_rows_open_none(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    _row(gatherer, "r", {"id": 1})
    assert not gatherer.is_open
