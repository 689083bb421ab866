"""Deletion vectors: the footer names other data files, and no other byte changes."""

import json
import random
from typing import Any

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, TableError, Unsupported
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from tests.unit.iceberg.delete_files import URI, content, damaged, golden, localized

MAGIC = b"PFA1"
BLOBS = (b"first blob", b"", b"third")


def vector(path: str, offset: int, length: int, **others: Any) -> dict[str, Any]:
    properties = {"referenced-data-file": path, "cardinality": "3"}
    return {
        "type": "deletion-vector-v1",
        "fields": [2147483645],
        "offset": offset,
        "length": length,
        "properties": properties,
    } | others


def footer(*paths: str) -> dict[str, Any]:
    blobs, at = [], len(MAGIC)
    for path, blob in zip(paths, BLOBS, strict=False):
        blobs.append(vector(path, at, len(blob), **{"snapshot-id": -1, "sequence-number": -1}))
        at += len(blob)
    return {"blobs": blobs, "properties": {"created-by": "test"}}


def file_of(payload: bytes | dict[str, Any], flags: int = 0, size: int | None = None) -> bytes:
    payload = json.dumps(payload).encode() if isinstance(payload, dict) else payload
    trailer = (len(payload) if size is None else size).to_bytes(4, "little") + flags.to_bytes(4, "little") + MAGIC
    return MAGIC + b"".join(BLOBS) + MAGIC + payload + trailer


def payload_of(data: bytes) -> bytes:
    size = int.from_bytes(data[-12:-8], "little")
    return data[-12 - size : -12]


def frame(payload: bytes) -> bytes:
    """One LZ4 frame that tells its content's size; cramjam's own frames do not."""
    blocks = [payload[at : at + 65536] for at in range(0, len(payload), 65536)]
    descriptor = b"\x68\x40" + len(payload).to_bytes(8, "little")
    return (
        b"\x04\x22\x4d\x18"
        + descriptor
        + bytes([_checksum(descriptor)])
        + b"".join((len(block) | 1 << 31).to_bytes(4, "little") + block for block in blocks)
        + bytes(4)
    )


def _checksum(descriptor: bytes) -> int:
    # xxHash32 of up to 15 bytes with seed 0; LZ4 takes its second byte.
    prime = (2654435761, 2246822519, 3266489917, 668265263, 374761393)
    mask = 0xFFFFFFFF
    value, rest = (prime[4] + len(descriptor)) & mask, descriptor
    while len(rest) >= 4:
        value = (value + int.from_bytes(rest[:4], "little") * prime[2]) & mask
        value = (value << 17 | value >> 15) * prime[3] & mask
        rest = rest[4:]
    for byte in rest:
        value = (value + byte * prime[4]) & mask
        value = (value << 11 | value >> 21) * prime[0] & mask
    value = (value ^ value >> 15) * prime[1] & mask
    value = (value ^ value >> 13) * prime[2] & mask
    return (value ^ value >> 16) >> 8 & 0xFF


def refused(data: bytes, error: type[TableError] = BrokenMetadata, match: str | None = None) -> None:
    with pytest.raises(error, match=match) as caught:
        localize_position_deletes(data, URI, map_content=content)
    assert caught.value.file == URI


def test_vectors_of_java():
    before, after = golden("vectors.puffin"), localized(golden("vectors.puffin"))
    old, new = json.loads(payload_of(before)), json.loads(payload_of(after))
    for blob in old["blobs"]:
        blob["properties"]["referenced-data-file"] = content(blob["properties"]["referenced-data-file"])
    assert new == old
    assert len(old["blobs"]) == 6
    start = len(before) - 12 - len(payload_of(before))
    assert after[:start] == before[:start]
    assert after[-8:] == before[-8:]
    assert len(after) == start + len(payload_of(after)) + 12


@given(
    st.lists(st.sampled_from(["s3://us/a", "s3://us/ü b%20c", "s3://eu/a", "s3://us-old/a"]), max_size=3), st.booleans()
)
def test_only_the_paths_change(paths: list[str], compressed: bool):
    text = json.dumps(footer(*paths), ensure_ascii=False, indent=3).encode()
    data = file_of(frame(text) if compressed else text, int(compressed))
    done = localize_position_deletes(data, URI, map_content=content)
    if all(content(path) == path for path in paths):
        assert done is None
    else:
        wanted = text
        for path in set(paths):
            wanted = wanted.replace(
                f'"{path}"'.encode(),
                json.dumps(content(path)).encode() if content(path) != path else f'"{path}"'.encode(),
            )
        assert done == file_of(wanted)


def test_other_blobs_and_unknown_fields_pass():
    other = {
        "type": "apache-datasketches-theta-v1",
        "fields": [1],
        "offset": 4,
        "length": 5,
        "compression-codec": "zstd",
        "later": [1.50, {}],
    }
    deletion_vector = vector("s3://us/a", 4, 5, later=None)
    deletion_vector["properties"]["other"] = "s3://us/not-a-path"
    text = json.dumps(
        {
            "later": {"referenced-data-file": "s3://us/b"},
            "blobs": [other, deletion_vector, {**other, "properties": {"referenced-data-file": "s3://us/c"}}],
        }
    )
    assert localized(file_of(text.encode())) == file_of(text.replace('"s3://us/a"', '"s3://eu/r/us/a"').encode())


def test_a_file_without_vectors_stays():
    for payload in (b'{"blobs": []}', b' {"blobs":[{"type":"x","offset":4,"length":0}]}\n'):
        assert localize_position_deletes(file_of(payload), URI, map_content=content) is None


def test_a_vector_that_names_no_data_file():
    for properties in ({}, {"referenced-data-file": 7}, {"referenced-data-file": None}, None, []):
        refused(file_of({"blobs": [vector("", 4, 0, properties=properties)]}))
    nameless = vector("", 4, 0)
    del nameless["properties"]
    refused(file_of({"blobs": [nameless]}), match="referenced-data-file")


def test_blobs_outside_the_file():
    end = len(MAGIC) + len(b"".join(BLOBS))
    assert localized(file_of({"blobs": [vector("s3://us/a", 4, end - 4)]}))
    for offset, length in (
        (3, 1),
        (4, end - 3),
        (end, 1),
        (end + 1, 0),
        (-1, 2),
        (5, -1),
        (2**70, 1),
        (4, None),
        (4.0, 1),
        ("4", 1),
        (True, 1),
    ):
        refused(file_of({"blobs": [vector("s3://us/a", 4, 0) | {"offset": offset, "length": length}]}), match="outside")


def test_unknown_flags():
    for flags in (2, 3, 0x100, 0x80000000):
        refused(file_of(footer("s3://us/a"), flags), Unsupported, "flags")


def test_frames_and_footers_that_are_none():
    good = frame(json.dumps(footer("s3://us/a")).encode())
    assert localized(file_of(good, 1))
    lying = good[:6] + (2**40).to_bytes(8, "little") + good[14:]
    for payload in (
        b"",
        good[:10],
        good[:-9],
        b"x" * 40,
        bytes(cramjam.lz4.compress(b"{}")),
        lying,
        good[:20] + b"\xff" * 20 + good[40:],
    ):
        refused(file_of(payload, 1))
    for payload in (
        b"",
        b"{",
        b"[]",
        b"{}",
        b'{"blobs":{}}',
        b'{"blobs":[1]}',
        b"\xff",
        b"[" * 100_000,
        b'{"blobs":[],"blobs":[]}',
    ):
        refused(file_of(payload))
    for large in (file_of(footer("s3://us/a")), file_of(good, 1)):
        with pytest.raises(OverLimit, match=r"over the limit of 10 .limits\.json_bytes"):
            localize_position_deletes(large, URI, map_content=content, limits=Limits(json_bytes=10))
    with pytest.raises(OverLimit, match=r"limits\.json_objects"):
        localize_position_deletes(file_of(footer("s3://us/a")), URI, map_content=content, limits=Limits(json_objects=1))


def test_files_that_are_cut_or_lie_about_their_footer():
    good = file_of(footer("s3://us/a"))
    for data in (
        good[:4],
        good[:20],
        good[:-1],
        good + b"x",
        good[4:],
        good[:-4] + b"PFA2",
        MAGIC + good[4:].replace(MAGIC, b"PFA0", 1),
    ):
        refused(data)
    for size in (0, 1, 2**31, 2**32 - 1, len(good)):
        refused(file_of(footer("s3://us/a"), size=size))


def test_damage():
    good = file_of(frame(json.dumps(footer("s3://us/a", "s3://us/b")).encode()), 1)
    rng = random.Random(4)
    for _ in range(400):
        try:
            localize_position_deletes(damaged(good, rng), URI, map_content=content)
        except TableError as error:
            assert error.file == URI
