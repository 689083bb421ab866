"""Position deletes in ORC: everything but rows and their order is the source's, whoever wrote it."""

import datetime
import decimal
import io
import random
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.orc as orc
import pyorc
import pytest

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, OverLimit, TableError, UnregisteredUri, Unsupported
from sterna.iceberg.deletes import orc as localizer
from sterna.iceberg.deletes.position_deletes import localize_position_deletes
from sterna.replication.execution import orc_sandbox
from sterna.replication.execution.orc_sandbox import localize_orc_in_subprocess
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
from tests.unit.iceberg.orc_files import Fields, edited, encode, footer_of, parse, put, values

CODECS = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]
GOLDEN = ["rows.orc", "with-row.orc"]


def opened(data: bytes) -> pyorc.Reader[Any]:
    return pyorc.Reader(io.BytesIO(data), converters=localizer.CONVERTERS)


def refused(data: bytes, error: type[TableError], match: str | None = None) -> None:
    with pytest.raises(error, match=match) as caught:
        localize_position_deletes(data, URI, map_content=content)
    assert caught.value.file == URI


@pytest.mark.parametrize("name", GOLDEN)
def test_types_attributes_user_metadata_and_codec_are_the_sources(name: str):
    before, after = (orc.ORCFile(io.BytesIO(data)) for data in (golden(name), localized(golden(name))))
    assert after.schema.equals(before.schema, check_metadata=True)
    assert dict(after.metadata) == dict(before.metadata) == {b"delete-type": b"position"}
    assert after.schema.field("file_path").metadata == {b"iceberg.id": b"2147483546", b"iceberg.required": b"true"}
    assert (after.compression, after.nrows, after.file_version) == (
        before.compression,
        before.nrows,
        before.file_version,
    )
    kinds = [opened(data).schema for data in (golden(name), localized(golden(name)))]
    assert attributes(kinds[1]) == attributes(kinds[0])  # nested ones, which Arrow does not show


def attributes(kind: Any) -> Any:
    if isinstance(kind, pyorc.Struct):
        return kind.attributes, {name: attributes(field) for name, field in kind.fields.items()}
    inner = [getattr(kind, name) for name in ("key", "value", "type") if hasattr(kind, name)]
    return kind.attributes, [attributes(child) for child in inner]


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


@pytest.mark.parametrize("column", [9, 10])
def test_timestamps_of_all_years_are_what_they_were(column: int):
    before, after = (
        {pos: row and row[column] for _, pos, row in opened(data)}
        for data in (golden("with-row.orc"), localized(golden("with-row.orc")))
    )
    assert after == before
    assert {(-62135596800, 1000), (253402300799, 999999000)} <= set(before.values())


def test_statistics_are_those_of_the_new_paths_and_of_the_old_values():
    before, after = opened(golden("with-row.orc")), opened(localized(golden("with-row.orc")))
    paths = after[1].statistics
    total = sum(len(path.encode()) for path, _, _ in read_rows_of(localized(golden("rows.orc"))))
    assert (paths["minimum"], paths["maximum"], paths["total_length"]) == (
        "s3://eu/r/us/t/a.parquet",
        "s3://eu/t/ü.parquet",
        total,
    )
    for column in (2, 3, 4, 6, 7, 9, 10, 11, 12, 15):
        ignored = {"has_null": None}  # of what stands below a null, C++ says otherwise
        assert after[column].statistics | ignored == before[column].statistics | ignored


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
    assert before.nstripes > 1
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


def test_columns_of_a_row_stay_apart():
    kinds = [("file_path", pa.string()), ("x", pa.string()), ("pos", pa.int64()), ("y", pa.int32())]
    rows = [{"file_path": f"s3://us/{9 - at}", "x": f"x{at}", "pos": at, "y": -at} for at in range(9)]
    sink = io.BytesIO()
    orc.write_table(pa.Table.from_pylist(rows, pa.schema(kinds)), sink)
    mapped = [row | {"file_path": content(row["file_path"])} for row in reversed(rows)]
    assert orc.read_table(io.BytesIO(localized(sink.getvalue()))).to_pylist() == mapped


def test_fields_of_later_versions_are_passed_over():
    source = edited(plain(), put(99, b"later"), put(98, 7))
    assert read_rows("orc", localized(source)) == expected(ROWS)


@pytest.mark.parametrize("version", ["0.11", "0.12"])
def test_both_versions_of_run_lengths(version: str):
    assert read_rows("orc", localized(write_rows("orc", ROWS, file_version=version))) == expected(ROWS)


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


ROWS: list[Any] = [
    (f"s3://us/t/{number % 5}.parquet", number, {"number": number, "text": "t" * (number % 4)}) for number in range(60)
]


def plain() -> bytes:
    return write_rows("orc", ROWS, compression="uncompressed")


def of_kind(old: int, new: int) -> Any:
    """An edit that gives columns of one type another."""

    def edit(footer: Fields) -> Fields:
        kinds = [parse(kind) for kind in values(footer, 4) if isinstance(kind, bytes)]
        return put(4, *(encode(put(1, new)(kind) if values(kind, 1) == [old] else kind) for kind in kinds))(footer)

    return edit


def test_what_can_t_be_written_back_is_named():
    sink = io.BytesIO()
    with pyorc.Writer(sink, "struct<file_path:string,pos:bigint,row:array<uniontype<int>>>") as writer:
        writer.write(("s3://us/a", 1, [1]))
    refused(sink.getvalue(), Unsupported, "ORC type UNION")
    refused(edited(plain(), postscript=put(7, 5)), Unsupported, "encrypted")
    refused(edited(plain(), postscript=put(4, b"\x01\x8f\x4e")), Unsupported, "version")
    refused(edited(plain(), postscript=put(4, b"\x00\x0d")), Unsupported, "version")
    empty = write_rows("orc", [], compression="uncompressed")
    refused(edited(empty, postscript=put(2, 3), chunk=True), Unsupported, "codec LZO")


def test_a_time_of_another_zone_stays_that_time():
    kind = "struct<file_path:string,pos:bigint,row:timestamp>"
    sink = io.BytesIO()
    with pyorc.Writer(sink, kind, timezone=ZoneInfo("America/New_York")) as writer:
        for at in range(4):
            writer.write((f"s3://us/{at}", at, datetime.datetime(2020, 1 + at, 1, 12, tzinfo=ZoneInfo("UTC"))))
    before, after = (
        orc.read_table(io.BytesIO(data)).to_pylist() for data in (sink.getvalue(), localized(sink.getvalue()))
    )
    assert [row["row"] for row in after] == [row["row"] for row in before]
    assert len({row["row"] for row in after}) == 4


def test_what_can_t_be_held_in_python_is_refused():
    """Maps with a key twice, and fields of one name: nothing of them is lost in silence."""
    twice = pa.StructArray.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"])
    paths, positions = pa.array(["s3://us/a"]), pa.array([1])
    pairs = pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))
    for columns, names in (
        ([paths, positions, twice], ["file_path", "pos", "row"]),
        ([paths, positions, pairs], ["file_path", "pos", "row"]),
        ([paths, paths, paths, positions], ["x", "x", "file_path", "pos"]),
    ):
        sink = io.BytesIO()
        orc.write_table(pa.Table.from_arrays(columns, names), sink, compression="uncompressed")
        of_java = edited(edited(sink.getvalue(), put(9, 0)), put(12, b"2.2.2"))
        refused(of_java, BrokenMetadata, "as they were read|two columns of one name")


def test_senseless_tails():
    source = plain()
    footer = footer_of(source)
    types = values(footer, 4)
    assert isinstance(types[0], bytes)
    root = parse(types[0])
    (stripe,) = values(footer, 3)
    assert isinstance(stripe, bytes)
    fields = parse(stripe)
    for edits in (
        [put(4)],
        [put(4, *types[:2])],
        [put(4, *types, types[1])],
        [put(4, encode(put(2, 0, 0)(root)), *types[1:])],
        [put(4, encode(put(2, 1, 1, 3)(root)), *types[1:])],
        [of_kind(12, 0)],
        [put(6, 61)],
        [put(6, 59)],
        [put(6, 2**63)],
        [put(3, stripe, stripe), put(6, 120)],
        [put(3, encode(put(1, 0)(fields)))],
        [put(3, encode(put(3, 2**40)(fields)))],
        [put(3, encode(put(5, 0)(fields))), put(6, 0)],
        [put(3, encode(put(5, 59)(fields))), put(6, 59)],
        [put(3, encode(put(5, 61)(fields))), put(6, 61)],
        [put(3, 5)],
        [put(6, b"x")],
    ):
        data = source
        for edit in edits:
            data = edited(data, edit)
        refused(data, BrokenMetadata)
    for last in (put(1, 2**40), put(5, 2**40), put(2, 1)):
        refused(edited(source, postscript=last), BrokenMetadata)


@pytest.mark.parametrize(("number", "wrong"), [(0, b"+"), (4, b"9")])
def test_paths_that_disagree_with_the_statistics(number: int, wrong: bytes):
    words = b"".join(b"s3://us/t/%d.parquet" % at for at in range(5))
    data = write_rows("orc", ROWS, compression="uncompressed", dictionary_key_size_threshold=1.0)
    assert data.count(words) == 1
    damaged_words = words.replace(b"/%d." % number, b"/" + wrong + b".")
    refused(data.replace(words, damaged_words), BrokenMetadata, "the statistics have another")


def test_positions_that_disagree_with_the_statistics():
    rows: list[Any] = [("s3://us/t/a", number * number, None) for number in range(60)]
    data = write_rows("orc", rows, compression="uncompressed")
    pos = footer_of(data)
    statistics = [parse(one) for one in values(pos, 7) if isinstance(one, bytes)]
    numbers = parse(next(value for number, value in statistics[2] if number == 2 and isinstance(value, bytes)))
    for number in (1, 2, 3):
        wrong = encode(put(2, encode(put(number, 8)(numbers)))(statistics[2]))
        every = [*(encode(one) for one in statistics[:2]), wrong, *(encode(one) for one in statistics[3:])]
        refused(edited(data, put(7, *every)), BrokenMetadata, "the statistics have another")


def test_a_file_without_statistics_or_of_a_writer_that_leaves_some_out():
    assert read_rows("orc", localized(edited(plain(), put(7)))) == expected(ROWS)
    statistics = [parse(one) for one in values(footer_of(plain()), 7) if isinstance(one, bytes)]
    without = [encode([field for field in one if field[0] in (1, 10)]) for one in statistics]
    of_trino = edited(edited(plain(), put(7, *without)), lambda footer: put(9, 4)(put(12)(footer)))
    assert read_rows("orc", localized(of_trino)) == expected(ROWS)


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


def apart(data: bytes, limits: Limits | None = None) -> bytes | None:
    return localize_position_deletes(
        data, URI, map_content=content, limits=limits or Limits(), localize_orc=localize_orc_in_subprocess
    )


def test_a_process_of_its_own_writes_the_same():
    for name in GOLDEN:
        assert apart(golden(name)) == localized(golden(name))
        assert apart(localized(golden(name))) is None

    def refuse(uri: str) -> str:
        raise UnregisteredUri(uri)

    with pytest.raises(UnregisteredUri):
        localize_orc_in_subprocess(golden("rows.orc"), URI, refuse, Limits())
    with pytest.raises(Unsupported, match="encrypted") as caught:
        apart(edited(plain(), postscript=put(7, 5)))
    assert caught.value.file == URI


def test_a_crash_of_the_library_is_an_error_of_its_file_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    (tmp_path / "sitecustomize.py").write_text(
        f"import os\nimport {localizer.__name__} as module\nreal = module.{localizer.read_orc_paths.__name__}\n"
        f"def crash(data, *rest):\n    return os.abort() if b'crash' in data else real(data, *rest)\n"
        f"module.{localizer.read_orc_paths.__name__} = crash\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    bad = write_rows("orc", [("s3://us/crash", 1, None)], compression="uncompressed")
    with pytest.raises(BrokenMetadata, match="the process that read it died of signal 6") as caught:
        apart(bad)
    assert caught.value.file == URI
    assert apart(plain()) == localized(plain())


def test_a_damage_that_crashes_the_library():
    """Statistics of another kind than their column: pyorc 0.12 follows a null pointer."""
    statistics = [parse(one) for one in values(footer_of(plain()), 7) if isinstance(one, bytes)]
    swapped = [encode(statistics[at]) for at in (0, 2, 1, 3, 4, 5)]
    with pytest.raises(BrokenMetadata, match=r"died of signal 11|statistics"):
        apart(edited(plain(), put(7, *swapped)))


def test_strings_that_grow_over_the_limit(monkeypatch: pytest.MonkeyPatch):
    rows: list[Any] = [("s3://us/a", number, {"number": 1, "text": "x" * 100_000}) for number in range(3000)]
    data = write_rows("orc", rows, compression="zstd", dictionary_key_size_threshold=1.0)
    assert len(data) < 30_000
    assert apart(data) is not None
    monkeypatch.setattr(orc_sandbox, "BASE_BYTES", 200 << 20)
    with pytest.raises(OverLimit, match=r"over the limit.*limits\.delete_bytes") as caught:
        apart(data, Limits(delete_bytes=1_000_000))
    assert caught.value.file == URI


@pytest.mark.parametrize("codec", CODECS)
def test_damage(codec: str):
    good = write_rows("orc", ROWS * 5, compression=codec, stripe_size=1000)
    rng = random.Random(codec)
    for _ in range(60):
        try:
            apart(damaged(good, rng))
        except TableError as error:
            assert error.file == URI
