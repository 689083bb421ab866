"""Reading a metadata.json for verify: the same content as localizing reads, and the same files refused."""

from __future__ import annotations

import gzip

import pytest

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit
from sterna.iceberg.json_text import read_document
from sterna.replication.verify.json_file import read_json
from tests.unit.iceberg.metadata_json import VERSIONS, marked, plain

URI = "s3://us/t/metadata/00001-a.metadata.json"
ZIPPED = "s3://us/t/metadata/00001-a.gz.metadata.json"


@pytest.mark.parametrize("version", VERSIONS)
def test_both_readers_see_the_same(version: int) -> None:
    data = plain(marked(version)).encode()
    wanted = read_document(data, URI).root().value
    assert read_json(data, URI) == wanted
    assert read_json(gzip.compress(data), ZIPPED) == wanted


@pytest.mark.parametrize(
    ("data", "uri"),
    [
        (b"", URI),
        (b"{", URI),
        (b"{} {}", URI),
        (b"[]", URI),
        (b'{"a": NaN}', URI),
        (b'{"a": "\xff"}', URI),
        (b"\xef\xbb\xbf{}", URI),
        ("{}".encode("utf-16"), URI),
        (b"{}", ZIPPED),
        (gzip.compress(b"{}", mtime=0)[:-9], ZIPPED),
        (gzip.compress(b"{}", mtime=0)[:4] + b"nonsense", URI),
        (b'{"a":' * 200_000, URI),
    ],
)
def test_both_readers_refuse_the_same(data: bytes, uri: str) -> None:
    for read in (read_json, lambda data, uri: read_document(data, uri).root()):
        with pytest.raises(BrokenMetadata) as raised:
            read(data, uri)
        assert raised.value.file == uri


@pytest.mark.parametrize(
    ("content", "setting", "limit"),
    [
        (b'{"a":"' + bytes(8 << 20) + b'"}', "json_bytes", 1 << 20),
        (b'{"a":[' + b",".join([b"{}"] * 1_000) + b"]}", "json_objects", 1_000),
        (b'{"a":[' + b",".join([b"1"] * 1_000) + b"]}", "json_values", 1_000),
    ],
)
def test_a_small_file_that_becomes_a_large_one_is_refused(content: bytes, setting: str, limit: int) -> None:
    for read in (read_json, read_document):
        with pytest.raises(OverLimit, match=rf"over the limit of {limit} .limits\.{setting} ") as caught:
            read(gzip.compress(content), ZIPPED, Limits(**{setting: limit}))
        assert caught.value.file == ZIPPED
