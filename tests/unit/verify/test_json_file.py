"""Reading a metadata.json for verify: the same content as localizing reads, and the same files refused."""

from __future__ import annotations

import gzip

import pytest

from sterna.errors import BrokenMetadata
from sterna.iceberg.json_text import read_document
from sterna.verify import json_file
from sterna.verify.json_file import read_json
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


def test_a_small_file_that_becomes_a_large_one_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_file, "MAX_JSON_BYTES", 1 << 20)
    bomb = gzip.compress(b'{"a":"' + bytes(8 << 20) + b'"}')
    with pytest.raises(BrokenMetadata, match="over 1048576 bytes"):
        read_json(bomb, ZIPPED)
