"""Values of a database, exactly or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sterna.errors import UnfitSource
from sterna.pipelines.cdc.postgres_converter import TYPE
from sterna.pipelines.cdc.types import absent_columns, columns_of_schema, read_row

_SOURCE = "__debezium.source.column."


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"fields": [{"field": "before", "fields": []}, {"field": "after", "fields": list(fields)}]}


def column(name: str, type: str, meaning: str = "", native: str = "", **more: str) -> dict[str, Any]:
    parameters = {f"{_SOURCE}type": native, **{f"{_SOURCE}{key}": value for key, value in more.items()}}
    return {"field": name, "type": type, "name": meaning or None, "parameters": parameters}


def moment(kind: str, native: str = "", **more: str) -> dict[str, Any]:
    field = column("n", "string", native=native or kind, **more)
    return field | {"parameters": field["parameters"] | {TYPE: kind}}


MONEY = column("n", "string", native="NUMERIC", length="10", scale="2")


@pytest.mark.parametrize(
    ("given", "type", "value", "read"),
    [
        (MONEY, "decimal(10, 2)", "1.10", Decimal("1.10")),
        (MONEY, "decimal(10, 2)", "99999999.99", Decimal("99999999.99")),
        (
            column("n", "string", native="NUMERIC", length="38", scale="0"),
            "decimal(38, 0)",
            "9" * 38,
            Decimal("9" * 38),
        ),
        (column("n", "string", native="NUMERIC", length="131089", scale="0"), "string", "1.2300", "1.2300"),
        (column("n", "string", native="NUMERIC", length="0"), "string", "NaN", "NaN"),
        (column("n", "int16", native="INT2"), "int", 7, 7),
        (column("n", "double", native="FLOAT8"), "double", "Infinity", float("inf")),
        (moment("DATE"), "date", "1582-10-10", date(1582, 10, 10)),
        (moment("DATE"), "date", "0000-00-00", None),
        (moment("DATETIME"), "timestamp", "1969-12-31 23:59:59.999", datetime(1969, 12, 31, 23, 59, 59, 999000)),
        (moment("DATETIME"), "timestamp", "0000-00-00 00:00:00.000", None),
        (moment("TIMESTAMP"), "timestamptz", "2020-01-01 00:00:00.1", datetime(2020, 1, 1, 0, 0, 0, 100000, UTC)),
        (moment("TIMESTAMP"), "timestamptz", "0000-00-00 00:00:00", None),
        (moment("TIME"), "string", "12:13:14.5", "12:13:14.500000"),
        (moment("TIME"), "string", "-838:59:58.000", "-838:59:58"),
        (moment("YEAR"), "int", "0000", 0),
        (moment("FLOAT", native="FLOAT UNSIGNED"), "float", "0.10000000149011612", 0.10000000149011612),
        (moment("FLOAT", native="FLOAT", length="10", scale="2"), "double", "1234.5699462890625", 1234.5699462890625),
        (moment("FLOAT", native="FLOAT", length="30"), "double", "0.1", 0.1),
        (moment("FLOAT", native="REAL"), "double", "5e-324", 5e-324),
        (column("n", "bytes", native="BYTEA"), "binary", "AP8=", b"\x00\xff"),
        (column("n", "bytes", native="VARBINARY"), "binary", "AP8=", b"\x00\xff"),
        (
            column("n", "bytes", "org.apache.kafka.connect.data.Decimal", native="BIGINT UNSIGNED"),
            "decimal(20, 0)",
            "AP//////////",
            Decimal(2**64 - 1),
        ),
        (column("n", "string", native="DECIMAL UNSIGNED"), "decimal(10, 0)", "7", Decimal(7)),
        (column("n", "string", native="DECIMAL", length="65", scale="2"), "string", "1.20", "1.20"),
        (
            column("n", "string", "io.debezium.data.Enum") | {"parameters": {"allowed": "a,b\\, c"}},
            "string",
            "b\\, c",
            "b, c",
        ),
        (column("n", "bytes", native="LTREE"), "string", "YS5i", "a.b"),
    ],
)
def test_values(given: dict[str, Any], type: str, value: Any, read: Any) -> None:
    (source_column,) = columns_of_schema(schema(given))
    assert source_column.column.type == type
    assert read_row([source_column], {"n": value}, {}) == [read]
    assert read_row([source_column], {"n": None}, {}) == [None]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (MONEY, "NaN"),
        (MONEY, "1.105"),
        (MONEY, "Infinity"),
        (moment("DATE"), "2021-02-30"),
        (moment("DATE"), "2020-00-15"),
        (moment("DATE"), "0000-05-05"),
        (moment("DATETIME"), "2020-05-00 00:00:00"),
        (moment("DATETIME"), "0000-00-00 00:00:01"),
    ],
)
def test_values_without_a_place(given: dict[str, Any], value: Any) -> None:
    with pytest.raises(UnfitSource, match="a value of column n"):
        read_row(columns_of_schema(schema(given)), {"n": value}, {})


def test_a_list() -> None:
    field = column("n", "array", native="_INT4") | {"items": {"type": "int32"}}
    (source_column,) = columns_of_schema(schema(field))
    assert source_column.column.type == {"type": "list", "element": "int"}
    assert read_row([source_column], {"n": [1, None]}, {}) == [[1, None]]


def test_what_is_not_read_is_told() -> None:
    with pytest.raises(UnfitSource, match="POINT"):
        columns_of_schema(schema(column("n", "struct", native="POINT")))


def test_an_option_with_a_backslash_is_told() -> None:
    field = column("e", "string", "io.debezium.data.Enum") | {"parameters": {"allowed": "a\\b,c"}}
    with pytest.raises(UnfitSource, match="backslash"):
        columns_of_schema(schema(field))


def test_what_was_not_told() -> None:
    columns = columns_of_schema(
        schema(column("t", "string"), column("b", "bytes", native="BYTEA"), column("n", "int32"))
    )
    row = {"t": "gone", "b": "Z29uZQ==", "n": 1}
    assert absent_columns(columns, row, "gone") == ["t", "b"]
    assert read_row(columns, row, dict.fromkeys(["t", "b"])) == [None, None, 1]


@pytest.mark.parametrize("name", ["_file", "_DELETED", "_change_type", "is_deleted", "_sterna_x"])
def test_a_column_by_which_no_engine_could_read_the_table_is_refused(name: str) -> None:
    """Spark reads none of a table's columns where one has the name of a metadata column of Iceberg's."""
    with pytest.raises(UnfitSource, match=f"it has a column {name}, and"):
        columns_of_schema(schema(column("n", "int32"), column(name, "int32")))
