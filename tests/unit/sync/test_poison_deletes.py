"""Poisons in position deletes, deletion vectors, and what manifests say of them: see `test_poison.py`."""

from __future__ import annotations

import io
import json
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import orc
from pyarrow import parquet as pq

from tests.unit.iceberg import orc_files
from tests.unit.iceberg.avro_files import PATH_COLUMN, avro_file, data_file_fields, entry, manifest_schema
from tests.unit.iceberg.delete_files import FORMATS, PATH, POS, write_rows
from tests.unit.iceberg.test_puffin import file_of, footer, frame
from tests.unit.sync.poison import (
    ESCAPES,
    GONE,
    ODD,
    Sick,
    bad_paths,
    data_file,
    put,
    with_delete_entry,
    with_deletes,
    with_vectors,
)

HALF = b"\xed\xa0\x80"  # half a surrogate pair, as bytes


def column_file(kind: str, columns: list[tuple[str, int, pa.DataType, list[Any]]]) -> bytes:
    """Write a delete file of any columns: name, field id, type and values."""
    if kind == "avro":
        types = {pa.string(): "string", pa.int64(): "long", pa.binary(): "bytes", pa.float64(): "double"}
        fields = [
            {"name": name, "field-id": number, "type": ["null", types[type_]]} for name, number, type_, _ in columns
        ]
        values = zip(*(values for *_, values in columns), strict=True)
        records = [dict(zip((name for name, *_ in columns), row, strict=True)) for row in values]
        return avro_file({"type": "record", "name": "deletes", "fields": fields}, records, "null")
    key = "PARQUET:field_id" if kind == "parquet" else "iceberg.id"
    schema = pa.schema([pa.field(name, type_, metadata={key: str(number)}) for name, number, type_, _ in columns])
    table = pa.table([pa.array(values, type_) for _, _, type_, values in columns], schema=schema)
    sink = io.BytesIO()
    if kind == "parquet":
        pq.write_table(table, sink, store_schema=False)
    else:
        orc.write_table(table, sink)
    return sink.getvalue()


def test_without_poison_all_three_are_published(sick: Sick) -> None:
    path = data_file(sick)
    for kind in FORMATS:
        assert sick.sync(with_deletes(sick, write_rows(kind, [(path, 0, None), (path, 1, None)]), kind))[0].held == ()
    assert sick.sync(with_vectors(sick, file_of(footer(path))))[0].held == ()


@pytest.mark.parametrize("kind", FORMATS)
def test_a_path_in_the_rows_of_deletes(sick: Sick, kind: str) -> None:
    base, plain = sick.document["location"], {"codec": "null"} if kind == "avro" else {}
    for value in (path for path in bad_paths(base) if "\ud800" not in path):
        data = write_rows(kind, [(data_file(sick), 0, None), (value, 1, None)])
        sick.check(with_deletes(sick, data, kind))
    for odd in ODD[:3]:  # odd letters, and a file that need not be there
        sick.check(with_deletes(sick, write_rows(kind, [(f"{base}/{odd}x", 1, None)]), kind), held=False)
    data = write_rows(kind, [(f"{base}/QQQ", 0, None)], **plain).replace(b"QQQ", HALF)
    assert HALF in data
    sick.check(with_deletes(sick, data, kind), file=f".{kind}")


@pytest.mark.parametrize("kind", FORMATS)
def test_columns_of_deletes(sick: Sick, kind: str) -> None:
    path = ("file_path", PATH, pa.string(), [data_file(sick)])
    pos = ("pos", POS, pa.int64(), [1])
    wrong = [
        [pos],
        [path],
        [("file_path", PATH, pa.int64(), [7]), pos],
        [("file_path", PATH, pa.float64(), [7.0]), pos],
        [("file_path", PATH, pa.string(), [None]), pos],
        [path, ("pos", POS, pa.string(), ["1"])],
        [path, ("pos", POS, pa.float64(), [1.0])],
        [path, ("pos", POS, pa.int64(), [None])],
        [path, ("other", PATH, pa.string(), ["x"]), pos],
        [],
    ]
    for columns in wrong:
        if columns or kind != "orc":
            sick.check(with_deletes(sick, column_file(kind, columns), kind), file=f".{kind}")
    for number in (-1, 2**63 - 1, -(2**63)):  # nobody opens the data file: no position is wrong
        sick.check(with_deletes(sick, column_file(kind, [path, ("pos", POS, pa.int64(), [number])]), kind), held=False)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_file_that_is_no_delete_file(sick: Sick, kind: str) -> None:
    good = write_rows(kind, [(data_file(sick), 0, None)] * 100)
    for data in (b"", b"x", good[:-10], good[: len(good) // 2], good[:8] + good[12:], b"PFA1", b"AGS1" + bytes(100)):
        sick.check(with_deletes(sick, data, kind), file=f".{kind}")
    sick.check(with_deletes(sick, good, "lance"))
    sick.check(with_deletes(sick, good, kind, file_size_in_bytes=len(good) + 1), file=f".{kind}")


def test_a_file_that_crashes_its_library(sick: Sick) -> None:
    """The statistics of paths are those of positions, and the other way round: pyorc 0.12 follows a null pointer."""
    good = write_rows("orc", [(data_file(sick), 0, None)], compression="uncompressed")
    statistics = orc_files.values(orc_files.footer_of(good), 7)
    crashing = orc_files.edited(good, orc_files.put(7, *(statistics[at] for at in (0, 2, 1, 3, 4, 5))))
    (held,) = sick.sync(with_deletes(sick, crashing, "orc"))[0].held
    assert "died of signal 11" in str(held)
    sick.check(with_deletes(sick, crashing, "orc"), file=".orc")
    sick.check(with_deletes(sick, good, "orc"), held=False)


def bounded(sick: Sick, lower: Any, upper: Any) -> bytes:
    data = write_rows("parquet", [(data_file(sick), 0, None)])
    bounds = ([{"key": PATH_COLUMN, "value": value}] for value in (lower, upper))
    return with_deletes(sick, data, "parquet", **dict(zip(("lower_bounds", "upper_bounds"), bounds, strict=True)))


def test_bounds_of_paths(sick: Sick) -> None:
    base = sick.document["location"]
    for value in (path.encode("utf-8", "surrogatepass") for path in bad_paths(base)):
        sick.check(bounded(sick, value, value))
    for value in (b"\xff", HALF, f"{base}/".encode() + HALF):
        sick.check(bounded(sick, value, value), file=".avro")
        sick.check(bounded(sick, value, b"other"), held=False)  # of two that differ neither is kept
    data = write_rows("parquet", [(data_file(sick), 0, None)])
    for odd in ([], None, [{"key": 1, "value": b"x" * 300_000}], [{"key": PATH_COLUMN, "value": b"x"}] * 1_000):
        sick.check(with_deletes(sick, data, "parquet", lower_bounds=odd, upper_bounds=odd), held=False)


def test_the_data_file_that_a_delete_is_for(sick: Sick) -> None:
    base = sick.document["location"]
    data = write_rows("parquet", [(data_file(sick), 0, None)])
    for value in (path for path in bad_paths(base) if "\ud800" not in path):
        sick.check(with_deletes(sick, data, "parquet", referenced_data_file=value), held=value != "")  # "" is none
        sick.check(with_vectors(sick, file_of(footer(data_file(sick))), referenced_data_file=value))
    sick.check(with_vectors(sick, file_of(footer(data_file(sick))), referenced_data_file=None))


@pytest.mark.parametrize("field", ["file_path", "file_format", "file_size_in_bytes", "referenced_data_file", "content"])
def test_fields_of_another_type(sick: Sick, field: str) -> None:
    data = write_rows("parquet", [(data_file(sick), 0, None)])
    record = entry(sick.write(data, "parquet"), content=1, size=len(data))
    for kind, value in (("boolean", True), ("double", 1.5), ({"type": "array", "items": "long"}, [1])):
        schema = manifest_schema()
        next(item for item in data_file_fields(schema) if item["name"] == field)["type"] = kind
        changed = json.loads(json.dumps(schema))
        poisoned = with_delete_entry(sick, record | {"data_file": record["data_file"] | {field: value}}, changed)
        sick.check(poisoned, held=(field, kind) != ("content", "boolean"))  # true is 1, and taken for it
    schema = manifest_schema()
    fields = data_file_fields(schema)
    fields[:] = [item for item in fields if item["name"] != field]
    sick.check(with_delete_entry(sick, record, schema), held=field not in ("referenced_data_file", "content"))


@pytest.mark.parametrize("field", ["content_offset", "content_size_in_bytes", "file_size_in_bytes", "record_count"])
def test_numbers_of_a_vector(sick: Sick, field: str) -> None:
    for number in (-1, 0, 2**62, 2**63 - 1, -(2**63)):
        poisoned = with_vectors(sick, file_of(footer(data_file(sick))), **{field: number})
        sick.check(poisoned, held=field == "file_size_in_bytes")


def changed(sick: Sick, path: str, value: Any) -> bytes:
    document = footer(data_file(sick))
    put(document, path, value)
    return file_of(json.dumps(document).encode())


def test_the_data_file_in_a_footer(sick: Sick) -> None:
    base = sick.document["location"]
    for value in (GONE, 5, None, True, [], {}, *bad_paths(base), *(f"{base}/{odd}x" for odd in ESCAPES[:2])):
        sick.check(with_vectors(sick, changed(sick, "blobs/0/properties/referenced-data-file", value)))


@pytest.mark.parametrize("field", ["offset", "length"])
def test_the_place_of_a_blob(sick: Sick, field: str) -> None:
    for value in (GONE, -1, 2**31, 2**63, 2**70, 10**400, 1.5, "4", True, None, [], {}):
        sick.check(with_vectors(sick, changed(sick, f"blobs/0/{field}", value)), file=".puffin")


def test_footers_that_are_none(sick: Sick) -> None:
    good = json.dumps(footer(data_file(sick))).encode()
    lying = frame(good)[:6] + (2**40).to_bytes(8, "little") + frame(good)[14:]
    payloads = [b"", b"{", b"[]", b"{}", b'{"blobs":{}}', b'{"blobs":[1]}', b"\xff", b"[" * 200_000, good[:-5]]
    payloads += [b'{"blobs":[' + b"{}," * 1_100_000 + b"{}]}", b'{"blobs":[],"blobs":[]}', b'{"blobs":NaN}']
    for data in (
        *map(file_of, payloads),
        *(file_of(good, flags) for flags in (1, 2, 0x80000000)),
        *(file_of(good, size=size) for size in (0, 1, 2**31 - 1, 2**32 - 1)),
        *(file_of(lying, 1), file_of(frame(good)[:-9], 1), file_of(good)[:-1], file_of(good)[:9]),
    ):
        sick.check(with_vectors(sick, data), file=".puffin")
