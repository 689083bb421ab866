"""Manifests and a manifest list that Iceberg's Java library wrote; see `tests/data/manifests/README.md`."""

from pathlib import Path

import pytest

from sterna.iceberg.avro.binary import encode_bytes, encode_long
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.entry import UriMapping
from sterna.iceberg.manifests.manifest import read_entries
from sterna.iceberg.manifests.manifest_list import localize_manifest_list, read_manifest_list
from tests.unit.iceberg.avro_files import decode, parts
from tests.unit.iceberg.manifest_cases import URI, content, localized_both

DATA = Path(__file__).parents[2] / "data" / "manifests"


def read(name: str) -> bytes:
    return (DATA / f"{name}.avro").read_bytes()


@pytest.mark.parametrize(
    ("name", "kinds"), [("v3-data", [(1, 0, "PARQUET")]), ("v3-deletes", [(0, 1, "PUFFIN"), (2, 1, "PUFFIN")])]
)
def test_manifests_of_v3_change_their_paths_and_the_length_alone(name: str, kinds: list[tuple[int, int, str]]):
    data = read(name)
    entries = read_entries(data, URI).to_pylist()
    assert [(row["status"], row["content"], row["file_format"]) for row in entries] == kinds
    deletes = {row["file_path"]: LocalizedFile(content(row["file_path"]), 99) for row in entries if row["content"] == 1}
    done = localized_both(data, UriMapping(content, deletes, content, content))
    assert done is not None

    header, [(count, payload)] = parts(data)
    files = [record["data_file"] for record in decode(data)[1]]
    for path in {path for file in files for path in (file["file_path"], file["referenced_data_file"]) if path}:
        payload = payload.replace(encode_bytes(path.encode()), encode_bytes(content(path).encode()))
    if deletes:  # the live entry comes first, and the DELETED one keeps its length
        payload = payload.replace(encode_long(764), encode_long(99), 1)
    assert parts(done) == (header, [(count, payload)])
    assert b"s3://us/" not in payload


def test_position_deletes_of_v2():
    data = read("v2-deletes")
    gone, lives = (row["file_path"] for row in read_entries(data, URI).to_pylist())
    done = localized_both(data, UriMapping(content, {lives: LocalizedFile(content(lives), 99)}, content, content))
    assert done is not None
    expected = decode(data)[1]
    for record in expected:
        file = record["data_file"]
        file["file_path"] = content(file["file_path"])
        for bound in (file["lower_bounds"][0], file["upper_bounds"][0]):
            bound["value"] = content(bound["value"].decode()).encode()
    expected[1]["data_file"] |= {"file_size_in_bytes": 99, "column_sizes": None, "split_offsets": None}
    assert (expected[0]["data_file"]["file_path"], decode(done)) == (content(gone), (decode(data)[0], expected))


def test_manifest_list_of_v3():
    data = read("v3-list")
    manifests = read_manifest_list(data, URI)
    assert [(item.content, item.length, item.live_files) for item in manifests] == [
        (0, 8134, 1),
        (0, 8132, 1),
        (1, 8137, 1),
        (1, 8193, 1),
    ]
    done = localize_manifest_list(
        data, URI, {item.path: LocalizedFile(content(item.path), item.length) for item in manifests}
    )
    assert done is not None
    header, [(count, payload)] = parts(data)
    for item in manifests:
        payload = payload.replace(encode_bytes(item.path.encode()), encode_bytes(content(item.path).encode()))
    assert parts(done) == (header, [(count, payload)])
