"""metadata.json: read, and localized by tokens."""

import gzip
import itertools
import json
from typing import Any

import pytest

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, Unsupported
from sterna.iceberg.metadata.table import StatisticsFile, localize_table_metadata, read_table_metadata

URI = "s3://us/t/metadata/00001-a.metadata.json"
GZIP_ENDINGS = (".gz.metadata.json", ".metadata.json.gz")
LISTS = {
    "s3://us/t/metadata/snap-1.avro": "s3://eu/r/us/t/metadata/snap-1.avro",
    "s3://eu/t/snap-2.avro": "s3://eu/t/snap-2.avro",
}

# Odd on purpose: spacing, escapes, numbers that a re-encoding would change, fields that nobody knows.
TABLE = r"""{
  "format-version" : 2, "table-uuid":"f0-1",
  "location" : "s3:\/\/us\/t", "last-sequence-number":3, "last-updated-ms": 1700000000000, "x-ratio": 1.50e+3,
  "x": {"location": "s3://us/t", "deep": [[{}]]},
  "schemas":[{"type":"struct","fields":[{"id":1,"name":"\u00e9\ud83d\ude00 s3://us/t","required":false,"type":"string"}]}],
  "properties" : {"write.data.path":"s3://us/t/data", "owner":"me",
    "custom":"s3:\/\/u\u0073/other", "note":"see s3://us/t", "gc.enabled":"true"},
  "current-snapshot-id": 2,
  "refs" : {"main":{"snapshot-id":2,"type":"branch"},"audit":{"snapshot-id":1,"type":"tag"}},
  "snapshots" : [
    {"snapshot-id":1,"timestamp-ms":1,"summary":{"operation":"append","origin":"s3://us/x","wap.id":"w1"},"manifest-list":"s3://us/t/metadata/snap-1.avro","schema-id":0},
    {"snapshot-id":2,"parent-snapshot-id":1,"sequence-number":2,"timestamp-ms":2,"manifest-list":"s3://eu/t/snap-2.avro","x-new":[1,2]}
  ],
  "statistics":[{"snapshot-id":1,"statistics-path":"s3://us/t/s.puffin","file-size-in-bytes":10,"file-footer-size-in-bytes":1,"blob-metadata":[]}],
  "partition-statistics":[{"snapshot-id":1,"statistics-path":"s3://eu/t/p.parquet","file-size-in-bytes":20}],
  "snapshot-log":[{"timestamp-ms":1,"snapshot-id":1},{"timestamp-ms":2,"snapshot-id":2}],
  "metadata-log" : [ {"timestamp-ms":1,"metadata-file":"s3://us/t/metadata/00000.metadata.json"} ]
}
"""


def below(uri: str) -> str:
    return uri if uri.startswith("s3://eu/r/") else uri.replace("s3://us", "s3://eu/r/us", 1)


def map_property_value(value: str) -> str | None:
    return below(value) if value.startswith(("s3://us/", "s3://eu/")) else None


def localize(data: bytes | str, uri: str = URI) -> bytes:
    data = data.encode() if isinstance(data, str) else data
    return localize_table_metadata(
        data,
        uri,
        map_content=below,
        map_root=lambda path: "s3://eu/r" + path[4:],
        map_property=map_property_value,
        manifest_lists=LISTS,
    )


def table(**changes: Any) -> str:
    return json.dumps({key: value for key, value in (json.loads(TABLE) | changes).items() if value != "drop"})


def test_reads_what_names_other_files():
    metadata = read_table_metadata(TABLE.encode(), URI)
    assert (metadata.format_version, metadata.uuid, metadata.location, metadata.current_snapshot_id) == (
        2,
        "f0-1",
        "s3://us/t",
        2,
    )
    assert [snapshot.manifest_list for snapshot in metadata.snapshots] == list(LISTS)
    assert [(snapshot.parent_id, snapshot.schema_id) for snapshot in metadata.snapshots] == [(None, 0), (1, None)]
    assert metadata.statistics == (
        StatisticsFile("s3://us/t/s.puffin", 10, 1),
        StatisticsFile("s3://eu/t/p.parquet", 20, 1),
    )
    assert metadata.properties["custom"] == "s3://us/other"
    assert (metadata.refs, metadata.snapshot_log) == ({"main": 2, "audit": 1}, (1, 2))
    assert [snapshot.wap_id for snapshot in metadata.snapshots] == ["w1", ""]


def test_changes_the_known_places_and_no_other_character():
    expected = (
        TABLE.replace(r'"location" : "s3:\/\/us\/t"', '"location" : "s3://eu/r/us/t"')
        .replace('"write.data.path":"s3://us/t/data"', '"write.data.path":"s3://eu/r/us/t/data"')
        .replace(r'"custom":"s3:\/\/u\u0073/other"', '"custom":"s3://eu/r/us/other"')
        .replace('"gc.enabled":"true"', '"gc.enabled":"false"')
        .replace('"origin":"s3://us/x"', '"origin":"s3://eu/r/us/x"')
        .replace(
            '"manifest-list":"s3://us/t/metadata/snap-1.avro"', '"manifest-list":"s3://eu/r/us/t/metadata/snap-1.avro"'
        )
        .replace('"s3://us/t/s.puffin"', '"s3://eu/r/us/t/s.puffin"')
        .replace('[ {"timestamp-ms":1,"metadata-file":"s3://us/t/metadata/00000.metadata.json"} ]', "[]")
    )
    assert localize(TABLE).decode() == expected


def test_local_tables_write_below_the_replica_root_too():
    local = json.loads(
        localize(table(location="s3://eu/t", properties={"write.metadata.path": "s3://eu/m", "p": "s3://eu/m"}))
    )
    assert local["location"] == "s3://eu/r/eu/t"
    assert local["properties"]["write.metadata.path"] == "s3://eu/r/eu/m"


@pytest.mark.parametrize(
    "properties", ["drop", None, {}, {"a": "b"}, {"gc.enabled": True}, {"gc.enabled": "false", "z": "1"}]
)
def test_gc_is_always_disabled(properties: Any):
    done = json.loads(localize(table(properties=properties)))
    others = properties if isinstance(properties, dict) else {}
    assert done["properties"] == others | {"gc.enabled": "false"}
    assert done.keys() >= {"location", "snapshots"}


@pytest.mark.parametrize("ending", GZIP_ENDINGS)
def test_gzip_stays_gzip_and_is_deterministic(ending: str):
    data = gzip.compress(TABLE.encode(), mtime=99)
    uri = f"s3://us/t/metadata/00001-a{ending}"
    assert localize(data, uri) == localize(gzip.compress(TABLE.encode(), mtime=1), uri)
    assert gzip.decompress(localize(data, uri)) == localize(TABLE)
    assert read_table_metadata(data, uri) == read_table_metadata(TABLE.encode(), URI)


def test_format_v1_without_uuid_or_snapshots():
    data = json.dumps(
        {"format-version": 1, "location": "s3://us/t", "last-updated-ms": 1, "current-snapshot-id": -1}
    ).encode()
    metadata = read_table_metadata(data, URI)
    assert (metadata.uuid, metadata.current_snapshot_id, metadata.snapshots) == (None, None, ())
    assert json.loads(localize(data))["properties"] == {"gc.enabled": "false"}


SNAPSHOT = {"snapshot-id": 2, "timestamp-ms": 1, "manifest-list": "s3://eu/t/snap-2.avro"}
STATISTICS = {"snapshot-id": 2, "statistics-path": "s3://us/p", "file-size-in-bytes": 1}
NO_REFS: dict[str, Any] = {"refs": "drop"}


@pytest.mark.parametrize("refs", ["drop", None])
@pytest.mark.parametrize(("current", "expected"), [(2, {"main": 2}), (-1, {}), (None, {}), ("drop", {})])
def test_the_current_snapshot_is_main_where_the_file_has_no_refs(refs: Any, current: Any, expected: dict[str, int]):
    data = table(**{"refs": refs, "current-snapshot-id": current, "snapshot-log": None}).encode()
    metadata = read_table_metadata(data, URI)
    assert (metadata.refs, metadata.snapshot_log) == (expected, ())


@pytest.mark.parametrize(
    "changes",
    [
        {"format-version": 4},
        {"encryption-keys": [{"key-id": "k"}]},
        {"properties": {"encryption.key-id": "k"}},
        {"snapshots": [SNAPSHOT | {"key-id": "k"}], **NO_REFS},
        {"statistics": [STATISTICS | {"key-metadata": "AA=="}]},
        {"partition-statistics": [STATISTICS | {"key-metadata": "AA=="}]},
    ],
)
def test_unsupported_features_are_refused(changes: dict[str, Any]):
    for call in (lambda data: read_table_metadata(data, URI), localize):
        with pytest.raises(Unsupported) as caught:
            call(table(**changes).encode())
        assert caught.value.file == URI


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        TABLE.encode()[:500],
        TABLE.encode() + b"{}",
        b"\xef\xbb\xbf" + TABLE.encode(),
        TABLE.replace("owner", "own\xff").encode("latin-1"),
        TABLE.replace("1.50e+3", "NaN").encode(),
        TABLE.replace('"x-ratio"', '"loc\\u0061tion"').encode(),
        TABLE.replace('"owner"', '"custom"').encode(),
        TABLE.replace('"wap.id"', '"oper\\u0061tion"').encode(),
        TABLE.replace('"origin":"s3://us/x","wap.id"', '"operation"').encode(),
        table(location=7).encode(),
        table(location="drop").encode(),
        table(properties=[]).encode(),
        table(snapshots={}).encode(),
        table(snapshots=[1]).encode(),
        table(snapshots=[SNAPSHOT | {"manifest-list": None}], **NO_REFS).encode(),
        table(snapshots=[SNAPSHOT | {"manifests": []}], **NO_REFS).encode(),
        table(snapshots=[SNAPSHOT | {"manifest-list": None, "manifests": "s3://us/m.avro"}], **NO_REFS).encode(),
        table(snapshots=[SNAPSHOT | {"manifest-list": None, "manifests": [None]}], **NO_REFS).encode(),
        table(
            snapshots=[SNAPSHOT | {"manifest-list": None, "manifests": ["s3://us/unknown.avro"]}], **NO_REFS
        ).encode(),
        table(snapshots=[SNAPSHOT | {"manifest-list": "s3://us/unknown.avro"}], **NO_REFS).encode(),
        table(snapshots=[SNAPSHOT | {"summary": "x"}], **NO_REFS).encode(),
        table(**{"current-snapshot-id": 3}, **NO_REFS).encode(),
        table(refs={"tag": {"snapshot-id": 3}}).encode(),
        table(refs={"tag": {}}).encode(),
        table(refs=[]).encode(),
        table(statistics=[STATISTICS | {"snapshot-id": None}]).encode(),
        table(**{"snapshot-log": [{"timestamp-ms": 1}]}).encode(),
        table(**{"snapshot-log": [2]}).encode(),
        table(**{"snapshot-log": {"snapshot-id": 2}}).encode(),
        table(**{"format-version": True}).encode(),
        table(**{"format-version": 0}).encode(),
        table(**{"last-updated-ms": "1"}).encode(),
        table(properties={"write.data.path": 1}).encode(),
        ('{"x":' + "[" * 100_000 + "]" * 100_000 + "}").encode(),
        ('{"x":' + "9" * 5_000 + "}").encode(),
        gzip.compress(TABLE.encode())[:-9],
        b"\x1f\x8bgarbage",
    ],
    ids=itertools.count(),
)
def test_broken_files_are_named(data: bytes):
    with pytest.raises(BrokenMetadata) as caught:
        localize(data)
    assert caught.value.file == URI


@pytest.mark.parametrize("ending", GZIP_ENDINGS)
def test_a_gzip_name_without_gzip_is_broken(ending: str):
    with pytest.raises(BrokenMetadata):
        read_table_metadata(TABLE.encode(), f"s3://us/a{ending}")


@pytest.mark.parametrize(("setting", "limit"), [("json_bytes", 1 << 19), ("ratio", 20)])
def test_gzip_bomb(setting: str, limit: int):
    with pytest.raises(OverLimit, match=rf"over the limit of {limit} .limits\.{setting} ") as caught:
        read_table_metadata(gzip.compress(b" " * (2 << 20)), URI, Limits(**{setting: limit}))
    assert caught.value.file == URI
