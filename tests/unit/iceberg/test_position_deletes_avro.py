"""Position deletes in Avro: rows move as the bytes that they are, and header and blocks stay."""

import copy
import random
from typing import Any

import pytest

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, TableError, Unsupported
from sterna.iceberg.avro import container as avro
from sterna.iceberg.avro.binary import encode_long
from sterna.iceberg.avro.container import Container, open_container
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from tests.unit.iceberg.avro_files import CODECS, SYNC, avro_file, container, decode, encode
from tests.unit.iceberg.delete_files import (
    AVRO,
    URI,
    Row,
    avro_records,
    content,
    damaged,
    expected,
    golden,
    localized,
    read_rows,
    write_rows,
)


def some_rows(count: int = 100) -> list[Row]:
    return [
        (f"s3://{('eu', 'us')[at % 2]}/t/{at % 5}", at, {"number": -at, "text": "x" * (at % 9)} if at % 4 else None)
        for at in range(count)
    ]


def blocks(data: bytes) -> list[int]:
    file: Container = open_container(data, URI)
    return [block.count for group in file.groups() for block in group.blocks]


def refused(data: bytes, error: type[TableError] = BrokenMetadata, match: str | None = None) -> None:
    with pytest.raises(error, match=match) as caught:
        localize_position_deletes(data, URI, map_content=content)
    assert caught.value.file == URI


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("group", [1, 1 << 25])
def test_header_codec_and_blocks_stay(codec: str, group: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(avro, "GROUP_BYTES", group)
    data = write_rows("avro", some_rows(), codec=codec, delete_type="position")
    after = localized(data)
    assert decode(after)[0] == decode(data)[0]
    assert open_container(after, URI).metadata["delete-type"] == b"position"
    assert blocks(after) == blocks(data)
    assert len(blocks(after)) > 30
    assert read_rows("avro", after) == expected(some_rows())


@pytest.mark.parametrize("name", ["rows.avro", "with-row.avro"])
def test_rows_of_java(name: str):
    before, after = golden(name), localized(golden(name))
    assert decode(after)[0] == decode(before)[0]
    rows = [(record["file_path"], record["pos"], record.get("row")) for record in avro_records(before)]
    assert [(record["file_path"], record["pos"], record.get("row")) for record in avro_records(after)] == expected(rows)
    assert len(rows) == 60


def test_columns_are_found_by_field_id_wherever_they_stand():
    schema = copy.deepcopy(AVRO)
    path, pos, row = schema["fields"]
    path["name"], pos["name"], pos["type"], path["type"] = (
        "pos",
        "file_path",
        ["null", "long"],
        ["bytes", "null", "string"],
    )
    schema["fields"] = [row, pos, {"name": "later", "type": {"type": "array", "items": "double"}, "field-id": 9}, path]
    records = [
        {"row": None, "file_path": at, "later": [0.5] * at, "pos": f"s3://{('us', 'eu')[at % 2]}/{at}"}
        for at in range(6)
    ]
    after = decode(localized(avro_file(schema, records)))[1]
    assert after == sorted(
        ({**record, "pos": content(str(record["pos"]))} for record in records), key=lambda record: str(record["pos"])
    )


def test_columns_are_found_by_name_where_there_are_no_ids():
    schema = copy.deepcopy(AVRO)
    del schema["fields"][2]
    for field in schema["fields"]:
        del field["field-id"]
    rows = [{"file_path": "s3://us/a", "pos": 1}, {"file_path": "s3://eu/a", "pos": 2}]
    mapped = [{"file_path": "s3://eu/a", "pos": 2}, {"file_path": "s3://eu/r/us/a", "pos": 1}]
    assert decode(localized(avro_file(schema, rows)))[1] == mapped


def test_an_empty_file_and_empty_blocks():
    assert localize_position_deletes(write_rows("avro", []), URI, map_content=content) is None
    record = encode(AVRO, {"file_path": "s3://us/a", "pos": 1, "row": None}, {}, random.Random(0))
    data = container(AVRO, [[], [record], []])
    assert blocks(localized(data)) == [0, 1, 0]
    assert localize_position_deletes(container(AVRO, [[]]), URI, map_content=content) is None


def test_schemas_that_are_none_of_position_deletes():
    good = some_rows(6)
    for at, kind in ((0, "long"), (0, {"type": "array", "items": "string"}), (1, "string"), (1, "double")):
        schema = copy.deepcopy(AVRO)
        schema["fields"][at]["type"] = kind
        value: Any = [] if isinstance(kind, dict) else {"long": 1, "string": "a", "double": 0.5}[kind]
        name = schema["fields"][at]["name"]
        refused(avro_file(schema, [{**dict(zip(("file_path", "pos", "row"), good[0], strict=True)), name: value}]))
    for at in (0, 1):
        schema = copy.deepcopy(AVRO)
        del schema["fields"][at]
        refused(container(schema, []), match="no column with the field id")
    twice = copy.deepcopy(AVRO)
    twice["fields"].append({"name": "other", "type": "string", "field-id": twice["fields"][0]["field-id"]})
    for schema in (twice, "string", [], None, {"type": "record"}):
        refused(container(schema, []))
    recursive = copy.deepcopy(AVRO)
    recursive["fields"].append({"name": "again", "type": ["null", "table"], "field-id": 9})
    refused(container(recursive, []), Unsupported)


def test_rows_that_are_broken():
    schema = copy.deepcopy(AVRO)
    schema["fields"][0]["type"] = ["null", "string"]
    schema["fields"][1]["type"] = ["null", "long"]
    for record in ({"file_path": None, "pos": 1, "row": None}, {"file_path": "s3://us/a", "pos": None, "row": None}):
        refused(avro_file(schema, [record]), match="without path or position")
    record = encode(AVRO, {"file_path": b"s3://us/\xff", "pos": 1, "row": None}, {}, random.Random(0))
    refused(container(AVRO, [[record]]), match="not UTF-8")
    refused(container(AVRO, []) + encode_long(2) + encode_long(len(record)) + record + SYNC)
    refused(write_rows("avro", some_rows()).replace(b"deflate", b"deflatX"), Unsupported, "codec")


def test_blocks_that_grow_over_the_limit(monkeypatch: pytest.MonkeyPatch):
    rows: list[Row] = [("s3://us/a", at, {"number": at, "text": "x" * 100_000}) for at in range(100)]
    data = write_rows("avro", rows, codec="zstandard")
    assert len(data) < 50_000
    monkeypatch.setattr(avro, "GROUP_BYTES", 1)
    with pytest.raises(OverLimit, match=r"over the limit.*limits\.delete_bytes"):
        localize_position_deletes(data, URI, map_content=content, limits=Limits(delete_bytes=1_000_000))


@pytest.mark.parametrize("codec", CODECS)
def test_damage(codec: str):
    good = write_rows("avro", some_rows(), codec=codec)
    rng = random.Random(codec)
    for _ in range(40 if codec == "zstandard" else 150):  # a damaged frame of zstandard takes long to show
        try:
            localize_position_deletes(damaged(good, rng), URI, map_content=content)
        except TableError as error:
            assert error.file == URI
