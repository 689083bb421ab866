"""Values as the store holds them: exact, and the same that named queries tell."""

from __future__ import annotations

import json
import math
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from sterna.errors import UnfitView
from sterna.pipelines.features.codec import iter_rows, row_bytes, validate_types
from sterna.pipelines.features.model import Column
from sterna.serving.queries.engine.values import json_value

BIG = 2**63 - 1
ROWS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "boolean": (pa.bool_(), [True, False, None], [True, False, None]),
    "int": (pa.int32(), [-(2**31), 0, None], [-(2**31), 0, None]),
    "long": (pa.int64(), [BIG, -BIG - 1, 2**53 + 1], [str(BIG), str(-BIG - 1), str(2**53 + 1)]),
    "float": (pa.float32(), [0.1, math.nan, None], [0.10000000149011612, "NaN", None]),
    "double": (pa.float64(), [-0.0, math.inf, -math.inf], [-0.0, "Infinity", "-Infinity"]),
    "decimal(38, 10)": (
        pa.decimal128(38, 10),
        [Decimal("1234567890123456789012345678.0123456789"), Decimal("0E-10"), Decimal("-1.5000000000")],
        ["1234567890123456789012345678.0123456789", "0.0000000000", "-1.5000000000"],
    ),
    "date": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), None], ["0001-01-01", "9999-12-31", None]),
    "timestamp": (
        pa.timestamp("us"),
        [datetime(2026, 3, 29, 2, 30, 0, 1), datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999)],
        ["2026-03-29T02:30:00.000001", "0001-01-01T00:00:00", "1969-12-31T23:59:59.999999"],
    ),
    "timestamptz": (
        pa.timestamp("us", "UTC"),
        [datetime(2026, 10, 25, 1, 30, tzinfo=UTC), None, datetime(9999, 12, 31, 23, 59, 59, 999999, UTC)],
        ["2026-10-25T01:30:00Z", None, "9999-12-31T23:59:59.999999Z"],
    ),
    "string": (pa.string(), ["", '<b>\x00\u202e"', "ü😀"], ["", '<b>\x00\u202e"', "ü😀"]),
    "binary": (pa.binary(), [b"", b"\x00\xff", None], ["", "AP8=", None]),
    "list<float>": (
        pa.list_(pa.float32()),
        [[0.1, math.nan, None], [], None],
        [[0.10000000149011612, "NaN", None], [], None],
    ),
    "list<long>": (pa.list_(pa.int64()), [None, [BIG], [1, 2]], [None, [str(BIG)], ["1", "2"]]),
    "list<timestamptz>": (
        pa.list_(pa.timestamp("us", "UTC")),
        [[datetime(2026, 10, 25, 1, 30, tzinfo=UTC), None], None, []],
        [["2026-10-25T01:30:00Z", None], None, []],
    ),
    "list<decimal(4, 2)>": (pa.list_(pa.decimal128(4, 2)), [[Decimal("1.50")], None, []], [["1.50"], None, []]),
    "fixed[2]": (pa.binary(2), [b"ab", b"\x00\xff", None], ["YWI=", "AP8=", None]),
}


@pytest.mark.parametrize("kind", ROWS)
def test_each_type_comes_back_exactly_and_as_queries_tell_it(kind: str) -> None:
    arrow, values, expected = ROWS[kind]
    array = pa.array(values, arrow)
    column = Column("c", 1, kind)
    validate_types([column], "t")
    encoded = [row[0] for row in iter_rows(pa.RecordBatch.from_arrays([array], ["c"]), [column])]
    back = [json.loads(row_bytes([value]))[0] for value in encoded]
    assert back == expected and [str(scalar) for scalar in back] == [str(scalar) for scalar in expected]
    if kind != "decimal(38, 10)" or values[1] != Decimal("0E-10"):
        assert back == [json_value(scalar) for scalar in array]


def test_what_cannot_be_kept_is_refused_by_name() -> None:
    for kind in (
        "list<list<int>>",
        "list<uuid>",
        "list<struct<1: a: int>>",
        "struct<1: a: int>",
        "map<int, int>",
        "uuid",
        "time",
        "timestamp_ns",
        "variant",
    ):
        with pytest.raises(UnfitView, match="column c has the type"):
            validate_types([Column("c", 1, kind)], "t")
    far = pa.RecordBatch.from_arrays([pa.array([2**62], pa.int64()).cast(pa.timestamp("us"))], ["c"])
    with pytest.raises(UnfitView, match="outside the years"):
        list(iter_rows(far, [Column("c", 1, "timestamp")]))
