"""Manifest lists: what changes, what stays, what is refused."""

from typing import Any

import pytest

from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.manifest_list import ManifestFile, localize_manifest_list, read_manifest_list
from tests.unit.iceberg.avro_files import (
    CODECS,
    avro_file,
    decode,
    entry,
    manifest_list_schema,
    manifest_row,
    manifest_schema,
)

URI = "s3://us/t/metadata/snap-1.avro"


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize("codec", CODECS)
def test_manifest_list_changes_paths_and_lengths(codec: str, version: int):
    rows = [manifest_row("s3://us/m1"), manifest_row("s3://eu/m2", 7, content=1), manifest_row("s3://us/m3", 2**40)]
    data = avro_file(manifest_list_schema(version), rows, codec, block=2, format_version=str(version))
    assert read_manifest_list(data, URI) == (
        ManifestFile("s3://us/m1", 100, 0, 2**62 + 3, 0, 1),
        ManifestFile("s3://eu/m2", 7, 1, 2**62 + 3, 0, 1),
        ManifestFile("s3://us/m3", 2**40, 0, 2**62 + 3, 0, 1),
    )
    written = {
        "s3://us/m1": LocalizedFile("s3://eu/r/m1", 99),
        "s3://eu/m2": LocalizedFile("s3://eu/m2", 7),
        "s3://us/m3": LocalizedFile("s3://eu/r/m3", 2**40),
    }
    done = localize_manifest_list(data, URI, written)
    assert done is not None
    rows[0] |= {"manifest_path": "s3://eu/r/m1", "manifest_length": 99}
    rows[2] |= {"manifest_path": "s3://eu/r/m3"}
    names = [field["name"] for field in manifest_list_schema(version)["fields"]]
    assert ("first_row_id" in names) == (version == 3)
    assert decode(done) == (decode(data)[0], [{name: row[name] for name in names} for row in rows])
    same = {row["manifest_path"]: LocalizedFile(row["manifest_path"], row["manifest_length"]) for row in rows}
    assert localize_manifest_list(done, URI, same) is None


@pytest.mark.parametrize("ids", [True, False])
@pytest.mark.parametrize("count", ["files_count", "data_files_count"])
def test_manifest_list_of_format_v1(count: str, ids: bool):
    # The names that writers of v1 gave these columns changed; a file without ids is read by either.
    schema = manifest_list_schema(1)
    for field in schema["fields"]:
        field["name"] = field["name"].replace("files_count", count)
        if not ids:
            del field["field-id"]
    rows = [
        {
            name.replace("files_count", count): value
            for name, value in manifest_row(path, added_files_count=added).items()
        }
        for path, added in (("s3://us/m1", 2), ("s3://us/m2", None))
    ]
    data = avro_file(schema, rows, format_version="1")
    assert read_manifest_list(data, URI) == (
        ManifestFile("s3://us/m1", 100, 0, 2**62 + 3, 0, 3),
        ManifestFile("s3://us/m2", 100, 0, 2**62 + 3, 0, None),
    )
    done = localize_manifest_list(
        data, URI, {path: LocalizedFile(path.replace("us", "eu"), 9) for path in ("s3://us/m1", "s3://us/m2")}
    )
    assert done is not None
    assert [(row["manifest_path"], row["manifest_length"]) for row in decode(done)[1]] == [
        ("s3://eu/m1", 9),
        ("s3://eu/m2", 9),
    ]


def test_manifest_list_without_optional_columns():
    schema = manifest_list_schema(1)
    schema["fields"] = [field for field in schema["fields"] if field["field-id"] in (500, 501, 502)]
    data = avro_file(schema, [manifest_row("s3://us/m1")], format_version="1")
    assert read_manifest_list(data, URI) == (ManifestFile("s3://us/m1", 100, 0, None, 0, None),)
    done = localize_manifest_list(data, URI, {"s3://us/m1": LocalizedFile("s3://eu/m1", 99)})
    assert done is not None
    assert decode(done)[1] == [{"manifest_path": "s3://eu/m1", "manifest_length": 99, "partition_spec_id": 0}]
    for number in (500, 501, 502):
        lacking = manifest_list_schema(1)
        lacking["fields"] = [field for field in lacking["fields"] if field["field-id"] != number]
        with pytest.raises(BrokenMetadata, match="required"):
            read_manifest_list(avro_file(lacking, []), URI)


@pytest.mark.parametrize(
    ("changes", "error"),
    [({"key_metadata": b"k"}, Unsupported), ({"content": 2}, Unsupported), ({"manifest_length": -1}, BrokenMetadata)],
)
def test_manifest_list_refusals(changes: dict[str, Any], error: type[Exception]):
    with pytest.raises(error):
        read_manifest_list(avro_file(manifest_list_schema(), [manifest_row("s3://us/m1", **changes)]), URI)


def test_manifest_lists_of_later_formats_are_refused():
    for call in (lambda data: read_manifest_list(data, URI), lambda data: localize_manifest_list(data, URI, {})):
        with pytest.raises(Unsupported, match="version 4") as caught:
            call(avro_file(manifest_list_schema(3), [], format_version="4"))
        assert caught.value.file == URI


def test_manifest_list_needs_every_manifest():
    with pytest.raises(BrokenMetadata, match="s3://us/m1"):
        localize_manifest_list(avro_file(manifest_list_schema(), [manifest_row("s3://us/m1")]), URI, {})
    with pytest.raises(BrokenMetadata):
        read_manifest_list(avro_file(manifest_schema(), [entry("s3://us/a")]), URI)
