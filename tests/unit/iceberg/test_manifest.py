"""Manifests and manifest lists: what changes, what stays, what is refused."""

from typing import Any

import pytest
from pyiceberg.types import NestedField, StringType, StructType

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.avro import open_container
from sterna.iceberg.entry import UriMapping
from sterna.iceberg.files import Written
from sterna.iceberg.manifest import localize_manifest, read_entries
from sterna.iceberg.manifest_general import localize as localize_general
from sterna.iceberg.manifest_list import ManifestFile, localize_manifest_list, read_manifest_list
from tests.unit.iceberg.avro_files import (
    CODECS,
    PATH_COLUMN,
    avro_file,
    data_file_fields,
    decode,
    entry,
    manifest_list_schema,
    manifest_schema,
    path_bounds,
)

URI = "s3://us/t/metadata/m0.avro"
DELETE = "s3://us/t/data/d1.parquet"
DELETES = {DELETE: Written("s3://eu/r/us/t/data/d1.parquet", 555)}


def content(uri: str) -> str:
    return uri.replace("s3://us/", "s3://eu/r/us/", 1)


def mapped(uri: str) -> str:
    return content(uri) if uri.startswith("s3://us/") else uri.replace("s3://eu/", "s3://eu/r/eu/", 1)


def localize(data: bytes) -> bytes | None:
    return localize_manifest(data, URI, content=content, deletes=DELETES, mapped=mapped)


def one(data_file: dict[str, Any], **arguments: Any) -> dict[str, Any]:
    """The data file of a manifest's only entry, localized by the walk and by the general path."""
    data = avro_file(manifest_schema(), [entry(data_file.pop("path", DELETE), **arguments, **data_file)], content="deletes")
    walked = localize(data)
    general = localize_general(open_container(data, URI), UriMapping(content, DELETES, mapped))
    assert walked is not None
    assert general is not None
    assert decode(walked) == decode(general)
    return decode(walked)[1][0]["data_file"]


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("codec", CODECS)
def test_data_manifest_changes_its_paths_alone(version: int, codec: str):
    records = [entry(f"s3://{where}/t/{i}.parquet", version=version, status=i % 3) for i in range(7) for where in ("us", "eu")]
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
    before = [first.stored(block) for group in first.groups() for block in group.blocks]
    after = [last.stored(block) for group in last.groups() for block in group.blocks]
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
    assert (file["location"], file["file_path"], file["partition"]) == ("s3://eu/r/us/t/1.parquet", 10, {"file_path": "s3://us/t"})


def test_names_count_where_the_schema_has_no_ids():
    schema = manifest_schema()
    for field in [*schema["fields"], *data_file_fields(schema)]:
        del field["field-id"]
    done = localize(avro_file(schema, [entry("s3://us/t/1.parquet")]))
    assert done is not None
    assert decode(done)[1][0]["data_file"]["file_path"] == "s3://eu/r/us/t/1.parquet"


def test_rewritten_position_delete():
    file = one({"referenced_data_file": "s3://us/t/1.parquet", **path_bounds("s3://us/t/1.parquet")}, content=1)
    expected = entry(
        DELETES[DELETE].uri,
        content=1,
        size=555,
        referenced_data_file="s3://eu/r/us/t/1.parquet",
        **path_bounds("s3://eu/r/us/t/1.parquet"),
        column_sizes=None,
        split_offsets=None,
    )
    assert file == expected["data_file"]


def test_unequal_bounds_are_dropped():
    file = one({**path_bounds("s3://us/a", "s3://us/b")}, content=1)
    keys = [item["key"] for bounds in ("lower_bounds", "upper_bounds") for item in file[bounds]]
    assert keys == [2147483545, 2147483545]
    assert one({**path_bounds("s3://us/a", "s3://us/b", extra=False)}, content=1)["lower_bounds"] == []


def test_a_single_bound_is_dropped():
    file = one({"lower_bounds": [{"key": PATH_COLUMN, "value": b"s3://us/a"}], "upper_bounds": None}, content=1)
    assert (file["lower_bounds"], file["upper_bounds"]) == ([], None)


def test_deleted_position_delete_is_mapped_and_never_looked_up():
    file = one({"path": "s3://eu/gone.parquet", **path_bounds("s3://us/t/1.parquet")}, content=1, status=2)
    old = entry("s3://eu/r/eu/gone.parquet", status=2, content=1, **path_bounds("s3://eu/r/us/t/1.parquet"))
    assert file == old["data_file"]


def test_equality_deletes_are_content_files():
    file = one({"path": "s3://us/e.parquet", **path_bounds("s3://us/a", "s3://us/b")}, content=2)
    assert file == entry("s3://eu/r/us/e.parquet", content=2, **path_bounds("s3://us/a", "s3://us/b"))["data_file"]


def test_an_unlisted_position_delete_is_an_error():
    with pytest.raises(BrokenMetadata, match=r"d9\.parquet"):
        localize(avro_file(manifest_schema(), [entry("s3://us/d9.parquet", content=1)]))


def test_shapes_that_the_walk_does_not_know_take_the_general_path():
    schema = manifest_schema()
    next(field for field in data_file_fields(schema) if field["name"] == "file_size_in_bytes")["type"] = ["string", "long"]
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
    found = read_entries(avro_file(manifest_schema(), records, block=1), URI)
    assert found.to_pylist()[1] == {"status": 1, "content": 2, "file_path": "s3://us/b", "file_format": "AVRO", "file_size": 1000}
    assert [str(kind) for kind in found.schema.types] == ["int8", "int8", "string", "string", "int64"]
    assert found.column("file_path").to_pylist() == ["s3://us/a", "s3://us/b", "s3://us/é"]
    v1 = read_entries(avro_file(manifest_schema(1), [entry("s3://us/a", version=1)], format_version="1"), URI)
    assert v1.column("content").to_pylist() == [0]


@pytest.mark.parametrize(
    ("changes", "arguments"),
    [
        ({"key_metadata": b"k"}, {}),
        ({"file_format": "PUFFIN"}, {"content": 1}),
        ({"file_format": "ORC"}, {"content": 1}),
        ({"file_format": "avro"}, {"content": 1}),
        ({}, {"content": 3}),
    ],
)
def test_unsupported_files_are_refused(changes: dict[str, Any], arguments: dict[str, Any]):
    data = avro_file(manifest_schema(), [entry(DELETE, **arguments, **changes)])
    for call in (localize, lambda data: read_entries(data, URI)):
        with pytest.raises(Unsupported) as caught:
            call(data)
        assert caught.value.file == URI


def test_deletion_vectors_newer_formats_and_other_codecs_are_refused():
    schema = manifest_schema()
    data_file_fields(schema).append({"name": "content_offset", "field-id": 144, "type": ["null", "long"]})
    for data in (
        avro_file(schema, [entry(DELETE, content=1, content_offset=4)]),
        avro_file(manifest_schema(), [entry(DELETE)], format_version="3"),
        avro_file(manifest_schema(), [entry(DELETE)], "xz"),
    ):
        with pytest.raises(Unsupported):
            localize(data)
        with pytest.raises(Unsupported):
            read_entries(data, URI)
    assert localize(avro_file(schema, [entry(DELETE, content_offset=None)])) is not None


def manifest(path: str, length: int = 100, **changes: Any) -> dict[str, Any]:
    counts = {f"{kind}_{what}_count": number for number, kind in enumerate(("added", "existing", "deleted")) for what in ("files", "rows")}
    partitions = [{"contains_null": False, "contains_nan": None, "lower_bound": b"s3://us", "upper_bound": None}]
    ids = {"partition_spec_id": 0, "content": 0, "sequence_number": 1, "min_sequence_number": 0, "added_snapshot_id": 2**62 + 3}
    return {"manifest_path": path, "manifest_length": length, **ids, **counts, "partitions": partitions, "key_metadata": None} | changes


@pytest.mark.parametrize("codec", CODECS)
def test_manifest_list_changes_paths_and_lengths(codec: str):
    rows = [manifest("s3://us/m1"), manifest("s3://eu/m2", 7, content=1), manifest("s3://us/m3", 2**40)]
    data = avro_file(manifest_list_schema(), rows, codec, block=2)
    assert read_manifest_list(data, URI) == (
        ManifestFile("s3://us/m1", 100, 0, 2**62 + 3, 0, 1),
        ManifestFile("s3://eu/m2", 7, 1, 2**62 + 3, 0, 1),
        ManifestFile("s3://us/m3", 2**40, 0, 2**62 + 3, 0, 1),
    )
    written = {
        "s3://us/m1": Written("s3://eu/r/m1", 99),
        "s3://eu/m2": Written("s3://eu/m2", 7),
        "s3://us/m3": Written("s3://eu/r/m3", 2**40),
    }
    done = localize_manifest_list(data, URI, written)
    assert done is not None
    rows[0] |= {"manifest_path": "s3://eu/r/m1", "manifest_length": 99}
    rows[2] |= {"manifest_path": "s3://eu/r/m3"}
    assert decode(done) == (decode(data)[0], rows)
    same = {row["manifest_path"]: Written(row["manifest_path"], row["manifest_length"]) for row in rows}
    assert localize_manifest_list(done, URI, same) is None


def test_manifest_list_of_format_v1():
    data = avro_file(manifest_list_schema(1), [manifest("s3://us/m1", added_files_count=None)], format_version="1")
    assert read_manifest_list(data, URI) == (ManifestFile("s3://us/m1", 100, 0, 2**62 + 3, 0, None),)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"key_metadata": b"k"}, Unsupported), ({"content": 2}, Unsupported), ({"manifest_length": -1}, BrokenMetadata)],
)
def test_manifest_list_refusals(changes: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        read_manifest_list(avro_file(manifest_list_schema(), [manifest("s3://us/m1", **changes)]), URI)


def test_manifest_list_needs_every_manifest():
    with pytest.raises(BrokenMetadata, match="s3://us/m1"):
        localize_manifest_list(avro_file(manifest_list_schema(), [manifest("s3://us/m1")]), URI, {})
    with pytest.raises(BrokenMetadata):
        read_manifest_list(avro_file(manifest_schema(), [entry("s3://us/a")]), URI)
