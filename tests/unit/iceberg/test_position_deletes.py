"""Position delete files in Parquet: every row mapped, order and schema right, same input same bytes."""

import contextlib
import random
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, UnregisteredUri, Unsupported
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from tests.unit.iceberg.delete_files import expected, golden

URI = "s3://us/t/data/d1.parquet"
METADATA = {"delete-type": "position", "iceberg.schema": '{"type":"struct"}'}


def field(name: str, kind: pa.DataType, number: int, nullable: bool = False) -> pa.Field:
    return pa.field(name, kind, nullable=nullable, metadata={b"PARQUET:field_id": str(number).encode()})


PLAIN = [field("file_path", pa.string(), 2147483546), field("pos", pa.int64(), 2147483545)]
ROW = field(
    "row",
    pa.struct(
        [
            field("id", pa.int64(), 1),
            field("price", pa.decimal128(9, 2), 2, True),
            field("tags", pa.list_(field("element", pa.string(), 4, True)), 3, True),
            field("at", pa.timestamp("us", "UTC"), 5, True),
            field("map", pa.map_(field("key", pa.string(), 7), field("value", pa.int32(), 8, True)), 6, True),
        ]
    ),
    2147483544,
    True,
)


def parquet(rows: list[dict[str, Any]], fields: list[pa.Field] = PLAIN, **options: Any) -> bytes:
    table = pa.Table.from_pylist(rows, schema=pa.schema(fields))
    sink = pa.BufferOutputStream()
    size = options.pop("row_group_size", 40)
    with pq.ParquetWriter(sink, table.schema, **({"store_schema": False} | options)) as writer:
        writer.write_table(table, row_group_size=size)
        writer.add_key_value_metadata(METADATA)
    return sink.getvalue().to_pybytes()


def rows(count: int = 300, paths: int = 7) -> list[dict[str, Any]]:
    # Written by two regions: sorted here, and in another order once us comes below eu's replica root.
    deletes = [
        {"file_path": f"s3://{'eu' if number % 2 else 'us'}/t/{number % paths}.parquet", "pos": number}
        for number in range(count)
    ]
    return sorted(deletes, key=lambda row: (row["file_path"], row["pos"]))


def content(uri: str) -> str:
    return uri.replace("s3://us/", "s3://eu/r/us/", 1)


def file_of(data: bytes) -> pq.ParquetFile:
    return pq.ParquetFile(pa.BufferReader(data))


def localized(data: bytes) -> bytes:
    done = localize_position_deletes(data, URI, map_content=content)
    assert done is not None
    assert done == localize_position_deletes(data, URI, map_content=content)
    return done


@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd"])
@pytest.mark.parametrize("store_schema", [False, True])
def test_paths_change_and_nothing_else(codec: str, store_schema: bool):
    data = parquet(rows(), compression=codec, store_schema=store_schema)
    before, after = file_of(data), file_of(localized(data))
    expected = [row | {"file_path": content(row["file_path"])} for row in rows()]
    assert after.read().to_pylist() == sorted(expected, key=lambda row: (row["file_path"], row["pos"]))
    assert after.read().to_pylist() != expected
    assert after.schema.equals(before.schema)
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    assert after.metadata.metadata == before.metadata.metadata
    chunks = [
        (file.metadata.row_group(0).column(at).compression, file.metadata.row_group(0).num_rows)
        for file in (before, after)
        for at in (0, 1)
    ]
    assert chunks[:2] == chunks[2:]


def test_statistics_are_of_the_new_paths():
    last = file_of(localized(parquet(rows()))).metadata
    bounds = [last.row_group(number).column(0).statistics for number in range(last.num_row_groups)]
    assert (bounds[0].min, bounds[-1].max) == ("s3://eu/r/us/t/0.parquet", "s3://eu/t/6.parquet")


@pytest.mark.parametrize("decimals_as_integers", [False, True])
def test_deleted_rows_are_kept_with_their_types(decimals_as_integers: bool):
    value = {"id": 1, "price": None, "tags": ["a", None], "at": None, "map": [("k", 1)]}
    data = parquet(
        [row | {"row": value if row["pos"] % 3 else None} for row in rows()],
        [*PLAIN, ROW],
        store_decimal_as_integer=decimals_as_integers,
    )
    before, after = file_of(data), file_of(localized(data))
    assert after.schema.equals(before.schema)
    deleted = {(content(row["file_path"]), row["pos"]): row["row"] for row in before.read().to_pylist()}
    assert {(row["file_path"], row["pos"]): row["row"] for row in after.read().to_pylist()} == deleted


def test_columns_are_found_by_field_id():
    fields = [field("pos", pa.string(), 2147483546), field("file_path", pa.int64(), 2147483545)]
    data = parquet([{"pos": row["file_path"], "file_path": row["pos"]} for row in rows()], fields)
    assert set(file_of(localized(data)).read().column("pos").to_pylist()) == {
        content(row["file_path"]) for row in rows()
    }


def test_local_rows_leave_the_file_alone():
    data = parquet([{"file_path": "s3://eu/t/1.parquet", "pos": number} for number in range(5)])
    assert localize_position_deletes(data, URI, map_content=content) is None
    assert localize_position_deletes(parquet([]), URI, map_content=content) is None


def test_each_distinct_path_is_mapped_once():
    seen: list[str] = []
    localize_position_deletes(parquet(rows()), URI, map_content=lambda uri: seen.append(uri) or content(uri))  # type: ignore[func-returns-value]
    assert sorted(seen) == sorted({row["file_path"] for row in rows()})


def test_more_paths_than_a_dictionary_page_holds():
    many = rows(4000, 4000)
    data = parquet(many, dictionary_pagesize_limit=2000, row_group_size=4000)
    assert file_of(localized(data)).read().num_rows == 4000


def test_the_callers_errors_pass_through():
    def refuse(uri: str) -> str:
        raise UnregisteredUri(uri)

    with pytest.raises(UnregisteredUri):
        localize_position_deletes(parquet(rows()), URI, map_content=refuse)


@pytest.mark.parametrize("name", ["rows.parquet", "with-row.parquet"])
def test_rows_of_java(name: str):
    before, after = file_of(golden(name)), file_of(localized(golden(name)))
    files = [
        [(row["file_path"], row["pos"], row.get("row")) for row in file.read().to_pylist()] for file in (before, after)
    ]
    assert files[1] == expected(files[0])
    assert after.schema.equals(before.schema)
    assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
    assert after.metadata.metadata == before.metadata.metadata
    assert after.metadata.metadata[b"delete-type"] == b"position"


def test_paths_that_are_stored_as_dictionary_or_without_their_logical_type():
    mapped = [content(row["file_path"]) for row in rows()]
    table = pa.Table.from_pylist(rows(), schema=pa.schema(PLAIN))
    for kind in (pa.dictionary(pa.int32(), pa.string()), pa.large_string(), pa.binary()):
        other = table.set_column(0, PLAIN[0].with_type(kind), table.column(0).cast(kind))
        sink = pa.BufferOutputStream()
        pq.write_table(other, sink)
        before, after = file_of(sink.getvalue()), file_of(localized(sink.getvalue().to_pybytes()))
        assert after.schema_arrow.equals(before.schema_arrow, check_metadata=True)
        assert after.read().column(0).cast(pa.string()).to_pylist() == sorted(mapped)


def test_page_index_and_statistics_follow_each_row_group():
    last = file_of(localized(parquet(rows()))).metadata
    groups = [last.row_group(number) for number in range(last.num_row_groups)]
    assert len(groups) == 8
    for number, group in enumerate(groups):
        paths = file_of(localized(parquet(rows()))).read_row_group(number).column(0).to_pylist()
        assert (group.column(0).statistics.min, group.column(0).statistics.max) == (paths[0], paths[-1])
        assert group.column(0).has_offset_index and group.column(0).has_column_index


def test_rows_that_can_t_be_written_back_are_named():
    at = field("row", pa.struct([field("at", pa.timestamp("ns"), 1, True)]), 2147483544, True)
    data = parquet([row | {"row": {"at": 1}} for row in rows()], [*PLAIN, at], use_deprecated_int96_timestamps=True)
    with pytest.raises(Unsupported, match="can't be written back"):
        localize_position_deletes(data, URI, map_content=content)


def test_strings_that_grow_over_the_limit():
    text = field("row", pa.struct([field("text", pa.string(), 1, True)]), 2147483544, True)
    data = parquet(
        [row | {"row": {"text": "x" * 10_000}} for row in rows(3000)],
        [*PLAIN, text],
        compression="zstd",
        row_group_size=3000,
    )
    assert len(data) < 50_000
    assert len(localized(data)) > 0
    with pytest.raises(OverLimit, match=r"over the limit.*limits\.delete_bytes"):
        localize_position_deletes(data, URI, map_content=content, limits=Limits(delete_bytes=10_000_000))


def test_a_chunk_whose_metadata_is_damaged_does_not_end_the_process():
    damaged = bytearray(golden("with-row.parquet"))
    assert damaged[3985] == 12
    damaged[3985] = 0  # the Thrift type of an element in the size statistics of a chunk
    with pytest.raises(BrokenMetadata):
        localize_position_deletes(bytes(damaged), URI, map_content=content)


def test_two_columns_of_one_name():
    data = parquet([], [PLAIN[0], PLAIN[1], field("pos", pa.int64(), 9)])
    with pytest.raises(BrokenMetadata, match="one name"):
        localize_position_deletes(data, URI, map_content=content)


def test_broken_files_are_named():
    data = parquet(rows())
    null_path = parquet([{"file_path": None, "pos": 1}], [PLAIN[0].with_nullable(True), PLAIN[1]])
    other = parquet([{"pos": 1}], [PLAIN[1]])
    wrong_type = parquet([{"file_path": 1, "pos": 1}], [field("file_path", pa.int64(), 2147483546), PLAIN[1]])
    for broken in (b"", b"PAR1", data[:-20], data[:40] + data[60:], b"x" * 100, null_path, other, wrong_type):
        with pytest.raises(BrokenMetadata) as caught:
            localize_position_deletes(broken, URI, map_content=content)
        assert caught.value.file == URI
    with pytest.raises(Unsupported):
        localize_position_deletes(data[:-4] + b"PARE", URI, map_content=content)
    with pytest.raises(OverLimit, match=r"over the limit.*limits\.delete_rows"):
        localize_position_deletes(data, URI, map_content=content, limits=Limits(delete_rows=100))


def test_flipped_bytes_never_raise_anything_else():
    data = parquet(rows())
    rng = random.Random(7)
    for _ in range(300):
        damaged = bytearray(data)
        for _ in range(rng.randint(1, 4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        with contextlib.suppress(BrokenMetadata, Unsupported):
            localize_position_deletes(bytes(damaged), URI, map_content=content)
