"""Manifests of data files: what changes, what stays, what is refused."""

from typing import Any

import pytest
from pyiceberg.types import NestedField, StringType, StructType

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.avro.container import open_container
from sterna.iceberg.manifests.manifest import localize_manifest, read_entries
from tests.unit.iceberg.avro_files import CODECS, avro_file, data_file_fields, decode, entry, manifest_schema
from tests.unit.iceberg.manifest_cases import URI, content, mapped

FILE = "s3://us/t/data/1.parquet"


def localize(data: bytes) -> bytes | None:
    return localize_manifest(data, URI, map_content=content, deletes={}, map_deleted_deletes=mapped)


@pytest.mark.parametrize("version", [1, 2, 3])
@pytest.mark.parametrize("codec", CODECS)
def test_data_manifest_changes_its_paths_alone(version: int, codec: str):
    records = [
        entry(f"s3://{where}/t/{i}.parquet", version=version, status=i % 3) for i in range(7) for where in ("us", "eu")
    ]
    data = avro_file(manifest_schema(version), records, codec, format_version=str(version))
    done = localize(data)
    assert done is not None
    for record in records:
        record["data_file"]["file_path"] = content(record["data_file"]["file_path"])
    assert decode(done) == (decode(data)[0], records)
    assert done == localize(data)


def test_a_manifest_without_foreign_uris_keeps_its_uri():
    assert localize(avro_file(manifest_schema(), [entry("s3://eu/t/1.parquet")])) is None
    assert localize(avro_file(manifest_schema(), [])) is None


def test_untouched_blocks_are_kept_as_they_are_stored():
    local, foreign = entry("s3://eu/t/1.parquet"), entry("s3://us/t/2.parquet")
    data = avro_file(manifest_schema(), [local, foreign, local], block=1)
    done = localize(data)
    assert done is not None
    first, last = open_container(data, URI), open_container(done, URI)
    before = [first.stored_block(block) for group in first.groups() for block in group.blocks]
    after = [last.stored_block(block) for group in last.groups() for block in group.blocks]
    assert [old == new for old, new in zip(before, after, strict=True)] == [True, False, True]


def test_fields_are_found_by_id_and_not_by_name():
    schema = manifest_schema(partition=StructType(NestedField(1000, "file_path", StringType())))
    for field in data_file_fields(schema):
        field["name"] = {"file_path": "location", "record_count": "file_path"}.get(field["name"], field["name"])
    record = entry("", partition={"file_path": "s3://us/t"}, location="s3://us/t/1.parquet")
    record["data_file"]["file_path"] = 10
    done = localize(avro_file(schema, [record]))
    assert done is not None
    file = decode(done)[1][0]["data_file"]
    assert (file["location"], file["file_path"], file["partition"]) == (
        "s3://eu/r/us/t/1.parquet",
        10,
        {"file_path": "s3://us/t"},
    )


def test_names_count_where_the_schema_has_no_ids():
    schema = manifest_schema()
    for field in [*schema["fields"], *data_file_fields(schema)]:
        del field["field-id"]
    done = localize(avro_file(schema, [entry("s3://us/t/1.parquet")]))
    assert done is not None
    assert decode(done)[1][0]["data_file"]["file_path"] == "s3://eu/r/us/t/1.parquet"


def test_shapes_that_the_walk_does_not_know_take_the_general_path():
    schema = manifest_schema()
    next(field for field in data_file_fields(schema) if field["name"] == "file_size_in_bytes")["type"] = [
        "string",
        "long",
    ]
    data = avro_file(schema, [entry("s3://us/t/1.parquet")])
    done = localize(data)
    assert done is not None
    header, records = decode(done)
    assert header == decode(data)[0]
    assert records == [entry("s3://eu/r/us/t/1.parquet")]
    assert read_entries(data, URI).column("file_path").to_pylist() == ["s3://us/t/1.parquet"]


def test_read_entries():
    records = [
        entry("s3://us/a", status=0),
        entry("s3://us/b", content=2, file_format="avro"),
        entry("s3://us/é", content=1, status=2, size=9),
    ]
    entries = read_entries(avro_file(manifest_schema(), records, block=1), URI)
    assert entries.to_pylist()[1] == {
        "status": 1,
        "content": 2,
        "file_path": "s3://us/b",
        "file_format": "AVRO",
        "file_size": 1000,
    }
    assert [str(kind) for kind in entries.schema.types] == ["int64", "int64", "string", "string", "int64"]
    assert entries.column("file_path").to_pylist() == ["s3://us/a", "s3://us/b", "s3://us/é"]
    v1 = read_entries(avro_file(manifest_schema(1), [entry("s3://us/a", version=1)], format_version="1"), URI)
    assert v1.column("content").to_pylist() == [0]


@pytest.mark.parametrize(
    ("changes", "arguments", "error"),
    [
        ({"key_metadata": b"k"}, {}, Unsupported),
        ({}, {"content": 3}, Unsupported),
        ({}, {"content": 1000}, Unsupported),
        ({"file_format": "LATER"}, {"content": 1}, Unsupported),
        ({"file_format": "PUFFIN"}, {"content": 1}, BrokenMetadata),
        ({"file_format": "puffin"}, {}, BrokenMetadata),
        ({"file_format": "PUFFIN", "content_offset": 4, "referenced_data_file": FILE}, {}, BrokenMetadata),
        ({"file_format": "PUFFIN", "content_offset": 4}, {"content": 1}, BrokenMetadata),
        (
            {"file_format": "PUFFIN", "content_offset": 4, "referenced_data_file": ""},
            {"content": 1},
            BrokenMetadata,
        ),
    ],
)
@pytest.mark.parametrize("walkable", [True, False])
def test_files_that_are_refused(
    changes: dict[str, Any], arguments: dict[str, Any], error: type[Exception], walkable: bool
):
    schema = manifest_schema(3)
    if not walkable:
        next(field for field in data_file_fields(schema) if field["name"] == "file_size_in_bytes")["type"] = [
            "string",
            "long",
        ]
    data = avro_file(
        schema, [entry(FILE, version=3), entry(FILE, version=3, **arguments, **changes)], format_version="3"
    )
    for call in (localize, lambda data: read_entries(data, URI)):
        with pytest.raises(error) as caught:
            call(data)
        assert caught.value.file == URI
    gone = avro_file(schema, [entry(FILE, version=3, status=2, **arguments, **changes)], format_version="3")
    done = localize(gone)
    assert done is not None
    assert decode(done)[1][0]["data_file"]["file_path"] == content(FILE)
    assert read_entries(gone, URI).num_rows == 1


def test_later_formats_and_other_codecs_are_refused():
    for data in (
        avro_file(manifest_schema(3), [entry(FILE, version=3)], format_version="4"),
        avro_file(manifest_schema(3), [], format_version="12345678901"),
        avro_file(manifest_schema(), [entry(FILE)], "xz"),
    ):
        with pytest.raises(Unsupported):
            localize(data)
        with pytest.raises(Unsupported):
            read_entries(data, URI)
