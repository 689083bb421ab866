"""Types of what comes in: each value is taken exactly, or its row is a dead letter that names line and column.

What falls under it, and is tried here: every type of Arrow at the gateway and at the worker (one table, beside
PyIceberg's); every layout of a value, with the limit of a value; whatever the standard library's readers take beyond
the standards that JSON's texts follow; whole numbers that a floating column doesn't hold; fields inside of structs,
lists and maps, new ones, wrong ones, and ones without a value; columns that Spark has no type for; a map that has a key
twice, of which engines read different values (Spark takes the first for `m[k]`, and Python's dict the last).
"""

from __future__ import annotations

import datetime as dt
import io
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException, _ConvertToIcebergWithoutIDs, visit_pyarrow
from pyiceberg.types import ListType, MapType, StructType

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, BatchRejected
from sterna.pipelines.ingest.arrow_rows import convert_array, true_positions, value_sizes
from sterna.pipelines.ingest.column_types import Type, arrow_type, format_type_table, iceberg_type
from sterna.pipelines.ingest.columns import Column, FieldChange
from sterna.pipelines.ingest.fetch import require_writable
from sterna.pipelines.ingest.json_rows import build_converter
from sterna.pipelines.ingest.read_job import GOOD_ROWS_FILE
from sterna.pipelines.ingest.strict_parsing import BadValue
from sterna.pipelines.ingest.validate_arrow import check_arrow
from sterna.pipelines.ingest.validate_parquet import check_parquet
from tests.unit.ingest.test_reading import LONGEST, Folder

LIMITS = TenantLimits()
NIL = "00000000-0000-0000-0000-000000000000"
UUID = "01234567-89ab-cdef-0123-456789abcdef"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    return Folder(tmp_path)


def struct_of(**fields: Type) -> Type:
    return {"type": "struct", "fields": [{"name": name, "type": type} for name, type in fields.items()]}


# What a text has to be: taken as the value, or dead.
TEXTS: list[tuple[str, str, Any]] = [
    ("date", "2026-11-23", dt.date(2026, 11, 23)),
    *(("date", text, None) for text in (
        "2026-W48-4", "20261123", " 2026-11-23", "2026-11-23 ", "2026-11-23\n", "2026-1-2", "2026-02-30", "0000-01-01",
        "12026-11-23", "2026-11-23T00:00:00", "\u0662\u0660\u0662\u0666-11-23", "", "today", "2026-327",
    )),
    ("time", "10:00:01.25", dt.time(10, 0, 1, 250_000)),
    ("time", "10:00:00.000001000", dt.time(10, 0, 0, 1)),
    *(("time", text, None) for text in (
        "10", "24:00:00", "10:60:00", "10:00:60", "10:00:00Z", "10:00:00+01:00", "10:00:00.0000001", "100000",
        "T10:00:00",        "10:00:00.", "10:00:00,5",
    )),
    ("timestamp", "2026-11-23T10:00:00", dt.datetime(2026, 11, 23, 10)),
    ("timestamp", "2026-11-23 10:00:00.123456000", dt.datetime(2026, 11, 23, 10, 0, 0, 123_456)),
    *(("timestamp", text, None) for text in (
        "2026-11-23T10:00:00.123456789", "2026-11-23T10:00:00.1234560001", "2026-11-23T10:00:00Z", "2026-11-23",
        "2026-W48-1T10:00:00", "20261123T100000", "2026-11-23T10", "2026-11-23T10:00:00,5", "2026-11-23_10:00:00",
        "2026-11-23T10:00:00 ", "2026-11-23T24:00:00", "1795000000",
    )),
    ("timestamptz", "2026-11-23T10:00:00+01:00", dt.datetime(2026, 11, 23, 9, tzinfo=dt.UTC)),
    ("timestamptz", "2026-11-23T10:00:00-0130", dt.datetime(2026, 11, 23, 11, 30, tzinfo=dt.UTC)),
    ("timestamptz", "2026-11-23T10:00:00Z", dt.datetime(2026, 11, 23, 10, tzinfo=dt.UTC)),
    *(("timestamptz", text, None) for text in (
        "2026-11-23T10:00:00", "2026-11-23T10:00:00.1234567Z", "2026-11-23T10:00:00+25:00", "2026-11-23T10:00:00+01:75",
        "2026-11-23T10:00:00+01:00:30", "2026-11-23T10:00:00 UTC", "0001-01-01T00:00:00+23:00", "2026-11-23T10:00:00z",
    )),
    ("decimal(10, 2)", "7", Decimal(7)), ("decimal(10, 2)", "-7.25", Decimal("-7.25")),
    ("decimal(10, 2)", "1e3", Decimal(1000)), ("decimal(10, 2)", "7.2500", Decimal("7.25")),
    *(("decimal(10, 2)", text, None) for text in (
        " 7 ", "1_000", "\u0667", "7,5", "+7", ".5", "5.", "0x7", "NaN", "Infinity", "sNaN", "1.005",
        "123456789", "1e999999999", "",        "007", "7" * 2_000,
    )),
    ("uuid", UUID, UUID), ("uuid", UUID.upper(), UUID),
    *(("uuid", text, None) for text in (
        UUID.replace("-", ""), f"{{{UUID}}}", f"urn:uuid:{UUID}", f" {UUID}", f"{UUID}\n", UUID[:-1], UUID[:-1] + "g",
    )),
    ("binary", "AAE=", b"\0\1"), ("binary", "", b""),
    *(("binary", text, None) for text in ("AAE", "AAF=", "AA E=", "AAE=\n", "AA-_", "AAE==", "é", "A")),
    ("fixed[2]", "AAE=", b"\0\1"), ("fixed[2]", "AA==", None), ("fixed[2]", "AAEC", None), ("fixed[2]", "AAF=", None),
]  # fmt: skip


@pytest.mark.parametrize(("type", "text", "value"), TEXTS)
def test_a_text_is_read_strictly_or_not_at_all(type: str, text: str, value: Any) -> None:
    if value is None:
        with pytest.raises(BadValue):
            build_converter(type)(text)
    else:
        assert build_converter(type)(text) == value


@pytest.mark.parametrize(
    ("type", "value"),
    [
        ("boolean", 1), ("boolean", "true"), ("int", True), ("int", "1"), ("long", Decimal("1.0")), ("double", "1.5"),
        ("double", True), ("double", 2**53 + 1), ("double", -(2**53) - 1), ("double", 10**400), ("float", 2**24 + 1),
        ("string", 1), ("date", 20_000), ("timestamp", 1), ("uuid", 1), ("binary", [0]), ("time", 1),
        ({"type": "map", "key": "int", "value": "long"}, {"1_0": 1}),
        ({"type": "map", "key": "int", "value": "long"}, {"\u0667": 1}),
        ({"type": "map", "key": "uuid", "value": "long"}, {UUID: 1, UUID.upper(): 2}),
        ({"type": "list", "element": "long", "element-required": True}, [None]),
        ({"type": "struct", "fields": [{"name": "x", "type": "long", "required": True}]}, {}),
    ],
)  # fmt: skip
def test_what_a_column_does_not_hold_exactly_is_dead(type: Type, value: Any) -> None:
    with pytest.raises(BadValue):
        build_converter(type)(value)


@pytest.mark.parametrize(
    ("type", "value", "wanted"),
    [
        ("double", 2**53, float(2**53)), ("double", 10**22, 1e22), ("double", Decimal("0.1"), 0.1),
        ("float", Decimal("0.1"), struct.unpack("<f", struct.pack("<f", 0.1))[0]),
        # Half between two of 32 bits, once rounded to 64.
        ("float", Decimal("1.00000005960464477540"), 1.0000001192092896),
        ("float", Decimal("1.0000000596046447753"), 1.0),
        ({"type": "map", "key": "int", "value": "long"}, {"7": 1}, [(7, 1)]),
        ({"type": "map", "key": "date", "value": "long"}, {"2026-11-23": 1}, [(dt.date(2026, 11, 23), 1)]),
    ],
)  # fmt: skip
def test_what_it_holds_is_taken(type: Type, value: Any, wanted: Any) -> None:
    assert build_converter(type)(value) == wanted


def test_whole_numbers_beside_a_fraction_are_exact_or_dead(folder: Folder) -> None:
    folder.json({"x": 1}, {"x": 2**53 + 1}, {"x": 1.5}, {"x": 2**53})
    report = folder.read((), "add")
    assert (report.columns[0].type, report.rows, report.bad) == ("double", 3, 1)
    assert folder.dead == [("d0", 1, "column 'x': a whole number that a double doesn't hold")]
    # The same by Arrow's reader, for a column that is there.
    again = folder.read((Column("x", "double"),))
    assert (again.rows, again.bad) == (3, 1)


def test_a_line_in_another_encoding_is_dead(folder: Folder) -> None:
    folder.add("json", '{"id": 1}'.encode("utf-16-le") + b"\n\xef\xbb\xbf{}\n\x0b\n \t\n{}\n", 4)
    report = folder.read((Column("id", "long"),))
    assert (report.rows, [offset for _, offset, _ in folder.dead]) == (1, [0, 1, 2])


# Every type of Arrow: what PyIceberg makes of it, and what this makes where that isn't exact.
ARROW: list[tuple[pa.DataType, Any]] = [
    *((exact_type, None) for exact_type in (
        pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.uint8(), pa.uint16(), pa.int64(), pa.uint64(), pa.float16(),
        pa.float32(), pa.float64(), pa.decimal128(38, 2), pa.decimal128(7, 0), pa.date32(), pa.time64("us"),
        pa.timestamp("s"), pa.timestamp("ms"), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.string(),
        pa.large_string(), pa.string_view(), pa.binary(), pa.large_binary(), pa.binary_view(), pa.binary(12), pa.uuid(),
        pa.list_(pa.int32()), pa.large_list(pa.string()), pa.list_(pa.int32(), 3),
        pa.struct([("a", pa.int32())]), pa.map_(pa.string(), pa.int32()), pa.dictionary(pa.int8(), pa.string()),
        pa.duration("us"), pa.month_day_nano_interval(), pa.dense_union([pa.field("a", pa.int32())]),
        pa.sparse_union([pa.field("a", pa.int32())]), pa.bool8(), pa.opaque(pa.binary(), "t", "v"),
        pa.list_(pa.duration("s")),
        pa.decimal256(40, 2),
    )),
    (pa.uint32(), "long"),  # a 32nd bit, which `int` hasn't
    (pa.decimal128(5, -2), ""),  # Iceberg has no negative scale
    (pa.decimal32(9, 2), "decimal(9, 2)"), (pa.decimal64(18, 2), "decimal(18, 2)"),
    (pa.decimal256(38, 2), "decimal(38, 2)"),
    (pa.date64(), "date"), (pa.time32("s"), "time"), (pa.time32("ms"), "time"),
    (pa.time64("ns"), "time"), (pa.timestamp("ns"), "timestamp"), (pa.timestamp("ns", "UTC"), "timestamptz"),
    (pa.timestamp("us", "Europe/Berlin"), "timestamptz"), (pa.json_(), "string"),
    (pa.list_view(pa.int32()), {"type": "list", "element": "int"}),
    (pa.large_list_view(pa.int32()), {"type": "list", "element": "int"}),
    (pa.run_end_encoded(pa.int32(), pa.string()), "string"),
    (pa.list_(pa.int32(), 0), ""), (pa.binary(0), ""), (pa.struct([]), ""), (pa.null(), ""),  # of no bytes
]  # fmt: skip


def by_pyiceberg(type: pa.DataType) -> Any:
    """PyIceberg's type, as Iceberg's JSON writes it and without ids; "": it has none."""
    try:
        field = visit_pyarrow(pa.schema([pa.field("c", type)]), _ConvertToIcebergWithoutIDs()).fields[0]
    except (UnsupportedPyArrowTypeException, ValueError, TypeError):
        return ""

    def plain(type: Any) -> Any:
        if isinstance(type, ListType):
            return {"type": "list", "element": plain(type.element_type)}
        if isinstance(type, MapType):
            return {"type": "map", "key": plain(type.key_type), "value": plain(type.value_type)}
        if isinstance(type, StructType):
            return struct_of(**{field.name: plain(field.field_type) for field in type.fields})
        return str(type)

    return plain(field.field_type)


@pytest.mark.parametrize(("type", "wanted"), ARROW, ids=str)
def test_each_type_of_arrow_has_one_column_for_gateway_and_worker(
    type: pa.DataType, wanted: Any, tmp_path: Path
) -> None:
    wanted = by_pyiceberg(type) if wanted is None else wanted
    try:
        column = iceberg_type(type, "c")
        arrow_type(column)  # what it takes, the worker writes
    except BadDrop as error:
        assert not wanted
        assert "column 'c" in error.message
        return
    assert column == wanted


def parquet(table: pa.Table) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink)
    return sink.getvalue()


@pytest.mark.parametrize("type", ["interval", "interval[]", "struct(a interval)"])
def test_an_interval_is_refused_at_the_door(tmp_path: Path, folder: Folder, type: str) -> None:
    path = tmp_path / "drop"
    value = {"interval": "x", "interval[]": "[x]", "struct(a interval)": "{'a': x}"}[type]
    duckdb.sql(f"COPY (SELECT 1 id, {value.replace('x', 'INTERVAL 3 DAYS')} c) TO '{path}' (FORMAT parquet)")
    with pytest.raises(BadDrop, match=r"column 'c.*INTERVAL"):
        check_parquet(path, LIMITS)
    folder.add("parquet", path.read_bytes())
    assert "INTERVAL" in folder.read((), "add").first


def old(table: pa.Table) -> bytes:
    """A file with times of 96 bits, as Hive, Impala and old Sparks write them."""
    sink = io.BytesIO()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    return sink.getvalue()


def test_times_of_96_bits_are_exact_at_any_date_or_dead(folder: Folder) -> None:
    days = [dt.datetime(9999, 12, 31), dt.datetime(2020, 1, 1), dt.datetime(1, 1, 1), None]
    folder.add("parquet", old(pa.table({"t": pa.array(days, pa.timestamp("us"))})), 4)
    folder.add("parquet", old(pa.table({"t": pa.array([1_000, 1_001, None, -1], pa.timestamp("ns"))})), 4)
    assert folder.read((), "add").bad == 2
    assert [row["t"] for row in folder.rows] == [*days, dt.datetime(1970, 1, 1, 0, 0, 0, 1), None]
    assert folder.dead == [("d1", place, "column 't': more than microseconds") for place in (1, 3)]


def test_times_of_96_bits_inside_of_others_are_refused_at_the_door(tmp_path: Path) -> None:
    (tmp_path / "drop").write_bytes(old(pa.table({"c": pa.array([[1]], pa.list_(pa.timestamp("ns")))})))
    with pytest.raises(BadDrop, match=r"column 'c.*INT96"):
        check_parquet(tmp_path / "drop", LIMITS)


def test_a_text_of_parquet_that_is_no_utf_8_costs_its_row_alone(folder: Folder) -> None:
    offsets = struct.pack("<4i", 0, 1, 2, 3)
    texts = pa.Array.from_buffers(pa.string(), 3, [None, pa.py_buffer(offsets), pa.py_buffer(b"a\xffb")])
    folder.add("parquet", parquet(pa.table({"id": [1, 2, 3], "s": texts})), 3)
    assert (folder.read((), "add").rows, folder.dead) == (2, [("d0", 1, "column 's': a text that is no UTF-8")])
    assert [row["s"] for row in folder.rows] == ["a", "b"]


_TEXT = pa.string()
NO_TEXT = pa.array([b"a", b"\xff", b"b", b"c"], pa.binary())
STEPS = pa.array([0, 1, 2, 3, 4], pa.int32())


def _texts(type: pa.DataType = _TEXT) -> Any:
    return NO_TEXT.cast({pa.large_string(): pa.large_binary()}.get(type, pa.binary())).view(type)


# Each holds a text that is no UTF-8 in its second value alone.
NO_UTF_8 = {
    "large": lambda: _texts(pa.large_string()),
    "list": lambda: pa.ListArray.from_arrays(STEPS, _texts()),
    "large list": lambda: pa.LargeListArray.from_arrays(STEPS.cast(pa.int64()), _texts(pa.large_string())),
    "fixed list": lambda: pa.FixedSizeListArray.from_arrays(_texts(), 1),
    "struct": lambda: pa.StructArray.from_arrays([_texts()], ["t"]),
    "key": lambda: pa.MapArray.from_arrays(STEPS, _texts(), pa.array([1, 2, 3, 4])),
    "item": lambda: pa.MapArray.from_arrays(STEPS, pa.array(["k"] * 4), _texts()),
    "dictionary": lambda: pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), _texts()),
    "list of structs": lambda: pa.ListArray.from_arrays(STEPS, pa.StructArray.from_arrays([_texts()], ["t"])),
    "lists of lists": lambda: pa.ListArray.from_arrays(STEPS, pa.ListArray.from_arrays(STEPS, _texts())),
    "list of words": lambda: pa.ListArray.from_arrays(
        STEPS, pa.DictionaryArray.from_arrays(pa.array([0, 1, 2, 3], pa.int32()), _texts())
    ),
}  # fmt: skip


@pytest.mark.parametrize("layout", NO_UTF_8)
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_text_inside_that_is_no_utf_8_costs_its_row_alone(folder: Folder, layout: str, format: str) -> None:
    columns = pa.table({"id": [1, 2, 3, 4], "it": NO_UTF_8[layout]()})
    if format == "parquet":
        folder.add("parquet", parquet(columns), 4)
    else:
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, columns.schema) as writer:
            writer.write_table(columns)
        folder.add("arrow", sink.getvalue().to_pybytes(), 4)
    report = folder.read((), "add")
    assert (report.rows, folder.dead) == (3, [("d0", 1, "column 'it': a text that is no UTF-8")])
    assert [row["id"] for row in folder.rows] == [1, 3, 4]
    with pa.memory_map(str(folder.path / GOOD_ROWS_FILE)) as source:
        pa.ipc.open_file(source).read_all().validate(full=True)


def test_a_word_that_is_no_utf_8_costs_its_row_alone_where_the_column_is_a_uuid(folder: Folder) -> None:
    words = pa.array([UUID.encode(), b"\xff"], pa.binary()).view(pa.string())
    indices = pa.array([0, 1, 0], pa.int32())
    folder.add("parquet", parquet(pa.table({"u": pa.DictionaryArray.from_arrays(indices, words)})), 3)
    assert folder.read((Column("u", "uuid"),)).rows == 2
    assert folder.dead == [("d0", 1, "column 'u': a text that is no UTF-8")]


def _wider(type: pa.DataType, values: list[Any]) -> pa.Array:
    """Numbers as another type of as many bytes, whatever that type says of them."""
    numbers = pa.array(values, pa.int32() if type.bit_width == 32 else pa.int64())
    if pa.types.is_decimal(type):
        numbers = pa.array([Decimal(value) for value in values], pa.decimal128(38, 0))
    return pa.Array.from_buffers(type, len(values), numbers.buffers())


# Each has a value that its own type says it hasn't in its second row alone; writers don't look.
BEYOND: dict[str, tuple[pa.Array, str]] = {
    "24:00": (_wider(pa.time64("us"), [1, 86_400_000_000, 2, 3]), "a time that no day has"),
    "24:00 in ms": (_wider(pa.time32("ms"), [1, 86_400_000, 2, 3]), "a time that no day has"),
    "before 0:00": (_wider(pa.time64("us"), [1, -1, 2, 3]), "a time that no day has"),
    "digits": (_wider(pa.decimal128(3, 1), [1, 1000, 2, 3]), "more digits than its type has"),
}
BEYOND |= {
    f"{name} in a list": (pa.ListArray.from_arrays(STEPS, values), reason) for name, (values, reason) in BEYOND.items()
}


@pytest.mark.parametrize("what", BEYOND)
def test_a_value_that_its_own_type_hasn_t_costs_its_row_alone(folder: Folder, what: str) -> None:
    values, reason = BEYOND[what]
    folder.add("parquet", parquet(pa.table({"id": [1, 2, 3, 4], "it": values})), 4)
    folder.add("parquet", parquet(pa.table({"id": [5, 6, 7, 8], "s": NO_UTF_8["list"](), "it": values})), 4)
    report = folder.read((), "add")
    assert report.rows == 6
    assert folder.dead == [(drop, 1, f"column 'it': {reason}") for drop in ("d0", "d1")]
    assert [row["id"] for row in folder.rows] == [1, 3, 4, 5, 7, 8]


def test_midnight_as_the_end_of_a_day_by_duckdb_costs_its_row_alone(tmp_path: Path, folder: Folder) -> None:
    rows = "SELECT 1 id, TIME '24:00:00' t UNION ALL SELECT 2, TIME '10:00:00'"
    duckdb.sql(f"COPY ({rows}) TO '{tmp_path / 'midnight'}' (FORMAT parquet)")
    assert check_parquet(tmp_path / "midnight", LIMITS) == 2
    folder.add("parquet", (tmp_path / "midnight").read_bytes(), 2)
    assert (folder.read((), "add").rows, folder.dead) == (1, [("d0", 0, "column 't': a time that no day has")])
    assert folder.rows == [{"id": 2, "t": dt.time(10)}]


def test_a_list_that_is_broken_beside_a_text_that_is_no_utf_8_refuses_its_drop(folder: Folder) -> None:
    """What is wrong of a text must not hide offsets that lead anywhere in memory."""
    inner, offsets = NO_TEXT.view(pa.string()), pa.py_buffer(struct.pack("<5i", 0, 900, 2, 3, 4))
    broken = pa.Array.from_buffers(pa.list_(pa.string()), 4, [None, offsets], children=[inner])
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, pa.schema({"it": broken.type})) as writer:
        writer.write_batch(pa.record_batch({"it": broken}))
    folder.add("arrow", sink.getvalue().to_pybytes(), 4)
    assert (folder.read((), "add").rows, [at for _, at, _ in folder.dead]) == (0, [-1])


@pytest.mark.parametrize("type", [pa.duration("us"), pa.list_(pa.null()), pa.decimal256(40, 2)])
def test_what_no_worker_writes_is_refused_at_the_door(tmp_path: Path, type: pa.DataType) -> None:
    path = tmp_path / "drop"
    table = pa.table({"c": pa.array([None], type)})
    path.write_bytes(parquet(table))
    with pytest.raises(BadDrop, match=r"column 'c.*has a type that no table has"):
        check_parquet(path, LIMITS)
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(BadDrop, match=r"column 'c.*has a type that no table has"):
        check_arrow(path, LIMITS)


# A value of each type that a file brings, for a table that is made of it; what doesn't fit exactly beside it.
VALUES: list[tuple[pa.DataType, list[Any], list[int]]] = [
    (pa.uint64(), [1, 2**63 - 1, 2**63, None], [2]),
    (pa.uint32(), [1, 2**32 - 1], []),
    (pa.timestamp("ns"), [1_000, 1_001, None, -1_000, -1], [1, 4]),
    (pa.timestamp("ns", "UTC"), [1_000, 1], [1]),
    (pa.timestamp("s"), [1, 10**15], [1]),
    (pa.timestamp("ms", "Europe/Berlin"), [1, -1], []),
    (pa.time64("ns"), [1_000, 1], [1]),
    (pa.time32("s"), [1, 86_399], []),
    (pa.time64("us"), [1], []),
    (pa.decimal256(38, 2), [Decimal("1.25")], []),
    (pa.decimal32(9, 2), [Decimal("1.25")], []),
    (pa.float16(), [1.5, None], []),
    (pa.binary(4), [b"abcd", None], []),
    (pa.uuid(), [b"0123456789abcdef", None], []),
    (pa.list_(pa.int32(), 2), [[1, 2], None, [3, 4]], []),
    (pa.list_view(pa.timestamp("ns")), [[1_000], [1_000, 1], None, []], [1]),
    (pa.large_list(pa.uint64()), [[1], [], [2**63, 1], None], [2]),
    (pa.map_(pa.string(), pa.timestamp("ns")), [[("a", 1)], [("a", 1_000)], None], [0]),
    *((pa.map_(key, pa.int32()), [[(a, 1), (b, 1)], None, [], [(b, 1), (a, 1), (b, 2)], [(a, 1)], [(a, 2)]], [3])
      for key, a, b in ((pa.string(), "a", "b"), (pa.large_string(), "", "é"), (pa.binary(2), b"ab", b"ac"),
                        (pa.int8(), 0, 1), (pa.date32(), dt.date(1970, 1, 1), dt.date(2026, 1, 1)),
                        (pa.bool_(), False, True), (pa.decimal128(9, 2), Decimal("1.25"), Decimal("1.26")),
                        (pa.struct([("x", pa.int32())]), {"x": 1}, {"x": None}))),
    (pa.map_(pa.float64(), pa.int32()), [[(0.0, 1), (1.0, 1)], [(0.0, 1), (-0.0, 1)]], [1]),
    (pa.list_(pa.map_(pa.string(), pa.int32())), [[[("a", 1)], [("a", 1)]], [[], [("a", 1), ("a", 1)]], None], [1]),
    (pa.struct([("a", pa.uint64()), ("b", pa.list_(pa.time64("ns")))]),
     [{"a": 2**63}, {"b": [1]}, {"b": [1_000]}], [0, 1]),
    (pa.dictionary(pa.int8(), pa.timestamp("ns")), [1, 1_000, 1, None], [0, 2]),
    (pa.string_view(), ["a", None, "é" * 400], []),
    (pa.binary_view(), [b"a", None], []),
    (pa.large_binary(), [b"a", None], []),
]  # fmt: skip


def array_of(type: pa.DataType, values: list[Any]) -> pa.Array:
    if pa.types.is_dictionary(type):
        return pa.array(values, type.value_type).dictionary_encode()
    return pa.array(values, type)


@pytest.mark.parametrize(("type", "values", "dead"), VALUES, ids=lambda value: str(value)[:40])
@pytest.mark.parametrize("format", ["parquet", "arrow"])
def test_a_value_is_taken_exactly_or_its_row_is_dead_alone(
    folder: Folder, type: pa.DataType, values: list[Any], dead: list[int], format: str
) -> None:
    array = array_of(type, values)
    columns = {"id": list(range(len(values))), "c": array}
    (folder.parquet if format == "parquet" else folder.arrow)(**columns)
    report = folder.read((), "add")
    assert ([offset for _, offset, _ in folder.dead], report.bad) == (dead, len(dead))
    assert all("column 'c" in error for _, _, error in folder.dead)
    kept = [place for place in range(len(values)) if place not in dead]
    assert [row["id"] for row in folder.rows] == kept
    # Compared without units: as numbers where they are numbers.
    for row, value in zip(folder.rows, [array[place] for place in kept], strict=True):
        assert same(row["c"], value), (row["c"], value)


def same(have: Any, value: pa.Scalar) -> bool:
    if not value.is_valid:
        return have is None
    if isinstance(value, pa.DictionaryScalar):
        return same(have, value.value)
    if isinstance(value, (pa.TimestampScalar, pa.Time64Scalar)):
        # Python has no nanoseconds: what is left of it are microseconds.
        converted = value.cast(
            pa.timestamp("us", value.type.tz) if pa.types.is_timestamp(value.type) else pa.time64("us")
        )
        return bool(have == converted.as_py())
    if isinstance(value, pa.MapScalar):
        return all(one[0] == key and same(one[1], item) for one, (key, item) in zip(have, _pairs(value), strict=True))
    if isinstance(value, pa.ListScalar):
        return len(have) == len(value.values) and all(map(same, have, value.values))
    if isinstance(value, pa.StructScalar):
        return all(same(have[name], value[name]) for name in value)
    python = value.as_py()
    return bool(str(python) == have if hasattr(python, "hex") and hasattr(python, "int") else python == have)


def _pairs(value: Any) -> list[tuple[Any, Any]]:
    return [(pair["key"].as_py(), pair["value"]) for pair in value.values]


LONG = "x" * (LONGEST + 1)
WAYS: dict[str, pa.Array] = {
    "string": pa.array(["a", LONG]),
    "large_string": pa.array(["a", LONG], pa.large_string()),
    "string_view": pa.array(["a", LONG], pa.string_view()),
    "letters of two bytes": pa.array(["a", "é" * (LONGEST // 2 + 1)]),
    "binary": pa.array([b"a", LONG.encode()], pa.binary()),
    "large_binary": pa.array([b"a", LONG.encode()], pa.large_binary()),
    "binary_view": pa.array([b"a", LONG.encode()], pa.binary_view()),
    "dictionary": pa.array(["a", LONG]).dictionary_encode(),
    "list": pa.array([["a"], ["x" * 300] * 4]),
    "list of lists": pa.array([[["a"]], [["x" * 600], ["x" * 600]]]),
    "large_list": pa.array([["a"], ["x" * 300] * 4], pa.large_list(pa.string())),
    "list_view": pa.array([["a"], ["x" * 300] * 4], pa.list_view(pa.string())),
    "fixed_size_list": pa.array([["a"] * 4, ["x" * 300] * 4], pa.list_(pa.string(), 4)),
    "numbers": pa.array([[1], [1] * LONGEST]),
    "nothing in a list": pa.array([[None], [None] * (LONGEST + 1)], pa.list_(pa.string())),
    "map": pa.array([[("a", "b")], [("k" * 600, "x" * 600)]], pa.map_(pa.string(), pa.string())),
    "struct": pa.array([{"a": "a", "b": "b"}, {"a": "x" * 600, "b": "x" * 600}]),
    "struct in a list": pa.array([[{"a": "a"}], [{"a": "x" * 600}, {"a": "x" * 600}]]),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_limit_of_a_value_holds_in_each_layout(folder: Folder, way: str) -> None:
    folder.parquet(id=[0, 1], c=WAYS[way])
    report = folder.read((), "add")
    assert (report.rows, report.bad) == (1, 1)
    assert folder.dead == [("d0", 1, f"column 'c' has a value of more than {LONGEST} bytes (limits.line)")]


def test_sizes_are_those_of_the_values_whatever_lies_around_them() -> None:
    runs = pc.run_end_encode(pa.array(["aa", "aa", None, "b"]))
    assert value_sizes(runs).tolist() == [2, 2, 0, 1]
    assert value_sizes(runs.slice(1, 3)).tolist() == [2, 0, 1]
    assert value_sizes(pa.array([["abc"], ["d", "e"], None]).slice(1)).tolist() == [2, 0]
    maps = pa.array([[("a", "b")], [("cc", "dd"), ("e", None)]], pa.map_(pa.string(), pa.string()))
    assert value_sizes(maps.slice(1)).tolist() == [5]
    assert convert_array(runs.slice(1, 3), "string", "c")[0].to_pylist() == ["aa", None, "b"]


TIME = (Column("id", "long"), Column("at", "time"), Column("code", "fixed[2]"), Column("key", "uuid"))


def test_where_a_mask_is_true_is_told_for_a_part_of_it_too() -> None:
    mask = pa.array([True, False, None, True] * 40)
    for start in (0, 1, 3, 8, 67):
        part = mask.slice(start, 70)
        assert true_positions(part) == [place for place, value in enumerate(part.to_pylist()) if value]
    assert true_positions(pa.array([False, None])) == true_positions(pa.array([], pa.bool_())) == []


@pytest.mark.parametrize("layout", ["plain", "dictionary", "runs", "none"])
def test_a_required_column_s_rows_without_a_value_are_dead_in_each_layout(folder: Folder, layout: str) -> None:
    values = pa.array(["a", None, "b", None, "b"])
    column = {
        "plain": lambda: values,
        "dictionary": values.dictionary_encode,
        "runs": lambda: pc.run_end_encode(values),
        "none": lambda: pa.nulls(5),
    }[layout]()
    folder.arrow(id=[1, 2, 3, 4, 5], s=column)
    report = folder.read((Column("id", "long"), Column("s", "string", True)))
    dead = [0, 1, 2, 3, 4] if layout == "none" else [1, 3]
    assert [at for _, at, _ in folder.dead] == dead
    assert report.rows == 5 - len(dead)


def test_columns_of_time_fixed_and_uuid_take_rows_in_each_format(folder: Folder) -> None:
    folder.json(
        {"id": 1, "at": "10:00:00.5", "code": "AAE=", "key": UUID}, {"id": 2, "at": "10:00"}, {"id": 3, "code": "AA=="}
    )
    folder.arrow(id=[4], at=pa.array([1], pa.time64("us")), code=pa.array([b"ab"], pa.binary(2)), key=[UUID])
    folder.parquet(id=[5], at=pa.array([1], pa.time32("s")), key=pa.array([bytes(16)], pa.binary(16)))
    report = folder.read(TIME)
    assert (report.rows, report.bad) == (4, 1)
    assert folder.dead == [("d0", 2, "column 'code': 1 bytes, and the column takes 2")]
    assert folder.rows[0] == {"id": 1, "at": dt.time(10, 0, 0, 500_000), "code": b"\0\1", "key": UUID}
    assert folder.rows[2] == {"id": 4, "at": dt.time(0, 0, 0, 1), "code": b"ab", "key": UUID}
    assert folder.rows[3] == {
        "id": 5,
        "at": dt.time(0, 0, 1),
        "code": None,
        "key": str(dt and "00000000-0000-0000-0000-000000000000"),
    }


def test_a_table_that_spark_reads_gets_no_column_of_time_by_a_drop(folder: Folder) -> None:
    folder.parquet(id=[1], more=pa.array([{"at": 1}], pa.struct([("at", pa.time64("us"))])))
    assert "column 'more': Spark reads no table" in folder.read((Column("id", "long"),), "add").first
    assert folder.read((), "add").rows == 1
    assert folder.read((Column("id", "long"), Column("at", "time")), "add").rows == 1


@pytest.mark.parametrize("type", ["timestamp_ns", "variant", "unknown", "geometry(OGC:CRS84)"])
def test_a_table_with_a_column_that_ingestion_lacks_takes_no_row_and_says_so(type: str) -> None:
    nested: Type = {"type": "list", "element-id": 3, "element": type, "element-required": False}
    for column, path in ((type, "c"), (nested, "c.element")):
        with pytest.raises(BatchRejected, match=f"column '{path}': columns of type {type[:7]}.* can't be written"):
            require_writable("acme.t", (Column("id", "long"), Column("c", column)))
    require_writable("acme.t", TIME)


NESTED = (
    Column("id", "long"),
    Column("more", struct_of(x="long", inner=struct_of(y="string"))),
    Column("items", {"type": "list", "element-id": 9, "element-required": False, "element": struct_of(a="int")}),
    Column("by", {"type": "map", "key": "string", "value": struct_of(v="float")}),
)
WIDER = {
    "more": {"x": 1, "z": 2, "inner": {"y": "a", "w": [1]}},
    "items": [{"a": 1}, {"a": 2, "b": "c"}],
    "by": {"k": {"v": 0.5, "u": True}},
}
ADDED = [
    FieldChange(("more", "inner", "w"), {"type": "list", "element": "long"}),
    FieldChange(("more", "z"), "long"),
    FieldChange(("items", "element", "b"), "string"),
    FieldChange(("by", "value", "u"), "boolean"),
]


@pytest.mark.parametrize("format", ["json", "parquet"])
def test_a_new_field_inside_a_column_evolves_the_table_as_a_new_column_does(folder: Folder, format: str) -> None:
    folder.json({"id": 0, "more": {"x": 7}})
    if format == "json":
        folder.json({"id": 1, **WIDER})
    else:
        inner = pa.struct([("y", pa.string()), ("w", pa.list_(pa.int64()))])
        types = {
            "more": pa.struct([("inner", inner), ("x", pa.int64()), ("z", pa.int64())]),
            "items": pa.large_list(pa.struct([("b", pa.string()), ("a", pa.int32())])),
            "by": pa.map_(pa.string(), pa.struct([("v", pa.float32()), ("u", pa.bool_())])),
        }  # fmt: skip
        folder.parquet(id=[1], **{name: pa.array([WIDER[name]], type) for name, type in types.items()})
    report = folder.read(NESTED, "add")
    assert (report.rows, report.bad) == (2, 0)
    assert sorted(report.evolution.changes, key=str) == sorted(ADDED, key=str)
    assert folder.rows[0]["more"] == {"x": 7, "inner": None, "z": None}
    assert folder.rows[1] == {
        "id": 1,
        "more": {"x": 1, "z": 2, "inner": {"y": "a", "w": [1]}},
        "items": [{"a": 1, "b": None}, {"a": 2, "b": "c"}],
        "by": [("k", {"v": 0.5, "u": True})],
    }


def test_a_new_field_that_may_not_be_is_named_by_its_path(folder: Folder) -> None:
    folder.json(
        {"id": 1, "more": {"inner": {"w": 1}}}, {"id": 2, "items": [{}, {"b": 1}]}, {"id": 3, "by": {"k": {"v": "x"}}}
    )
    folder.json({"id": 4, "more": {"inner": {"w": None}}})
    folder.parquet(id=[5], more=[{"inner": {"w": 1}}])
    report = folder.read(NESTED, "none")
    assert (report.rows, report.bad) == (1, 4)
    assert [error for _, _, error in folder.dead] == [
        "column 'more.inner.w': the table has no such column",
        "column 'items.element.b': the table has no such column",
        "column 'by.value.v': expected a number, not str",
        "the table has no column 'more.inner.w', and may not get one",
    ]


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"more": {"X": 1}}, "'more.X' differs from 'more.x' by case alone"),
        ({"more": {"a.b": 1}}, "'more.a.b' can't be a column's name"),
        ({"items": [{"A": 1}]}, "'items.element.A' differs from 'items.element.a'"),
    ],
)
def test_a_new_field_that_no_engine_can_have_refuses_its_drop(folder: Folder, more: Any, reason: str) -> None:
    folder.json({"id": 1, **more})
    assert reason in folder.read(NESTED, "widen").first


def test_fields_inside_are_widened_where_that_is_allowed(folder: Folder) -> None:
    folder.parquet(
        id=[1],
        items=[[{"a": 2**40}]],
        by=pa.array([[("k", {"v": 0.1})]], pa.map_(pa.string(), pa.struct([("v", pa.float64())]))),
    )
    assert "column 'items.element.a' is long, and the table has int" in folder.read(NESTED, "add").first
    report = folder.read(NESTED, "widen")
    assert report.evolution.changes == (
        FieldChange(("items", "element", "a"), "long", True),
        FieldChange(("by", "value", "v"), "double", True),
    )
    assert folder.rows[0]["items"] == [{"a": 2**40}]


def test_no_value_where_a_field_inside_has_to_have_one_is_named_by_its_path(folder: Folder) -> None:
    field = {"name": "x", "type": "long", "required": True}
    table = (Column("id", "long"), Column("more", {"type": "struct", "fields": [field]}))
    folder.json({"id": 1, "more": {}}, {"id": 2, "more": None})
    folder.parquet(id=[3, 4], more=pa.array([{"x": None}, None], pa.struct([("x", pa.int64())])))
    assert folder.read(table).rows == 2
    assert {error for _, _, error in folder.dead} == {"column 'more.x': no value, and there has to be one"}


def test_the_page_has_the_table_of_types() -> None:
    page = (Path(__file__).parents[3] / "docs" / "ingest.md").read_text()
    assert "\n".join(format_type_table()) in page
