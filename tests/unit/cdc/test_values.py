"""Values of a database, exactly or not at all."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pytest

from sterna.cdc.values import absent_columns, columns_of_schema, read_row
from sterna.errors import UnfitSource

_SOURCE = "__debezium.source.column."


def schema(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"fields": [{"field": "before", "fields": []}, {"field": "after", "fields": list(fields)}]}


def column(name: str, type: str, meaning: str = "", native: str = "", **more: str) -> dict[str, Any]:
    parameters = {f"{_SOURCE}type": native, **{f"{_SOURCE}{key}": value for key, value in more.items()}}
    return {"field": name, "type": type, "name": meaning or None, "parameters": parameters}


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
        (column("n", "int32", "io.debezium.time.Date"), "date", -1, date(1969, 12, 31)),
        (
            column("n", "int64", "io.debezium.time.MicroTimestamp"),
            "timestamp",
            -1,
            datetime(1969, 12, 31, 23, 59, 59, 999999),
        ),
        (
            column("n", "string", "io.debezium.time.ZonedTimestamp"),
            "timestamptz",
            "2020-01-01T02:00:00.1+02:00",
            datetime(2020, 1, 1, 0, 0, 0, 100000, UTC),
        ),
        (column("n", "int64", "io.debezium.time.MicroTime"), "string", 43_994_500_000, "12:13:14.500000"),
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
            column("n", "int64", "io.debezium.time.Timestamp"),
            "timestamp",
            -1,
            datetime(1969, 12, 31, 23, 59, 59, 999000),
        ),
        (column("n", "int64", "io.debezium.time.MicroTime"), "string", -3_020_398_500_000, "-838:59:58.500000"),
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
    (found,) = columns_of_schema(schema(given))
    assert found.column.type == type
    assert read_row([found], {"n": value}, {}) == [read]
    assert read_row([found], {"n": None}, {}) == [None]


@pytest.mark.parametrize(
    ("given", "value"),
    [
        (MONEY, "NaN"),
        (MONEY, "1.105"),
        (MONEY, "Infinity"),
        (column("n", "int32", "io.debezium.time.Date"), 2**31 - 1),
        (column("n", "int64", "io.debezium.time.MicroTimestamp"), 2**63 - 1),
        (column("n", "string", "io.debezium.time.ZonedTimestamp"), "+292278994-08-16T23:00:00Z"),
    ],
)
def test_values_without_a_place(given: dict[str, Any], value: Any) -> None:
    with pytest.raises(UnfitSource, match="a value of column n"):
        read_row(columns_of_schema(schema(given)), {"n": value}, {})


def test_a_list() -> None:
    given = column("n", "array", native="_INT4") | {"items": {"type": "int32"}}
    (found,) = columns_of_schema(schema(given))
    assert found.column.type == {"type": "list", "element": "int"}
    assert read_row([found], {"n": [1, None]}, {}) == [[1, None]]


def test_what_is_not_read_is_told() -> None:
    with pytest.raises(UnfitSource, match="POINT"):
        columns_of_schema(schema(column("n", "struct", native="POINT")))


def test_zero_dates_are_not_taken_for_others() -> None:
    fields = [
        column("d", "int32", "io.debezium.time.Date") | {"optional": False},
        column("n", "int32", "io.debezium.time.Date") | {"optional": True},
        column("t", "string", "io.debezium.time.ZonedTimestamp") | {"optional": False},
    ]
    made = schema(*fields)
    made["fields"].append({"field": "source", "fields": [], "name": "io.debezium.connector.mariadb.Source"})
    columns = columns_of_schema(made)
    zero = "1970-01-01T00:00:00Z"
    assert read_row(columns, {"d": 1, "n": 0, "t": zero}, {}) == [date(1970, 1, 2), date(1970, 1, 1), None]
    with pytest.raises(UnfitSource, match="column d is 0000-00-00, or 1970-01-01"):
        read_row(columns, {"d": 0, "n": 1, "t": zero}, {})
    # A Postgres has no such dates.
    assert read_row(columns_of_schema(schema(*fields)), {"d": 0, "n": 0, "t": zero}, {})[0] == date(1970, 1, 1)


def test_an_option_with_a_backslash_is_told() -> None:
    given = column("e", "string", "io.debezium.data.Enum") | {"parameters": {"allowed": "a\\b,c"}}
    with pytest.raises(UnfitSource, match="backslash"):
        columns_of_schema(schema(given))


def test_what_was_not_told() -> None:
    columns = columns_of_schema(
        schema(column("t", "string"), column("b", "bytes", native="BYTEA"), column("n", "int32"))
    )
    row = {"t": "gone", "b": "Z29uZQ==", "n": 1}
    assert absent_columns(columns, row, "gone") == ["t", "b"]
    assert read_row(columns, row, dict.fromkeys(["t", "b"])) == [None, None, 1]
