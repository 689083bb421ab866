"""How verify reads what it judges.

The same of every codec and schema, of every format of deletes, and URIs like the mapping does.
"""

from __future__ import annotations

import copy
import json
from typing import Any

import cramjam
import pyarrow as pa
import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.errors import BrokenMetadata, Unsupported
from sterna.replication.verify.avro import read_list, read_manifest
from sterna.replication.verify.locations import Places
from sterna.replication.verify.manifests import foreign_bounds
from sterna.replication.verify.puffin import read_puffin
from sterna.replication.verify.rows import is_unsorted, read_rows
from tests.support.replica_paths import localized_path
from tests.unit.iceberg import avro_files
from tests.unit.iceberg.avro_files import (
    entry,
    manifest_list_schema,
    manifest_row,
    manifest_schema,
    path_bounds,
    vector,
)
from tests.unit.verify.tables import delete_rows, puffin

ROOT = "s3://eu-lake/replica"
PATH = f"{ROOT}/us-lake/t/é %20=+#.parquet"
RECORDS = [
    entry(PATH),
    entry("s3://eu-lake/t/b", status=2, content=1, referenced_data_file=PATH, **path_bounds(PATH)),
    entry("s3://eu-lake/t/c", content=2, status=0),
]


def location(id: str, prefix: str, region: str) -> dict[str, Any]:
    return {"id": id, "prefix": prefix, "region": region, "remote": {"type": "s3"}}


@pytest.fixture
def places() -> Places:
    regions = [
        {"name": name, "replica_root": f"s3://{name}-lake/replica", "catalog": {"read": "http://127.0.0.1:1/api/v2"}}
        for name in ("us", "eu")
    ]
    locations = [
        location("us-lake", "s3://us-lake", "us"),
        location("eu-lake", "s3://eu-lake", "eu"),
        location("us-part", "s3://eu-lake/of-us", "us"),
        location("us-other", "s3a://eu-lake/other", "us"),
    ]
    registry = Registry.model_validate({"regions": regions, "locations": locations})
    return Places(Mapping(registry, registry.region("eu")))


def wrapped(schema: dict[str, Any]) -> dict[str, Any]:
    """The same schema with the file in a union, which the walk does not take down."""
    changed = copy.deepcopy(schema)
    file = next(item for item in changed["fields"] if item["name"] == "data_file")
    file["type"] = ["null", file["type"]]
    return changed


@pytest.mark.parametrize("codec", avro_files.CODECS)
@pytest.mark.parametrize("odd", [False, True])
def test_a_manifest_in_every_codec_and_of_an_odd_schema(codec: str, odd: bool):
    schema = wrapped(manifest_schema()) if odd else manifest_schema()
    header, rows = read_manifest(avro_files.avro_file(schema, RECORDS, codec, content="deletes"), "m")
    assert header["content"] == b"deletes"
    assert rows.column("file_path").to_pylist() == [PATH, "s3://eu-lake/t/b", "s3://eu-lake/t/c"]
    assert rows.column("status").to_pylist() == [1, 2, 0]
    assert rows.column("content").to_pylist() == [0, 1, 2]
    assert rows.column("referenced_data_file").to_pylist() == [None, PATH, None]
    assert (
        rows.column("lower_bounds").to_pylist()
        == rows.column("upper_bounds").to_pylist()
        == [None, PATH.encode(), None]
    )
    assert rows.column("record_count").to_pylist() == [10, 10, 10]
    assert rows.column("content_offset").to_pylist() == [None, None, None]


@pytest.mark.parametrize("odd", [False, True])
def test_an_empty_reference_is_none(odd: bool):
    schema = wrapped(manifest_schema(3)) if odd else manifest_schema(3)
    records = [entry(PATH, version=3, referenced_data_file=""), entry(PATH, version=3, referenced_data_file=PATH)]
    _, rows = read_manifest(avro_files.avro_file(schema, records), "m")
    assert rows.column("referenced_data_file").to_pylist() == [None, PATH]


def test_a_manifest_of_format_1_and_one_of_vectors():
    _, rows = read_manifest(avro_files.avro_file(manifest_schema(1), [entry(PATH, version=1)]), "m")
    assert [rows.column(name).to_pylist() for name in ("content", "sequence_number")] == [[None], [None]]
    _, rows = read_manifest(avro_files.avro_file(manifest_schema(3), [vector("s3://eu-lake/p", PATH, 4)]), "m")
    assert rows.column("content_offset").to_pylist() == [4]
    assert rows.column("file_format").to_pylist() == ["PUFFIN"]


@pytest.mark.parametrize("version", [1, 2])
def test_a_manifest_list(version: int):
    _, rows = read_list(avro_files.avro_file(manifest_list_schema(version), [manifest_row("s3://eu-lake/m")]), "l")
    row = rows.to_pylist()[0]
    assert (row["manifest_path"], row["manifest_length"], row["added_files_count"]) == ("s3://eu-lake/m", 100, 0)
    assert row["sequence_number"] == (1 if version == 2 else None)


@pytest.mark.parametrize(
    "data", [b"", b"Obj\x01", avro_files.avro_file(manifest_list_schema(), [manifest_row("x")])[:-1]]
)
def test_what_is_no_list_or_manifest(data: bytes):
    for read in (read_list, read_manifest):
        with pytest.raises(BrokenMetadata):
            read(data, "x")


def test_a_list_is_no_manifest():
    with pytest.raises(BrokenMetadata):
        read_manifest(avro_files.avro_file(manifest_list_schema(), [manifest_row("x")]), "x")


@pytest.mark.parametrize("kind", ["parquet", "orc", "avro"])
def test_position_deletes_of_every_format(kind: str):
    rows = [("b", 2), ("b", 3), ("a", 1)]
    table = read_rows(delete_rows(rows, kind), kind.upper(), "d")
    assert list(zip(table.column("file_path").to_pylist(), table.column("pos").to_pylist(), strict=True)) == rows
    assert is_unsorted(table)
    assert not is_unsorted(read_rows(delete_rows(sorted(rows), kind), kind.upper(), "d"))
    assert not is_unsorted(read_rows(delete_rows([], kind), kind.upper(), "d"))
    with pytest.raises(BrokenMetadata):
        read_rows(b"x" * 100, kind.upper(), "d")


def test_an_unknown_format_of_position_deletes():
    with pytest.raises(Unsupported):
        read_rows(b"", "LANCE", "d")


def test_javas_order_of_strings_is_an_order_too():
    # By UTF-16 units the second comes first, by bytes the first.
    assert not is_unsorted(read_rows(delete_rows([("\uffee", 1), ("\U0001f600", 1)]), "PARQUET", "d"))
    assert not is_unsorted(read_rows(delete_rows([("\U0001f600", 1), ("\uffee", 1)]), "PARQUET", "d"))
    assert is_unsorted(read_rows(delete_rows([("b", 1), ("a", 1), ("\U0001f600", 1)]), "PARQUET", "d"))


def test_a_puffin_footer_with_lz4_and_broken_ones():
    data = puffin(["a", "b"])
    plain = read_puffin(data, "p")
    payload = data[plain.footer_start + 4 : -12]
    packed = bytes(cramjam.lz4.compress(payload))
    zipped = data[: plain.footer_start + 4] + packed + len(packed).to_bytes(4, "little") + b"\x01\0\0\0PFA1"
    assert read_puffin(zipped, "p") == plain
    assert [blob["properties"]["referenced-data-file"] for blob in plain.vectors] == ["a", "b"]

    def with_blob(**fields):
        footer = json.loads(payload)
        footer["blobs"][0] |= fields
        moved = json.dumps(footer).encode()
        return data[: plain.footer_start + 4] + moved + len(moved).to_bytes(4, "little") + b"\0\0\0\0PFA1"

    assert read_puffin(with_blob(length=20), "p") == plain
    for broken in (
        b"",
        data[:-1],
        data[1:],
        with_blob(length=10**6),
        with_blob(offset=4.0),
        with_blob(length=20.0),
        with_blob(offset=True),
        data.replace(b"{", b"["),
        zipped.replace(packed, b"\0" * len(packed)),
    ):
        with pytest.raises(BrokenMetadata):
            read_puffin(broken, "p")


LOCAL = [
    f"{ROOT}/us-lake/x",
    f"{ROOT}/us-lake/a%20b",
    "s3://eu-lake/x",
    "s3a://eu-lake/x",
    "s3://eu-lake/of-us-not/x",
    f"{ROOT}/a:b/c",
]
FOREIGN = [
    "s3://us-lake/x",
    "s3n://us-lake/x",
    "s3://eu-lake/of-us/x",
    "s3a://eu-lake/other/x",
    "s3://eu-lake-old/x",
    "gs://eu-lake/x",
    "",
    "x",
    "s3://us-lake",
    *(
        f"{ROOT}/us-lake/{odd}"
        for odd in ("a//b", "../x", "a/..", "%2e%2E/x", "a%2F..%2fb", "a?b", "a\nb", "x\x7f", "./a", "a:/", "a://b")
    ),
]


def test_many_uris_are_judged_as_one_is(places: Places):
    uris = pa.chunked_array([[*LOCAL, None], FOREIGN * 2])
    assert sorted(places.select_foreign(uris)) == sorted(FOREIGN)
    # A folder is a URI too, where one stands.
    assert [uri for uri in LOCAL if places.is_local(uri)] == LOCAL
    assert [uri for uri in FOREIGN if places.is_local(uri)] == []


def test_only_texts_in_a_registered_place_are_foreign_uris(places: Places):
    texts = [
        "s3://us-lake/x",
        "s3://us-lake",
        "s3://us-lake/x/",
        "s3://eu-lake/x",
        "https://docs",
        "us-lake",
        "s3://eu-lake/",
    ]
    assert [text for text in texts if places.is_foreign(text)] == texts[:3]


def test_a_stray_is_what_this_region_reads_elsewhere(places: Places):
    good = [f"{ROOT}/us-lake/x", "s3://eu-lake/x", f"{ROOT}/us-part/x", f"{ROOT}/us-lake~s3a/x", "s3a://eu-lake/x"]
    bad = [
        f"{ROOT}/{localized_path('us-lake/x')}",
        f"{ROOT}/eu-lake/x",
        f"{ROOT}/nobody/x",
        f"{ROOT.replace('s3', 's3a', 1)}/us-lake/x",
    ]
    assert [path for path in good if places.is_stray(path)] == []
    assert [path for path in bad if not places.is_stray(path)] == []


@pytest.mark.parametrize(
    ("lower", "upper", "foreign"),
    [
        ("s3://eu-lake/a", "s3://eu-lake/a", []),
        ("s3://eu-lake/a", None, []),
        ("s3://us-lake/a", "s3://us-lake/a", ["s3://us-lake/a"]),
        ("s3://us-lake/a", "s3://us-lake/b", ["s3://us-lake/a", "s3://us-lake/b"]),
        ("s3://eu-l", "s3://eu-m", []),
        ("nowhere", "nowhere", ["nowhere"]),
        (None, None, []),
    ],
)
def test_bounds_are_whole_uris_or_cut_ones(places: Places, lower: str | None, upper: str | None, foreign: list[str]):
    rows = pa.table(
        {
            name: pa.array([value and value.encode()], pa.binary())
            for name, value in (("lower_bounds", lower), ("upper_bounds", upper))
        }
    )
    assert foreign_bounds(rows, places) == foreign
