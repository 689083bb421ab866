"""Parts of objects, over every kind of store."""

from __future__ import annotations

import hashlib
import io
import random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.errors import ObjectMissing, OutOfTime, SternaError, StoreUnreachable
from sterna.replication.verify.content import sha256_of
from sterna.storage.client import ContentLimits
from sterna.storage.ranges import ObjectReader
from sterna.storage.throttle import CHUNK_BYTES
from tests.support.stores import Stores

SIZES = [0, 1, 1 << 20, (1 << 20) + 1, 3 << 20]


@pytest.mark.parametrize("size", SIZES)
def test_any_part_is_what_stands_there(stores: Stores, size: int) -> None:
    uri, data = f"{stores.us}/ranges/{size}", random.Random(size).randbytes(size)
    stores.objects.write_new(uri, data)
    reader = ObjectReader(stores.objects, uri, size)
    assert reader.read() == data and reader.read() == b""
    for start, length in [(0, 10), (size // 2, 1000), (size - 1, 10), (0, size), (1, size), (size, 5), (size + 7, 5)]:
        assert reader.seek(max(0, start)) == reader.tell()
        assert reader.read(length) == data[max(0, start) : max(0, start) + length]
    assert reader.seek(-1, io.SEEK_END) == max(0, size - 1) and reader.read(5) == data[-1:]
    reader.seek(0)
    buffer = bytearray(7)
    assert reader.readinto(buffer) == min(7, size) and bytes(buffer).startswith(data[:7])


@pytest.mark.parametrize("size", SIZES)
def test_what_waits_for_its_turn_is_the_same_content(
    stores: Stores, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By requests of a mebibyte, and by another one where the first was open for long."""
    uri, data, paid = f"{stores.us}/ranges/{size}", random.Random(size).randbytes(size), list[int]()
    stores.objects.write_new(uri, data)
    opened = stores.objects.open(stores.objects.mapping.locate(uri).location)
    monkeypatch.setattr(opened, "throttle", paid.append)
    for open_seconds in (20.0, -1.0):
        monkeypatch.setattr(opened, "limits", ContentLimits(open_seconds=open_seconds))
        paid.clear()
        assert stores.objects.read(uri) == data
        assert sha256_of(stores.objects, uri) == (size, hashlib.sha256(data).hexdigest())
        assert sum(paid) == 2 * size and max(paid, default=0) <= CHUNK_BYTES


def test_columns_are_read_by_arrow(stores: Stores) -> None:
    sink = io.BytesIO()
    table = pa.table({name: pa.array([random.random() for _ in range(100_000)]) for name in "abc"})
    pq.write_table(table, sink, compression="none", use_dictionary=False)
    uri = f"{stores.us}/ranges/columns.parquet"
    stores.objects.write_new(uri, sink.getvalue())
    reader = ObjectReader(stores.objects, uri, len(sink.getvalue()))
    assert pq.read_table(pa.PythonFile(reader, mode="r"), columns=["b"]).equals(table.select(["b"]))


@pytest.mark.parametrize("size", SIZES[1:])
def test_an_end_that_is_known_is_not_requested(stores: Stores, size: int) -> None:
    uri, data, requests = f"{stores.us}/ranges/{size}", random.Random(size).randbytes(size), list[int]()
    stores.objects.write_new(uri, data)
    reader = ObjectReader(stores.objects, uri, size, tail=data[-1000:], before_request=lambda: requests.append(1))
    for start in (max(0, size - 1000), size - 1, max(0, size - 500)):
        reader.seek(start)
        assert reader.read(400) == data[start : start + 400]
    assert not requests
    reader.seek(0)
    assert reader.read() == data
    assert len(requests) == (size > 1000)


@pytest.mark.parametrize("size", [10, 3 << 20])
def test_what_fails_is_told_before_it_is_raised(stores: Stores, size: int) -> None:
    failures: list[SternaError] = []
    with pytest.raises(ObjectMissing):
        ObjectReader(stores.objects, f"{stores.us}/ranges/gone", size, on_error=failures.append).read(5)
    assert [type(error) for error in failures] == [ObjectMissing]

    def over() -> None:
        raise OutOfTime("over")

    with pytest.raises(OutOfTime):
        ObjectReader(stores.objects, f"{stores.us}/ranges/gone", size, before_request=over).read(5)


def test_an_object_of_another_size_is_not_read(stores: Stores) -> None:
    uri = f"{stores.us}/ranges/short"
    stores.objects.write_new(uri, b"12345")
    with pytest.raises(StoreUnreachable):
        ObjectReader(stores.objects, uri, 7).read()
    with pytest.raises(SternaError):
        reader = ObjectReader(stores.objects, uri, 3 << 20)
        reader.seek(1 << 20)
        reader.read(10)
