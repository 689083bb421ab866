"""Position deletes of other writers: what is equal in meaning is localized, whatever its bytes.

The kind is a limit of our library, or a difference in bytes, taken for a fault of the file. It has these members:
annotations that add nothing to a type, names of a schema's root, versions of Parquet and of its pages, encodings that
Arrow makes no dictionary of, codecs, the types that Arrow's own metadata give a column of paths, positions of another
width, and what the other columns are made of: views, and lists with older names. A column that really can't be written
back is named, with its type.
"""

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.limits import Limits
from sterna.errors import OverLimit, Unsupported
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from tests.unit.iceberg.delete_files import GOLDEN

FOLDER = GOLDEN.parent / "strangers" / "position_deletes"
URI = "s3://us-lake/t/data/d.parquet"
IDS = {"file_path": 2147483546, "pos": 2147483545, "row": 2147483544}
PATHS = [f"s3://us-lake/t/{number % 5}.parquet" for number in range(200)]


def content(uri: str) -> str:
    return uri.replace("s3://us-lake/", "s3://eu/r/us/", 1)


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def rows_of(data: bytes) -> list[tuple[str, int]]:
    table = pq.read_table(io.BytesIO(data))
    ids = {int(field.metadata[b"PARQUET:field_id"]): field.name for field in table.schema}
    columns = (table.column(ids[IDS[name]]).to_pylist() for name in ("file_path", "pos"))
    return [(text(path), pos) for path, pos in zip(*columns, strict=True)]


def leaves(file: pq.ParquetFile) -> list[str]:
    return [file.schema.column(number).path for number in range(len(file.schema))]


def localized(data: bytes) -> bytes:
    out = localize_position_deletes(data, URI, map_content=content)
    assert out is not None
    assert localize_position_deletes(out, URI, map_content=content) is None
    return out


def with_columns(pos: pa.Array, other: pa.Array | None = None, **options: Any) -> bytes:
    """A file of three rows with positions of some type, and another column."""
    columns = {"file_path": pa.array(sorted(PATHS)[:3]), "pos": pos} | ({} if other is None else {"row": other})
    fields = [
        pa.field(name, column.type, metadata={"PARQUET:field_id": str(IDS[name])}) for name, column in columns.items()
    ]
    sink = io.BytesIO()
    pq.write_table(pa.table(list(columns.values()), pa.schema(fields)), sink, **options)
    return sink.getvalue()


def written(kind: pa.DataType, **options: Any) -> bytes:
    """A file of 200 rows whose paths have an Arrow type, written with the options of `pyarrow.parquet.write_table`."""
    fields = [
        pa.field(name, type_, nullable=False, metadata={"PARQUET:field_id": str(IDS[name])})
        for name, type_ in (("file_path", kind), ("pos", pa.int64()))
    ]
    paths = pa.array(sorted(PATHS)).cast(kind.value_type if pa.types.is_dictionary(kind) else kind)
    table = pa.table([paths.cast(kind), pa.array(range(200))], pa.schema(fields))
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=90, **options)
    return sink.getvalue()


@pytest.mark.parametrize("name", sorted(path.name for path in FOLDER.iterdir()))
def test_files_of_other_writers(name: str):
    data = (FOLDER / name).read_bytes()
    out = localized(data)
    assert rows_of(out) == [(content(path), pos) for path, pos in rows_of(data)]
    assert all(path.startswith("s3://eu/r/us/") for path, _ in rows_of(out))
    before, after = (pq.ParquetFile(io.BytesIO(file)) for file in (data, out))
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "lz4", "brotli"])
@pytest.mark.parametrize("pages", ["1.0", "2.0"])
@pytest.mark.parametrize("version", ["1.0", "2.4", "2.6"])
def test_every_codec_and_version_of_parquet(codec: str, pages: str, version: Any):
    data = written(pa.string(), compression=codec, data_page_version=pages, version=version)
    out = localized(data)
    assert rows_of(out) == [(content(path), number) for number, path in enumerate(sorted(PATHS))]
    codecs = [pq.ParquetFile(io.BytesIO(file)).metadata.row_group(0).column(0).compression for file in (data, out)]
    assert codecs[0] == codecs[1]


@pytest.mark.parametrize(
    "kind",
    [
        pa.string(),
        pa.large_string(),
        pa.string_view(),
        pa.binary(),
        pa.large_binary(),
        pa.binary_view(),
    ],
    ids=str,
)
@pytest.mark.parametrize("encoding", ["dictionary", "PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"])
def test_every_type_and_encoding_of_paths(kind: pa.DataType, encoding: str):
    plain = {} if encoding == "dictionary" else {"use_dictionary": False, "column_encoding": {"file_path": encoding}}
    data = written(kind, **plain)
    out = localized(data)
    assert rows_of(out) == [(content(path), number) for number, path in enumerate(sorted(PATHS))]
    before, after = (pq.ParquetFile(io.BytesIO(file)) for file in (data, out))
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)


@pytest.mark.parametrize("kind", [pa.int32(), pa.uint32(), pa.uint64(), pa.int16()], ids=str)
def test_positions_of_every_width(kind: pa.DataType):
    """Java's library reads an INT32 as a long, and so do others."""
    data = with_columns(pos=pa.array([3, 1, 0], kind))
    out = localized(data)
    assert sorted(rows_of(out)) == sorted((content(path), pos) for path, pos in rows_of(data))
    before, after = (pq.ParquetFile(io.BytesIO(file)) for file in (data, out))
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)


OTHERS = {
    "text view": pa.array(["a", None, "c" * 99], pa.string_view()),
    "view of bytes": pa.array([b"a", None, b"c" * 99], pa.binary_view()),
    "view inside": pa.array([{"a": "x"}, None, {"a": None}], pa.struct([("a", pa.string_view())])),
    "list of views": pa.array([["x", None], None, []], pa.list_(pa.string_view())),
    "list": pa.array([[1, None], None, []]),
    "map": pa.array([[("k", 1)], None, []], pa.map_(pa.string(), pa.int64())),
    "words": pa.array(["x", None, "x"]).dictionary_encode(),
}


@pytest.mark.parametrize("names", [True, False], ids=["element", "item"])
@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("hints", [True, False])
def test_other_columns_of_every_layout(other: str, names: bool, hints: bool):
    data = with_columns(
        pos=pa.array([3, 1, 0]), other=OTHERS[other], use_compliant_nested_type=names, store_schema=hints
    )
    out = localized(data)
    before, after = (pq.ParquetFile(io.BytesIO(file)) for file in (data, out))
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    assert leaves(after) == leaves(before)
    wanted = [{**row, "file_path": content(row["file_path"])} for row in before.read().to_pylist()]
    assert sorted(after.read().to_pylist(), key=repr) == sorted(wanted, key=repr)


def test_paths_that_are_a_dictionary_in_arrow_alone_are_beyond_arrow_and_not_broken():
    kind = pa.dictionary(pa.int32(), pa.string())
    assert len(rows_of(localized(written(kind)))) == 200
    data = written(kind, use_dictionary=False, column_encoding={"file_path": "DELTA_BYTE_ARRAY"})
    with pytest.raises(Unsupported, match="Arrow can't read"):
        localize_position_deletes(data, URI, map_content=content)


def test_text_that_unfolds_over_the_limit_in_an_encoding_without_dictionary():
    fields = [
        pa.field(name, type_, nullable=False, metadata={"PARQUET:field_id": str(IDS[name])})
        for name, type_ in (("file_path", pa.string()), ("pos", pa.int64()))
    ]
    long = "s3://us-lake/" + "x" * 20_000
    table = pa.table([pa.array([long] * 2000), pa.array(range(2000))], pa.schema(fields))
    sink = io.BytesIO()
    pq.write_table(table, sink, use_dictionary=False, column_encoding={"file_path": "DELTA_BYTE_ARRAY"})
    assert len(sink.getvalue()) < 100_000
    assert localize_position_deletes(sink.getvalue(), URI, map_content=content) is not None
    with pytest.raises(OverLimit, match=r"limits\.delete_bytes"):
        localize_position_deletes(sink.getvalue(), URI, map_content=content, limits=Limits(delete_bytes=10_000_000))


def test_a_column_that_can_t_be_written_back_is_named_with_its_type():
    at = pa.field("at", pa.timestamp("ns"), metadata={"PARQUET:field_id": "1"})
    fields = [
        pa.field("file_path", pa.string(), nullable=False, metadata={"PARQUET:field_id": str(IDS["file_path"])}),
        pa.field("pos", pa.int64(), nullable=False, metadata={"PARQUET:field_id": str(IDS["pos"])}),
        pa.field("row", pa.struct([at]), metadata={"PARQUET:field_id": str(IDS["row"])}),
    ]
    table = pa.table([pa.array([PATHS[0]]), pa.array([0]), pa.array([{"at": 1}], fields[2].type)], pa.schema(fields))
    sink = io.BytesIO()
    pq.write_table(table, sink, use_deprecated_int96_timestamps=True)
    with pytest.raises(Unsupported, match=r"row\.at \(INT96\)"):
        localize_position_deletes(sink.getvalue(), URI, map_content=content)
