"""Crafted and damaged Avro: an error of the tree that names the file, in bounded memory, and nothing else."""

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, TableError, Unsupported
from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.files import LocalizedFile
from sterna.iceberg.manifests.manifest import localize_manifest, read_entries
from sterna.iceberg.manifests.manifest_list import read_manifest_list
from sterna.replication.verify.avro import read_manifest
from tests.unit.iceberg.avro_files import (
    CODECS,
    SYNC,
    avro_file,
    container,
    data_file_fields,
    encode,
    entry,
    manifest_schema,
    path_bounds,
    vector,
)

URI = "s3://us/m.avro"
GOOD = avro_file(
    manifest_schema(),
    [entry(f"s3://us/{number}", content=number % 3, **path_bounds("s3://us/a")) for number in range(6)],
    "null",
)
BODY = GOOD.index(SYNC) + 16


class Everything(dict[str, LocalizedFile]):
    """Every position delete file has been localized."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> LocalizedFile:
        return LocalizedFile(key + "x", 1)


def calls() -> list[Callable[[bytes], object]]:
    def localize(data: bytes) -> object:
        return localize_manifest(
            data,
            URI,
            map_content=lambda uri: uri + "x",
            deletes=Everything(),
            map_deleted_deletes=lambda uri: uri + "y",
        )

    return [localize, lambda data: read_entries(data, URI), lambda data: read_manifest_list(data, URI)]


def refused(data: bytes, error: type[TableError] = BrokenMetadata) -> None:
    for call in calls()[:2]:
        with pytest.raises(error) as caught:
            call(data)
        assert caught.value.file == URI


@pytest.mark.parametrize("codec", CODECS)
def test_any_damage_gives_an_error_of_the_tree_or_a_result(codec: str):
    records = [
        entry(f"s3://us/{number}", content=number % 3, version=3, **path_bounds("s3://us/a")) for number in range(5)
    ]
    good = avro_file(manifest_schema(3), [*records, vector("s3://us/5", "s3://us/0")], codec, format_version="3")
    rng = random.Random(1)
    for _ in range(150):
        damaged = bytearray(good)
        for _ in range(rng.randint(1, 3)):
            damaged[rng.randrange(len(damaged))] = rng.choice((0, 1, 0x7F, 0x80, 0xFF, rng.randrange(256)))
        cut = bytes(damaged[: rng.choice((len(good), len(good), rng.randrange(len(good))))])
        for call in calls():
            try:
                call(cut)
            except TableError as error:
                assert error.file == URI


@pytest.mark.parametrize("at", [0, 3, 5, BODY - 17, BODY - 1, BODY + 1, BODY + 40, len(GOOD) - 1])
def test_cut_files(at: int):
    refused(GOOD[:at])


def test_wrong_sync_marker():
    refused(GOOD[:-1] + b"\xff")


@pytest.mark.parametrize(
    ("count", "size"),
    [(-1, 10), (1, -10), (10**5, 10), (1, 2**62), (10**5, None), (1, 10**9), (7, None), (5, None)],
)
def test_block_headers_that_lie(count: int, size: int | None):
    payload = b"".join(
        encode(manifest_schema(), entry(f"s3://us/{number}"), {}, random.Random(0)) for number in range(6)
    )
    header = container(manifest_schema(), [])
    refused(header + encode_long(count) + encode_long(len(payload) if size is None else size) + payload + SYNC)


@pytest.mark.parametrize(
    ("codec", "setting"),
    [
        *((codec, {"block_bytes": 1 << 20}) for codec in CODECS),
        *((codec, {"inflated_bytes": 1 << 20}) for codec in CODECS),
        *((codec, {"ratio": 1}) for codec in CODECS[1:]),
    ],
)
def test_decompression_bombs(codec: str, setting: dict[str, int]):
    name, limit = next(iter(setting.items()))
    bomb = container(manifest_schema(), [[b"\x00" * (6 << 20)]], codec)
    for read in (read_entries, read_manifest):
        with pytest.raises(OverLimit, match=rf"over the limit of {limit} .limits\.{name} ") as caught:
            read(bomb, URI, Limits(**setting))
        assert caught.value.file == URI


@pytest.mark.parametrize("setting", [{"file_bytes": 100}, {"records": 5}, {"block_records": 1}])
def test_more_than_the_limits(setting: dict[str, int]):
    name, limit = next(iter(setting.items()))
    with pytest.raises(OverLimit, match=rf"over the limit of {limit} .limits\.{name} ") as caught:
        read_entries(GOOD, URI, Limits(**setting))
    assert caught.value.file == URI


def test_endless_arrays_of_nothing():
    schema = manifest_schema()
    data_file_fields(schema).append({"name": "nothing", "field-id": 9_009, "type": {"type": "array", "items": "null"}})
    good = encode(schema, entry("s3://us/1", nothing=[]), {}, random.Random(0))
    assert good.endswith(b"\x00\x02")
    refused(container(schema, [[good[:-2] + encode_long(2**62) + b"\x00\x02"]]))


def test_schemas_that_are_none():
    for schema in (
        "record",
        [],
        {"type": "record"},
        {"type": "record", "fields": [1]},
        {"type": "record", "fields": []},
        {"type": "array"},
        None,
    ):
        refused(container(schema, []))
    refused(GOOD.replace(b'"record"', b'"recXrd"', 1))
    for kind in (
        "no-such-type",
        {"type": "fixed", "name": "f"},
        {"type": "fixed", "name": "f", "size": -5},
        [["null"]],
        7,
        {"type": "array"},
    ):
        schema = manifest_schema()
        data_file_fields(schema).append({"name": "odd", "type": kind, "field-id": 9_009})
        refused(container(schema, []))


def test_schemas_that_only_the_general_path_would_take():
    for fields in (
        [{"type": "int", "field-id": 100}],
        [1, {"name": 7, "type": ["null", "int"]}],
        [{"name": "file_path"}],
        [],
    ):
        schema = manifest_schema()
        data_file = next(field for field in schema["fields"] if field["name"] == "data_file")
        data_file["type"] = ["null", {"type": "record", "name": "r2", "fields": fields}]
        refused(container(schema, [[b"\x00"]]))


def test_recursive_and_exploding_schemas():
    recursive, redefined, exploding, deep = (manifest_schema() for _ in range(4))
    node = {"type": "record", "name": "node", "fields": [{"name": "next", "type": ["null", "node"]}]}
    data_file_fields(recursive).append({"name": "odd", "field-id": 9_009, "type": node})
    data_file_fields(redefined).append(
        {"name": "odd", "field-id": 9_009, "type": {"type": "fixed", "size": 1, "name": "k117_v118"}}
    )
    kind: Any = "long"
    for level in range(40):
        fields = (
            [{"name": name, "type": kind if name == "a" else f"r_{level - 1}"} for name in "ab"]
            if level
            else [{"name": "a", "type": kind}]
        )
        kind = {"type": "record", "name": f"r_{level}", "fields": fields}
    data_file_fields(exploding).append({"name": "odd", "field-id": 9_009, "type": kind})
    array: Any = "long"
    for _ in range(60):
        array = {"type": "array", "items": array}
    data_file_fields(deep).append({"name": "odd", "field-id": 9_009, "type": array})
    for schema in (recursive, redefined, exploding, deep):
        refused(container(schema, []), Unsupported)


def test_values_that_contradict_the_format():
    for record, error in (
        (entry("s3://us/1", size=-1), BrokenMetadata),
        (entry("s3://us/1", status=7), BrokenMetadata),
        (entry("s3://us/1", content=-1), Unsupported),
    ):
        refused(avro_file(manifest_schema(), [record]), error)
    bad_text = copy.deepcopy(entry("s3://us/1"))
    bad_text["data_file"]["file_path"] = b"\xff\xfe"
    refused(avro_file(manifest_schema(), [bad_text]))
