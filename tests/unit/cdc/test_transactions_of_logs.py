"""Where a drop may be cut in what a binary log tells."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sterna.pipelines.cdc.change_buffer import ChangeBuffer

_LAYOUT = {"columns": [{"name": "id", "typeName": "INT", "optional": False}], "primaryKeyColumnNames": ["id"]}


def _gatherer(folder: Path) -> ChangeBuffer:
    gatherer = ChangeBuffer(
        folder, "absent", {"shop.t": ("id",)}, lambda table, added: None, {}, {}, {"shop.t": _LAYOUT}
    )
    fields = [{"field": "after", "fields": [{"field": "id", "type": "int32"}]}]
    gatherer.add_message({"define": 1, "fields": {"fields": fields}})
    return gatherer


def _transaction(gatherer: ChangeBuffer, status: str) -> None:
    gatherer.add_message({"topic": "s.transaction", "schema": None, "value": {"status": status}})


def _row(gatherer: ChangeBuffer, operation: str, row: Any) -> None:
    source = {"db": "shop", "table": "t", "ts_us": 1}
    change = {"op": operation, "before": row, "after": row, "source": source}
    gatherer.add_message({"topic": "s.shop.t", "schema": 1, "value": change, "size": 1})


def test_a_statement_leaves_no_transaction_open(tmp_path: Path) -> None:
    """Each begins as a transaction does, and its end isn't told: nothing would be durable until somebody commits."""
    gatherer = _gatherer(tmp_path)
    _transaction(gatherer, "BEGIN")
    _row(gatherer, "c", {"id": 1})
    assert gatherer.in_transaction
    _transaction(gatherer, "END")
    assert not gatherer.in_transaction
    _transaction(gatherer, "BEGIN")  # of a table that isn't followed: nothing more is told
    assert not gatherer.in_transaction
    _transaction(gatherer, "BEGIN")
    _row(gatherer, "t", None)
    assert not gatherer.in_transaction
    assert [(name, rows) for name, _, rows, _ in gatherer.finish_segment()] == [("shop.t", 2)]


def test_first_rows_open_none(tmp_path: Path) -> None:
    gatherer = _gatherer(tmp_path)
    _row(gatherer, "r", {"id": 1})
    assert not gatherer.in_transaction
