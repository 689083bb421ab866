"""Every place of metadata.json where a path hides, in every format version.

These are `location`, properties, manifest lists, inline manifests, the metadata log, statistics, partition statistics
and summaries. Key material names no path, but encryption is refused here too.
"""

import json
from typing import Any

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from sterna.errors import UnregisteredUri, Unsupported
from sterna.iceberg.metadata.table import localize_table_metadata, read_table_metadata
from tests.unit.config import samples
from tests.unit.iceberg.metadata_json import VERSIONS, marked, plain

URI = "s3://us-bucket/t/metadata/00001-a.metadata.json"
ROOT = "s3://eu-bucket/replica"
# The region eu of a registry with s3://us-bucket, s3://eu-bucket and s3://us.
MAPPING = samples.mapping(samples.location("table", "s3://us"))


def localize(text: str) -> bytes:
    paths = {
        uri: f"{ROOT}/_localized/{uri[5:]}"
        for uri in (f"s3://us/t/{name}{n}.avro" for name in ("m", "snap-") for n in range(1, 7))
    }
    return localize_table_metadata(
        text.encode(),
        URI,
        map_content=MAPPING.content_uri,
        map_root=MAPPING.replica_folder,
        map_property=MAPPING.map_property_value,
        manifest_lists=paths,
        manifests=paths,
    )


def source(version: int, **changes: Any) -> str:
    return json.dumps(json.loads(plain(marked(version))) | changes)


def changed(version: int, **changes: Any) -> Any:
    return json.loads(localize(source(version, **changes)))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    ("location", "expected"),
    [
        ("s3://us/t", f"{ROOT}/table/t"),
        ("s3://us/t/", f"{ROOT}/table/t/"),
        ("s3a://us/t", f"{ROOT}/table~s3a/t"),
        ("s3://us", f"{ROOT}/table"),
        ("s3://eu-bucket/t", f"{ROOT}/eu/t"),
        ("s3://us/%20 +#=é/t", f"{ROOT}/table/%20 +#=é/t"),
    ],
)
def test_location_points_below_the_replica_root(version: int, location: str, expected: str):
    assert changed(version, location=location)["location"] == expected


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("slash", ["", "/"])
@pytest.mark.parametrize(
    "key", ["write.data.path", "write.metadata.path", "write.object-storage.path", "write.folder-storage.path"]
)
def test_write_paths_point_below_the_replica_root(version: int, key: str, slash: str):
    for location, place in (("s3://us/x", "table/x"), ("s3://eu-bucket/x", "eu/x"), ("s3://us-bucket", "us")):
        properties = changed(version, properties={key: location + slash, "gc.enabled": "true"})["properties"]
        assert properties == {key: f"{ROOT}/{place}{slash}", "gc.enabled": "false"}


@pytest.mark.parametrize("version", VERSIONS)
def test_any_property_whose_whole_value_is_a_registered_uri_is_mapped(version: int):
    others = {
        "s3://us/key": "v",
        "note": "see s3://us/t",
        "list": "s3://us-old/t,s3://us/t",
        "elsewhere": "s3://other/t",
        "empty": "",
        "s": "s3",
    }
    uris = {"a": "s3://us/t/x", "b.location": "s3n://us/t/", "c": "s3://eu-bucket/x"}
    properties = changed(version, properties=uris | others)["properties"]
    mapped = {"a": f"{ROOT}/table/t/x", "b.location": f"{ROOT}/table~s3n/t/", "c": f"{ROOT}/eu/x"}
    assert properties == mapped | others | {"gc.enabled": "false"}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_location_outside_the_registry_is_refused_and_a_place_for_writers_alone_stays(version: int):
    with pytest.raises(UnregisteredUri) as caught:
        changed(version, location="s3://other/t")
    assert caught.value.file == "s3://other/t"
    properties = {"write.data.path": "s3://other/t", "write.metadata.path": "s3://us/t/m"}
    localized = changed(version, properties=properties)["properties"]
    assert localized == properties | {"write.metadata.path": f"{ROOT}/table/t/m", "gc.enabled": "false"}


# Manifest lists, the metadata log, both kinds of statistics and summaries: together, on bytes, and with what no spec
# version knows around them.
@pytest.mark.parametrize("version", VERSIONS)
def test_these_places_change_and_no_other_byte(version: int):
    text = plain(marked(version)).replace(
        '"metadata-log" : [ ]', '"metadata-log" : [{"timestamp-ms":1,"metadata-file":"s3://gone/0.json"}]'
    )
    text = text.replace('"wap.id"', '"x-origin":"s3://us/t/o","wap.id"')
    expected = (
        text.replace(r'"location":"s3:\/\/us/t"', f'"location":"{ROOT}/table/t"')
        .replace('"s3://us/t/snap-', f'"{ROOT}/_localized/us/t/snap-')
        .replace('"s3://us/t/s.puffin"', f'"{ROOT}/table/t/s.puffin"')
        .replace('"s3://us/t/p.parquet"', f'"{ROOT}/table/t/p.parquet"')
        .replace('"x-origin":"s3://us/t/o"', f'"x-origin":"{ROOT}/table/t/o"')
        .replace('[{"timestamp-ms":1,"metadata-file":"s3://gone/0.json"}]', "[]")
    )
    assert localize(text).decode() == expected
    assert (expected.count(f"{ROOT}/_localized/us/t/snap-"), expected.count(f"{ROOT}/table/t/")) == (6, 5)


# v1 writers made such snapshots, and upgraded tables keep them.
@pytest.mark.parametrize("version", VERSIONS)
def test_inline_manifests_change_and_no_other_byte(version: int):
    text = plain(marked(version, inline=True))
    metadata = read_table_metadata(text.encode(), URI)
    assert {snapshot.manifest_list for snapshot in metadata.snapshots} == {None}
    assert [len(snapshot.manifests) for snapshot in metadata.snapshots] == [0, 1, 2, 3, 4, 5]
    assert metadata.snapshots[2].manifests == ("s3://us/t/m1.avro", "s3://us/t/m2.avro")
    expected = text.replace("s3://us/t/m", f"{ROOT}/_localized/us/t/m").replace(
        r'"location":"s3:\/\/us/t"', f'"location":"{ROOT}/table/t"'
    )
    expected = expected.replace("s3://us/t/s.puffin", f"{ROOT}/table/t/s.puffin").replace(
        "s3://us/t/p.parquet", f"{ROOT}/table/t/p.parquet"
    )
    assert localize(text).decode() == expected
    assert expected.count("_localized") == 15


def test_a_table_may_have_both_kinds_of_snapshots():
    inline, listed = (json.loads(plain(marked(1, inline=inline)))["snapshots"] for inline in (True, False))
    snapshots = changed(1, snapshots=inline[:2] + listed[2:])["snapshots"]
    assert [snapshots[number].get("manifests", snapshots[number].get("manifest-list")) for number in range(3)] == [
        [],
        [f"{ROOT}/_localized/us/t/m1.avro"],
        f"{ROOT}/_localized/us/t/snap-3.avro",
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_keys_hold_a_table_back(version: int):
    def first(name: str, **more: str) -> dict[str, Any]:
        entries = json.loads(plain(marked(version)))[name]
        return {name: [entries[0] | more, *entries[1:]]}

    for changes in (
        {"encryption-keys": [{"key-id": "k", "encrypted-key-metadata": "AA=="}]},
        {"properties": {"encryption.key-id": "k"}},
        first("snapshots", **{"key-id": "k"}),
        first("statistics", **{"key-metadata": "AA=="}),
        first("partition-statistics", **{"key-metadata": "AA=="}),
    ):
        with pytest.raises(Unsupported, match="encryption") as caught:
            changed(version, **changes)
        assert caught.value.file == URI
    assert changed(version, **{"encryption-keys": []})["encryption-keys"] == []


def test_a_newer_format_version_holds_a_table_back():
    with pytest.raises(Unsupported, match="table format version 4") as caught:
        changed(3, **{"format-version": 4, "snapshots": "s3://us/anything"})
    assert caught.value.file == URI


@pytest.mark.parametrize("version", VERSIONS)
def test_pyiceberg_reads_the_localized_table_as_the_source(version: int):
    before, after = (
        TableMetadataUtil.parse_raw(text)
        for text in (plain(marked(version)), localize(plain(marked(version))).decode())
    )
    assert after.location == f"{ROOT}/table/t"
    same = [
        "schemas",
        "partition_specs",
        "sort_orders",
        "refs",
        "snapshot_log",
        "current_snapshot_id",
        *["next_row_id"] * (version == 3),
    ]
    assert {name: getattr(after, name) for name in same} == {name: getattr(before, name) for name in same}
    assert [item.statistics_path for item in after.statistics] == [f"{ROOT}/table/t/s.puffin"] * 3
    own = {"manifest_list"}
    assert [item.model_dump(exclude=own) for item in after.snapshots] == [
        item.model_dump(exclude=own) for item in before.snapshots
    ]
