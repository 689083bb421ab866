"""What is told of the rows between two snapshots: exact as JSON, and harmless on a terminal."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa

from sterna.pipelines.changes import CHANGE
from sterna.pipelines.changes.region import ChangesSummary
from sterna.text.changes import changes_json, changes_text


def changes(rows: list[dict[str, object]], **counts: int) -> ChangesSummary:
    return ChangesSummary("db.t", "main_replica_eu", counts, 2, pa.Table.from_pylist(rows))


def test_json_keeps_what_its_numbers_lose() -> None:
    row = {
        "big": 2**53 + 1,
        "small": -(2**53),
        "price": Decimal("1.50"),
        "nan": float("nan"),
        "day": date(2026, 1, 2),
        "moment": datetime(2026, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
        "bytes": b"\x00\xff",
        "nothing": None,
        "yes": True,
        "nested": {"list": [{"x": 2**63 - 1}]},
    }
    document = changes_json(changes([{CHANGE: "insert", **row}], insert=1))
    assert json.loads(json.dumps(document))["rows"] == [
        {
            CHANGE: "insert",
            "big": "9007199254740993",
            "small": -9007199254740992,
            "price": "1.50",
            "nan": "nan",
            "day": "2026-01-02",
            "moment": "2026-01-02T03:04:05.000006+00:00",
            "bytes": "00ff",
            "nothing": None,
            "yes": True,
            "nested": {"list": [{"x": "9223372036854775807"}]},
        }
    ]


def test_text_has_a_line_a_row_and_no_control_characters() -> None:
    rows = [
        {CHANGE: "update_before", "id": 1, "v": "\x1b[31m\n"},
        {CHANGE: "update_after", "id": 1, "v": "x" * 200},
    ]
    text = changes_text(changes(rows, update_after=3, update_before=3))
    first, second, more, last = text.split("\n")
    assert first == r"< id: 1  v: \x1b[31m\x0a"
    assert len(second) < 100
    assert more == "… 4 more rows"
    assert last == "3 update_after, 3 update_before; 2 data files read"


def test_no_changes() -> None:
    assert changes_text(changes([])) == "no changes; 2 data files read"
