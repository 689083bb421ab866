"""Position deletes in ORC: everything but rows and their order is the source's, whoever wrote it."""

import datetime
import decimal
import io
import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.orc as orc
import pytest

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata, OverLimit, TableError, Unsupported
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from sterna.iceberg.orc.chunks import Budget, Compression
from sterna.iceberg.orc.columns import ColumnReader
from sterna.iceberg.orc.proto import Message, OrcDamaged, read_message
from sterna.iceberg.orc.runs import write_integers
from sterna.iceberg.orc.tail import Tail, read_stripe, read_tail
from tests.unit.iceberg.delete_files import (
    PATH,
    POS,
    ROW,
    URI,
    content,
    damaged,
    expected,
    golden,
    localized,
    read_rows,
    write_rows,
)

CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]
GOLDEN = ["rows.orc", "with-row.orc"]


def budget() -> Budget:
    return Budget(DEFAULT_LIMITS, URI)


def tail_of(data: bytes) -> Tail:
    return read_tail(data, URI, budget())


def edited(
    data: bytes, footer: Callable[[Message], Message], postscript: Callable[[Message], Message] = lambda old: old
) -> bytes:
    """A file with another footer, or another postscript."""
    tail = tail_of(data)
    end = len(data) - 1 - data[-1]
    packed = tail.compression.compress(footer(tail.footer).encode())
    last = postscript(tail.postscript.put(1, len(packed))).encode()
    return data[: end - tail.postscript.integer(1)] + packed + last + bytes((len(last),))


def stored(data: bytes, node: int) -> dict[int, Any]:
    """The numbers that stand for a timestamp in each row, by its position."""
    tail, by_position = tail_of(data), {}
    for number in range(len(tail.stripes)):
        reader = ColumnReader(tail, read_stripe(data, tail, number, budget()), budget(), URI)
        rows = reader.stripe.rows
        positions, values = reader.column(2, rows).to_pylist(), reader.column(3, rows).to_pylist()
        by_position |= {position: value and value[str(node)] for position, value in zip(positions, values, strict=True)}
    return by_position


def refused(data: bytes, error: type[TableError], match: str | None = None) -> None:
    with pytest.raises(error, match=match) as caught:
        localize_position_deletes(data, URI, map_content=content)
    assert caught.value.file == URI


@pytest.mark.parametrize("name", GOLDEN)
def test_the_footer_is_the_sources(name: str):
    before, after = tail_of(golden(name)), tail_of(localized(golden(name)))
    for number in (4, 5, 6, 9, 12):  # types with their attributes, user metadata, rows, writer, its version
        values = [[field for field in tail.footer.fields if field[0] == number] for tail in (before, after)]
        assert values[0] == values[1] != []
    assert after.compression == before.compression
    assert [after.postscript.integer(number) for number in (2, 3, 6)] == [
        before.postscript.integer(number) for number in (2, 3, 6)
    ]
    assert after.postscript.blobs(8000) == [b"ORC"]
    file = orc.ORCFile(io.BytesIO(localized(golden(name))))
    assert dict(file.metadata) == {b"delete-type": b"position"}
    assert file.schema.field("file_path").metadata == {b"iceberg.id": b"2147483546", b"iceberg.required": b"true"}


def test_rows_of_java():
    columns = ["file_path", "pos"]
    before = orc.ORCFile(io.BytesIO(golden("rows.orc"))).read(columns).to_pylist()
    after = orc.ORCFile(io.BytesIO(localized(golden("rows.orc")))).read(columns).to_pylist()
    rows = [(row["file_path"], row["pos"], None) for row in before]
    assert [(row["file_path"], row["pos"], None) for row in after] == expected(rows)
    assert len(rows) == 60


def test_deleted_rows_of_java():
    names = ("id", "b", "i", "f", "d", "dec", "big", "dt", "tm", "s", "u", "fx", "bin", "l", "m")
    columns = ["file_path", "pos", *(f"row.{name}" for name in names)]
    before = orc.ORCFile(io.BytesIO(golden("with-row.orc"))).read(columns).to_pylist()
    after = orc.ORCFile(io.BytesIO(localized(golden("with-row.orc")))).read(columns).to_pylist()
    rows = [(row["file_path"], row["pos"], row["row"]) for row in before]
    assert [(row["file_path"], row["pos"], row["row"]) for row in after] == expected(rows)


@pytest.mark.parametrize("node", [13, 14])
def test_timestamps_of_all_years_are_the_numbers_that_they_were(node: int):
    source = golden("with-row.orc")
    done = localized(source)
    assert stored(done, node) == stored(source, node)
    assert len({str(value) for value in stored(source, node).values()}) > 8
    tail = tail_of(done)
    assert read_stripe(done, tail, 0, budget()).footer.blobs(3) == [b"UTC"]


def test_statistics_of_paths_are_new_and_others_as_they_were():
    before, after = (
        tail_of(data).footer.messages(7) for data in (golden("with-row.orc"), localized(golden("with-row.orc")))
    )
    texts = after[1].messages(4)[0]
    assert (texts.blobs(1), texts.blobs(2)) == ([b"s3://eu/r/us/t/a.parquet"], ["s3://eu/t/ü.parquet".encode()])
    total = sum(len(path.encode()) for path, _, _ in read_rows_of(localized(golden("rows.orc"))))
    assert texts.integer(3) == 2 * total
    assert [message.put(11) for message in after[2:]] == [message.put(11) for message in before[2:]]
    sizes: dict[int, int] = {}
    done = localized(golden("with-row.orc"))
    for (node, _), data in read_stripe(done, tail_of(done), 0, budget()).streams.items():
        sizes[node] = sizes.get(node, 0) + len(data)
    assert [message.integer(11) for message in after] == [sizes.get(node, 0) for node in range(len(after))]


def read_rows_of(data: bytes) -> list[Any]:
    return [(*row.values(), None) for row in orc.read_table(io.BytesIO(data)).to_pylist()]


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS)
def test_codecs_and_many_stripes(codec: str):
    rng = random.Random(codec)
    rows = [
        (f"s3://{('eu', 'us')[at % 2]}/t/{at % 7}", at, {"number": at, "text": rng.randbytes(4).hex()})
        for at in range(30_000)
    ]
    data = write_rows("orc", rows, compression=codec, stripe_size=50_000, dictionary_key_size_threshold=0.5)
    before, after = orc.ORCFile(io.BytesIO(data)), orc.ORCFile(io.BytesIO(localized(data)))
    assert (after.compression, after.nrows) == (before.compression, before.nrows)
    assert after.nstripes > 1 < before.nstripes
    assert after.schema.equals(before.schema, check_metadata=True)
    assert read_rows("orc", localized(data)) == expected(rows)


TYPES: list[tuple[pa.DataType, list[Any]]] = [
    (pa.bool_(), [True, False, None] * 30),
    (pa.int8(), [*range(-128, 128), None, *[7] * 200]),
    (pa.int16(), [-(2**15), 2**15 - 1, None]),
    (pa.float32(), [1.5, float("inf"), -0.0, None]),
    (pa.float64(), [1e300, None]),
    (pa.string(), ["", "ü" * 300, None, "a", "a"]),
    (pa.binary(), [b"\x00\xff", b"", None]),
    (pa.decimal128(9, 2), [decimal.Decimal("-1234567.89"), decimal.Decimal(0), None]),
    (pa.decimal128(38, 5), [decimal.Decimal("-123456789012345678901234567890.12345"), None]),
    (pa.date32(), [datetime.date(1, 1, 1), datetime.date(9999, 12, 31), None]),
    (pa.timestamp("ns"), [1, -1, 10**18 + 1, -(10**18) - 1, None]),
    (pa.timestamp("ns", "UTC"), [1, -1, 1_700_000_000_123_456_789, None]),
    (pa.list_(pa.list_(pa.string())), [[["a", None], None, []], [], None]),
    (pa.map_(pa.string(), pa.struct([pa.field("x", pa.int32())])), [[("k", {"x": 1}), ("l", None)], [], None]),
    (
        pa.struct([pa.field("x", pa.struct([pa.field("y", pa.int64())]))]),
        [{"x": {"y": 1}}, {"x": {"y": None}}, {"x": None}, None],
    ),
    (pa.int64(), [None] * 5),
    (pa.struct([pa.field("x", pa.string())]), [None] * 5),
]


@pytest.mark.parametrize(("kind", "values"), TYPES, ids=[str(kind)[:30] for kind, _ in TYPES])
@pytest.mark.parametrize("threshold", [0.0, 1.0])
def test_values_of_every_type_follow_their_row(kind: pa.DataType, values: list[Any], threshold: float):
    fields = [
        ("file_path", pa.string(), PATH),
        ("pos", pa.int64(), POS),
        ("row", pa.struct([pa.field("v", kind)]), ROW),
    ]
    schema = pa.schema([pa.field(name, type_, metadata={"iceberg.id": str(number)}) for name, type_, number in fields])
    rows = [
        {"file_path": f"s3://{('eu', 'us')[at % 2]}/t", "pos": at, "row": {"v": value}}
        for at, value in enumerate(values * 3)
    ]
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(rows, schema=schema), sink, dictionary_key_size_threshold=threshold)
    before = orc.read_table(io.BytesIO(sink.getvalue()))
    after = orc.read_table(io.BytesIO(localized(sink.getvalue())))
    assert after.schema.equals(before.schema, check_metadata=True)
    old, new = ({row["pos"]: row["row"] for row in table.to_pylist()} for table in (before, after))
    assert new == old
    assert len(new) == len(rows)


def test_fields_of_later_versions_pass():
    source = edited(
        golden("rows.orc"), lambda footer: footer.put(99, b"later"), lambda postscript: postscript.put(98, 7)
    )
    types = [Message.encode(kind.put(97, b"later")) for kind in tail_of(source).footer.messages(4)]
    tail = tail_of(localized(edited(source, lambda footer: footer.put(4, *types))))
    assert tail.footer.blobs(99) == [b"later"]
    assert tail.footer.blobs(4) == types
    assert tail.postscript.integer(98) == 7


def test_columns_are_found_by_field_id():
    rows = [{"pos": "s3://us/a", "file_path": 7}, {"pos": "s3://eu/a", "file_path": 8}]
    schema = pa.schema(
        [
            pa.field("pos", pa.string(), metadata={"iceberg.id": str(PATH)}),
            pa.field("file_path", pa.int64(), metadata={"iceberg.id": str(POS)}),
        ]
    )
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(rows, schema=schema), sink)
    mapped = [{"pos": "s3://eu/a", "file_path": 8}, {"pos": "s3://eu/r/us/a", "file_path": 7}]
    assert orc.read_table(io.BytesIO(localized(sink.getvalue()))).to_pylist() == mapped


def test_what_can_t_be_written_back_is_named():
    source = golden("with-row.orc")
    union = [kind.put(1, 13) if kind.integer(1) == 0 else kind for kind in tail_of(source).footer.messages(4)]
    refused(
        edited(source, lambda footer: footer.put(4, *(kind.encode() for kind in union))), Unsupported, "ORC type 13"
    )
    refused(edited(source, lambda footer: footer.put(10, b"\x0a\x00")), Unsupported, "encrypted")
    refused(edited(source, lambda footer: footer, lambda last: last.put(7, 5)), Unsupported, "encrypted")
    refused(edited(source, lambda footer: footer, lambda last: last.put(4, b"\x01\x8f\x4e")), Unsupported, "version")
    refused(edited(source, lambda footer: footer, lambda last: last.put(2, 3)), Unsupported, "codec 3")
    plain = write_rows("orc", [("s3://us/a", 1, None)], compression="uncompressed")
    stripe = read_stripe(plain, tail_of(plain), 0, budget()).footer
    old = [message.put(1, 0) if message.integer(1) == 2 else message for message in stripe.messages(2)]
    refused(
        plain.replace(stripe.encode(), stripe.put(2, *(message.encode() for message in old)).encode()),
        Unsupported,
        "version 1",
    )


def test_timestamps_of_several_time_zones():
    kind = pa.schema(
        [pa.field("file_path", pa.string()), pa.field("pos", pa.int64()), pa.field("row", pa.timestamp("us"))]
    )
    rows = [{"file_path": f"s3://us/{number}", "pos": number, "row": None} for number in range(4000)]
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(rows, schema=kind), sink, stripe_size=1000, batch_size=1000)
    data = sink.getvalue()
    assert tail_of(data).stripes[1:]
    assert data.count(b"\x1a\x03GMT") == len(tail_of(data).stripes)
    refused(data.replace(b"\x1a\x03GMT", b"\x1a\x03UTC", 1), Unsupported, "time zones")


def test_senseless_tails():
    source = golden("rows.orc")
    types = [kind.encode() for kind in tail_of(source).footer.messages(4)]
    root = read_message(types[0])
    stripe = tail_of(source).footer.messages(3)[0]
    for footer in (
        lambda old: old.put(4),
        lambda old: old.put(4, *types[:2]),
        lambda old: old.put(4, *types, types[1]),
        lambda old: old.put(4, root.put(2, 0, 0).encode(), *types[1:]),
        lambda old: old.put(4, root.put(2, 1, 1).encode(), *types[1:]),
        lambda old: old.put(6, 61),
        lambda old: old.put(6, 2**63),
        lambda old: old.put(3, stripe.encode(), stripe.encode()).put(6, 120),
        lambda old: old.put(3, stripe.put(1, 0).encode()),
        lambda old: old.put(3, stripe.put(3, 2**40).encode()),
        lambda old: old.put(3, stripe.put(5, 0).encode()).put(6, 0),
        lambda old: old.put(3, stripe.put(5, 61).encode()).put(6, 61),
        lambda old: old.put(7, b""),
        lambda old: old.put(3, 5),
        lambda old: old.put(6, b"x"),
    ):
        refused(edited(source, footer), BrokenMetadata)
    for postscript in (
        lambda old: old.put(1, 2**40),
        lambda old: old.put(5, 2**40),
        lambda old: old.put(3, 0),
        lambda old: old.put(3, 2**30),
    ):
        refused(edited(source, lambda old: old, postscript), BrokenMetadata)


def test_rows_without_path_or_position():
    for rows in ([{"file_path": None, "pos": 1}], [{"file_path": "s3://us/a", "pos": None}]):
        sink = io.BytesIO()
        orc.write_table(pa.Table.from_pylist(rows, pa.schema([("file_path", pa.string()), ("pos", pa.int64())])), sink)
        refused(sink.getvalue(), BrokenMetadata, "without path or position")
    for kinds in (
        [("file_path", pa.string())],
        [("file_path", pa.int64()), ("pos", pa.int64())],
        [("file_path", pa.string()), ("pos", pa.int32())],
    ):
        sink = io.BytesIO()
        orc.write_table(pa.Table.from_pylist([{}], pa.schema(kinds)), sink)
        refused(sink.getvalue(), BrokenMetadata)


def test_strings_that_grow_over_the_limit():
    rows: list[Any] = [("s3://us/a", number, {"number": 1, "text": "x" * 10_000}) for number in range(2000)]
    data = write_rows("orc", rows, compression="zstd", dictionary_key_size_threshold=1.0)
    assert len(data) < 20_000
    assert len(localized(data)) > 0
    with pytest.raises(OverLimit, match=r"over the limit.*limits\.delete_bytes"):
        localize_position_deletes(data, URI, map_content=content, limits=Limits(delete_bytes=10_000_000))


@pytest.mark.parametrize("kind", [0, 1, 2, 4, 5])
def test_chunks_come_back(kind: int):
    one = Compression(kind, 1000)
    for data in (b"", b"x", bytes(3500), random.Random(kind).randbytes(3500)):
        assert one.decompress(one.compress(data), budget()) == data


def test_lists_of_nothing_that_grow_over_the_limit():
    fields = [("file_path", pa.string()), ("pos", pa.int64()), ("row", pa.list_(pa.struct([])))]
    sink = io.BytesIO()
    orc.write_table(
        pa.Table.from_pylist([{"file_path": "s3://us/a", "pos": 1, "row": [{}] * 3}], pa.schema(fields)), sink
    )
    data = sink.getvalue()
    assert orc.read_table(io.BytesIO(localized(data))).to_pylist() == [
        {"file_path": "s3://eu/r/us/a", "pos": 1, "row": [{}] * 3}
    ]
    bomb = replace(
        read_stripe(data, tail_of(data), 0, budget()),
        streams={(3, 2): write_integers(np.array([2**40]), signed=False)},
    )
    with pytest.raises(OverLimit, match="over the limit"):
        ColumnReader(tail_of(data), bomb, budget(), URI).column(3, 1)


def test_chunks_that_grow_over_the_limit():
    for kind in (1, 2, 4, 5):
        one = Compression(kind, 100_000)
        bomb = one.compress(bytes(2_000_000))
        assert len(bomb) < 200_000
        with pytest.raises(OverLimit, match="over the limit"):
            one.decompress(bomb, Budget(Limits(delete_bytes=1_000_000), URI))
        with pytest.raises(OrcDamaged, match=r"too long|does not decompress"):
            Compression(kind, 50_000).decompress(one.compress(bytes(100_000)), budget())
        with pytest.raises(OrcDamaged):
            one.decompress(b"\x00\x00\x00" * 3, budget())


@pytest.mark.parametrize("codec", CODECS)
def test_damage(codec: str):
    rows: list[Any] = [
        (f"s3://us/{number % 5}", number, {"number": number, "text": "t" * (number % 4)}) for number in range(300)
    ]
    good = write_rows("orc", rows, compression=codec, stripe_size=1000)
    rng = random.Random(codec)
    for _ in range(150):
        try:
            localize_position_deletes(damaged(good, rng), URI, map_content=content)
        except TableError as error:
            assert error.file == URI
