"""Delete manifests: position deletes, deletion vectors, equality deletes, and entries of deletes that are gone."""

from typing import Any

import pytest

from sterna.errors import BrokenMetadata
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.entry import UriMapping
from sterna.iceberg.manifests.manifest import read_entries
from tests.unit.iceberg.avro_files import (
    PATH_COLUMN,
    avro_file,
    data_file_fields,
    decode,
    entry,
    manifest_schema,
    path_bounds,
    vector,
)
from tests.unit.iceberg.manifest_cases import URI, content, localized_both, mapped, one

FILE = "s3://us/t/1.parquet"
HERE = "s3://eu/r/us/t/1.parquet"
DELETE = "s3://us/t/data/d1.parquet"
LOCAL = "s3://eu/t/data/d2.parquet"
PUFFIN = "s3://us/t/data/v.puffin"
MAPPING = UriMapping(
    content,
    {
        DELETE: LocalizedFile("s3://eu/r/us/t/data/d1.parquet", 555),
        LOCAL: LocalizedFile(LOCAL, 1000),
        PUFFIN: LocalizedFile("s3://eu/r/us/t/data/v.puffin", 777),
    },
    mapped,
    content,
)
UNOPENED = UriMapping(content, {}, lambda uri: uri, content)


@pytest.mark.parametrize("name", ["PARQUET", "orc", "AVRO"])
@pytest.mark.parametrize("version", [2, 3])
def test_rewritten_position_delete(version: int, name: str):
    common: dict[str, Any] = {"content": 1, "version": version, "file_format": name}
    file = one(entry(DELETE, referenced_data_file=FILE, **common, **path_bounds(FILE)), MAPPING, version)
    layout = {"column_sizes": None, "split_offsets": None}
    path = MAPPING.deletes[DELETE].uri
    assert (
        file == entry(path, size=555, referenced_data_file=HERE, **common, **path_bounds(HERE), **layout)["data_file"]
    )


@pytest.mark.parametrize("referenced", [None, FILE])
@pytest.mark.parametrize(
    "bounds",
    [
        path_bounds("s3://us/a", "s3://us/b"),
        path_bounds("s3://us/t/1.parq", "s3://us/t/1.parr"),
        path_bounds("s3", "s4", extra=False),
        {"lower_bounds": path_bounds(FILE)["lower_bounds"], "upper_bounds": None},
        {"lower_bounds": [], "upper_bounds": path_bounds(FILE)["upper_bounds"]},
        {"lower_bounds": None, "upper_bounds": None},
        {"lower_bounds": [], "upper_bounds": []},
    ],
)
def test_bounds_that_are_no_whole_path_are_dropped(bounds: dict[str, Any], referenced: str | None):
    file = one(entry(DELETE, content=1, referenced_data_file=referenced, **bounds), MAPPING)
    assert file is not None
    assert file["referenced_data_file"] == (referenced and HERE)
    for name, items in bounds.items():
        assert file[name] == (None if items is None else [item for item in items if item["key"] != PATH_COLUMN])


@pytest.mark.parametrize(
    "bounds",
    [
        path_bounds("s3://eu/a", "s3://eu/b"),
        path_bounds("s3", "s4"),
        path_bounds("s3://eu/a"),
        path_bounds("s3") | {"upper_bounds": None},
    ],
)
@pytest.mark.parametrize("status", [0, 1, 2])
def test_an_entry_whose_delete_file_stays_keeps_its_bounds_and_layout(bounds: dict[str, Any], status: int):
    mapping = UNOPENED if status == 2 else MAPPING
    assert one(entry(LOCAL, status=status, content=1, **bounds), mapping) is None


def test_a_path_bound_that_stands_twice():
    twice = [{"key": PATH_COLUMN, "value": b"s3://us/x"}, *path_bounds(FILE)["lower_bounds"]]
    file = one(entry(DELETE, content=1, lower_bounds=twice, upper_bounds=path_bounds(FILE)["upper_bounds"]), MAPPING)
    assert file is not None
    assert [item["value"] for item in file["lower_bounds"] if item["key"] == PATH_COLUMN] == [HERE.encode()] * 2


def test_a_bound_that_is_no_text():
    bound = [{"key": PATH_COLUMN, "value": b"\xff"}]
    with pytest.raises(BrokenMetadata, match="UTF-8"):
        one(entry(DELETE, content=1, lower_bounds=bound, upper_bounds=bound), MAPPING)


@pytest.mark.parametrize("odd", [False, True])
def test_layout_in_a_schema_without_nulls(odd: bool):
    schema = manifest_schema()
    for field in data_file_fields(schema):
        if field["name"] in ("column_sizes", "split_offsets"):
            field |= {"type": field["type"][1], "default": []}
        if odd and field["name"] == "file_size_in_bytes":  # a shape for the general path
            field["type"] = ["string", "long"]
    done = localized_both(avro_file(schema, [entry(DELETE, content=1)]), MAPPING)
    assert done is not None
    expected = entry(MAPPING.deletes[DELETE].uri, content=1, size=555, column_sizes=[], split_offsets=[])
    assert decode(done)[1] == [expected]


def test_deletion_vectors_of_one_puffin():
    files = [f"s3://us/t/{number}.parquet" for number in range(3)] + ["s3://eu/t/3.parquet"]
    records = [vector(PUFFIN, file, 4 + 44 * number, status=number % 2) for number, file in enumerate(files)]
    data = avro_file(manifest_schema(3), records, block=2, content="deletes", format_version="3")
    done = localized_both(data, MAPPING)
    assert done is not None
    for record in records:
        file = record["data_file"]
        file |= {"file_path": MAPPING.deletes[PUFFIN].uri, "file_size_in_bytes": 777}
        file["referenced_data_file"] = content(file["referenced_data_file"])
    assert decode(done) == (decode(data)[0], records)
    row = {"status": 0, "content": 1, "file_path": PUFFIN, "file_format": "PUFFIN", "file_size": 1000}
    assert read_entries(data, URI).to_pylist() == [row | {"status": number % 2} for number in range(4)]


def test_what_else_a_deletion_vector_says_stays():
    layout = {"column_sizes": [{"key": 1, "value": 2}], "split_offsets": [4]}
    file = one(vector(PUFFIN, FILE, **layout, **path_bounds(FILE)), MAPPING, 3)
    expected = vector(MAPPING.deletes[PUFFIN].uri, HERE, size=777, **layout, **path_bounds(HERE))
    assert file == expected["data_file"]
    lone = one(vector(PUFFIN, FILE, **path_bounds("s3://us/a", "s3://us/b", extra=False)), MAPPING, 3)
    assert lone is not None
    assert (lone["lower_bounds"], lone["upper_bounds"]) == ([], [])


def test_a_local_puffin_keeps_its_uri_and_a_local_manifest_too():
    stays = UriMapping(content, {"s3://eu/v.puffin": LocalizedFile("s3://eu/v.puffin", 1000)}, mapped, content)
    assert one(vector("s3://eu/v.puffin", "s3://eu/t/1.parquet"), stays, 3) is None


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"file_format": "LATER"},
        {"key_metadata": b"k"},
        {"file_format": "PUFFIN"},
        {"content_offset": 4},
        {"referenced_data_file": None},
    ],
)
def test_a_deleted_delete_is_mapped_and_neither_looked_up_nor_refused(changes: dict[str, Any]):
    changes = {"file_format": "PARQUET", "referenced_data_file": "s3://us/t/1.parquet"} | changes
    old = {"content": 1, "version": 3, "status": 2, **changes}
    file = one(entry("s3://eu/gone.parquet", **old, **path_bounds(FILE)), UriMapping(content, {}, mapped, content), 3)
    old["referenced_data_file"] = changes["referenced_data_file"] and HERE
    assert file == entry("s3://eu/r/eu/gone.parquet", **old, **path_bounds(HERE))["data_file"]


def test_a_deleted_deletion_vector_in_a_puffin_that_lives_on():
    records = [vector(PUFFIN, FILE), vector(PUFFIN, "s3://us/t/2.parquet", 48, status=2)]
    done = localized_both(avro_file(manifest_schema(3), records, format_version="3"), MAPPING)
    assert done is not None
    path = MAPPING.deletes[PUFFIN].uri
    assert decode(done)[1] == [vector(path, HERE, size=777), vector(path, "s3://eu/r/us/t/2.parquet", 48, status=2)]


def test_deleted_deletes_that_stay_rewrite_nothing():
    records = [
        entry(
            "s3://eu/gone.orc",
            status=2,
            content=1,
            version=3,
            file_format="ORC",
            **path_bounds("s3://us/a", "s3://us/b"),
        ),
        vector("s3://us/gone.puffin", "s3://eu/t/1.parquet", status=2),
        entry("s3://eu/t/1.parquet", version=3),
    ]
    assert localized_both(avro_file(manifest_schema(3), records, format_version="3"), UNOPENED) is None


def test_equality_deletes_are_content_files():
    file = one(entry("s3://us/e.parquet", content=2, **path_bounds("s3://us/a", "s3://us/b")), MAPPING)
    assert file == entry("s3://eu/r/us/e.parquet", content=2, **path_bounds("s3://us/a", "s3://us/b"))["data_file"]


@pytest.mark.parametrize(
    "record", [entry("s3://us/d9.parquet", content=1, version=3), vector("s3://us/d9.puffin", FILE)]
)
def test_an_unlisted_delete_is_an_error(record: dict[str, Any]):
    with pytest.raises(BrokenMetadata, match=r"d9\."):
        one(record, MAPPING, 3)
