"""What comes in is looked at before it is taken: what is cut, broken, or becomes too much is refused."""

from __future__ import annotations

import errno
import io
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit, EngineError, IngestError, Remedy
from sterna.pipelines.ingest import validate_parquet
from sterna.pipelines.ingest.validate_arrow import check_arrow
from sterna.pipelines.ingest.validate_json import check_json
from sterna.pipelines.ingest.validate_parquet import check_in_subprocess, check_parquet

LIMITS = TenantLimits()
Check = Callable[[Path, TenantLimits], int]


def small(**limits: float) -> TenantLimits:
    return LIMITS.model_copy(update=limits)


@pytest.fixture
def sent(tmp_path: Path) -> Callable[..., str | int]:
    """Says what a check makes of some bytes: the rows, or the error."""

    def check(how: Check, data: bytes, limits: TenantLimits = LIMITS) -> str | int:
        (tmp_path / "drop").write_bytes(data)
        try:
            return how(tmp_path / "drop", limits)
        except IngestError as error:
            return f"{type(error).__name__}: {error.message}"

    return check


TABLE = pa.table({"id": pa.array(range(1000)), "name": [f"n{number}" for number in range(1000)]})


def parquet(table: pa.Table = TABLE, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def arrow(table: pa.Table = TABLE, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_table(table)
    return sink.getvalue()


@pytest.mark.parametrize(
    "lines", [b'{"a": 1}\n{"a": 2}', b'{"a": 1}\r\n\n  \n{}\r\n', b'{"a": "\\ud83d\\ude00"}\n{"b": [1, {"c": null}]}\n']
)
def test_rows_as_json_are_counted(sent: Callable[..., str | int], lines: bytes) -> None:
    assert sent(check_json, lines) == 2


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"a": 1', "BadDrop: line 2 is no JSON from character 8 on"),
        (b'{"a": 1} {"b": 2}', "BadDrop: line 2 is no JSON from character 10 on"),
        (b"[1]", "BadDrop: line 2 is no JSON object"),
        (b"1", "BadDrop: line 2 is no JSON object"),
        (b'{"a": NaN}', "BadDrop: line 2: NaN is no number of JSON"),
        (b'{"a": -Infinity}', "BadDrop: line 2: -Infinity is no number of JSON"),
        (b'{"a": 1, "a": 2}', "BadDrop: line 2: an object has a name twice"),
        (b'{"a": "\xff"}', "BadDrop: line 2 is no UTF-8 from byte 8 on"),
        (b'{"a": "\\ud800"}', "BadDrop: line 2 has half of a surrogate pair"),
        (b'{"a":\r1}', "BadDrop: line 2 has a carriage return inside"),
        (b"\xef\xbb\xbf{}", "BadDrop: line 2 is no JSON"),
        (b'{"a": ' + b"9" * 5000 + b"}", "BadDrop: line 2: "),
        (b'{"a": ' + b"[" * 40 + b"]" * 40 + b"}", "DropOverLimit: line 2 is nested deeper than 32 (limits.depth)"),
        (b'{"a": ' + b"[" * 200_000, "DropOverLimit: line 2 is nested deeper than 32 (limits.depth)"),
        (b'{"a": "' + b"x" * (1 << 20) + b'"}', "DropOverLimit: line 2 has more than 1048576 bytes (limits.line)"),
    ],
)
def test_a_bad_row_is_named_by_its_line(sent: Callable[..., str | int], line: bytes, said: str) -> None:
    assert str(sent(check_json, b'{"good": 1}\n' + line + b'\n{"good": 2}\n')).startswith(said)


def test_a_column_of_10_mb_is_too_long_for_json_and_not_read_into_memory_whole(sent: Callable[..., str | int]) -> None:
    assert "limits.line" in str(sent(check_json, b'{"a": "' + b"x" * (10 << 20) + b'"}'))


def test_no_rows_are_no_drop(sent: Callable[..., str | int]) -> None:
    for how, data in ((check_json, b"\n \n"), (check_parquet, parquet(TABLE[:0])), (check_arrow, arrow(TABLE[:0]))):
        assert sent(how, data) == "BadDrop: there are no rows"


def test_too_many_rows_are_refused(sent: Callable[..., str | int]) -> None:
    for how, data in ((check_json, b"{}\n" * 11), (check_parquet, parquet()), (check_arrow, arrow())):
        assert "limits.rows" in str(sent(how, data, small(rows=10)))


@pytest.mark.parametrize("options", [{}, {"compression": "zstd"}, {"use_dictionary": False}, {"row_group_size": 10}])
def test_a_parquet_file_is_taken(sent: Callable[..., str | int], options: dict[str, Any]) -> None:
    assert sent(check_parquet, parquet(**options)) == 1000


def test_a_parquet_file_that_is_cut_anywhere_is_refused(sent: Callable[..., str | int]) -> None:
    whole = parquet()
    for length in [*range(0, len(whole), 97), len(whole) - 1, len(whole) - 8]:
        assert str(sent(check_parquet, whole[:length])).startswith("BadDrop: "), length


def test_a_parquet_file_with_bytes_cut_out_is_refused(sent: Callable[..., str | int]) -> None:
    whole = parquet(pa.table({"x": pa.array([f"{number:032}" for number in range(5000)])}), compression=None)
    assert "is outside" in str(sent(check_parquet, whole[:4] + whole[30_000:]))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda data: b"XXXX" + data[4:], "doesn't begin with PAR1"),
        (lambda data: data[:-4] + b"XXXX", "doesn't end with PAR1"),
        (lambda data: data[:-4] + b"PARE", "encrypted"),
        (lambda data: data[:-8] + b"\xff\xff\xff\xff" + data[-4:], "longer than the file"),
        (lambda data: data[:-8] + b"\x00\x00\x00\x00" + data[-4:], "longer than the file"),
        (lambda data: data[: -8 - 50] + b"\xff" * 50 + data[-8:], "can't be read"),
        (lambda data: b"PK\x03\x04" * 100, "doesn't begin with PAR1"),
        (lambda data: b"", "doesn't begin with PAR1"),
    ],
)
def test_what_is_no_parquet_file_is_refused(
    sent: Callable[..., str | int], change: Callable[[bytes], bytes], said: str
) -> None:
    assert said in str(sent(check_parquet, change(parquet())))


def test_a_bomb_is_refused_by_what_it_says_it_becomes(sent: Callable[..., str | int]) -> None:
    zeros = pa.table({"x": pa.array(["0" * 1000] * 20_000)})
    bomb = parquet(zeros, compression="zstd", use_dictionary=False)
    assert "(limits.ratio)" in str(sent(check_parquet, bomb))
    assert sent(check_parquet, bomb, small(ratio=1_000_000)) == 20_000


def test_a_footer_over_the_limit_is_refused_before_it_is_read(sent: Callable[..., str | int]) -> None:
    assert "(limits.footer)" in str(sent(check_parquet, parquet(), small(footer=100)))


def test_arrow_is_taken(sent: Callable[..., str | int]) -> None:
    nested = pa.table(
        {
            "l": pa.array([[1, 2], None, []]),
            "s": pa.array([{"a": 1}, None, {"a": 3}]),
            "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
            "d": pa.array(["x", "y", "x"]).dictionary_encode(),
            "n": pa.nulls(3),
            "f": pa.array([[1, 2]] * 3, pa.list_(pa.int32(), 2)),
        }
    )
    assert sent(check_arrow, arrow()) == 1000
    assert sent(check_arrow, arrow(nested)) == 3


def test_an_arrow_stream_that_is_cut_is_refused(sent: Callable[..., str | int]) -> None:
    whole = arrow(pa.table({"x": [1, 2, 3], "d": pa.array(["a", "b", "a"]).dictionary_encode()}))
    for length in range(0, len(whole) - 16, 5):
        assert str(sent(check_arrow, whole[:length])).startswith("BadDrop: "), length


@pytest.mark.parametrize("more", [arrow(pa.table({"x": [4]})), b"x", b"PAR1", b'{"x": 4}\n'])
def test_what_stands_behind_the_end_of_an_arrow_stream_is_not_passed_over(
    sent: Callable[..., str | int], more: bytes
) -> None:
    """Readers stop at a stream's end: a second one's rows would be answered 201 and read by nobody."""
    whole = arrow(pa.table({"x": [1, 2, 3]}))
    assert str(sent(check_arrow, whole + more)).startswith("BadDrop: this is no Arrow stream: ")
    assert sent(check_arrow, whole + b"\0" * 8) == 3
    assert sent(check_arrow, whole[:-8]) == 3  # the end may be left out


@pytest.mark.parametrize("compression", ["zstd", "lz4"])
def test_compressed_arrow_is_refused_before_it_is_unpacked(sent: Callable[..., str | int], compression: str) -> None:
    assert "compressed buffers" in str(sent(check_arrow, arrow(TABLE, compression)))
    words = pa.table({"d": pa.array(["a" * 100_000] * 3).dictionary_encode()})
    assert "compressed buffers" in str(sent(check_arrow, arrow(words, compression)))


def test_a_dictionary_is_no_way_around_the_ratio(sent: Callable[..., str | int]) -> None:
    long = pa.DictionaryArray.from_arrays(pa.array([0] * 10_000, pa.int8()), pa.array(["x" * 10_000]))
    assert "limits.ratio" in str(sent(check_arrow, arrow(pa.table({"d": long}))))


@pytest.mark.parametrize(
    "column",
    [
        pa.array([[None, None]], pa.list_(pa.null())),
        pa.array([{}], pa.struct([])),
        pa.RunEndEncodedArray.from_arrays([1_000_000], ["x"]),
        pa.array([[]], pa.list_(pa.int64(), 0)),
        pa.array(["x"], pa.string_view()),
        pa.array([b""], pa.binary(0)),
        pa.array([1], pa.duration("s")),
    ],
)
def test_types_that_no_table_has_are_refused(sent: Callable[..., str | int], column: Any) -> None:
    assert "has a type that no table has" in str(sent(check_arrow, arrow(pa.table({"c": column}))))


def test_arrow_that_is_nested_too_deeply_is_refused(sent: Callable[..., str | int]) -> None:
    deep = pa.int64()
    for _ in range(40):
        deep = pa.list_(deep)
    assert "limits.depth" in str(sent(check_arrow, arrow(pa.table({"c": pa.array([None], deep)}))))


def test_arrow_with_offsets_that_lead_out_of_it_is_refused(sent: Callable[..., str | int]) -> None:
    words = pa.Array.from_buffers(
        pa.string(), 2, [None, pa.py_buffer(b"\0\0\0\0\xff\xff\0\0\3\0\0\0"), pa.py_buffer(b"abc")]
    )
    assert str(sent(check_arrow, arrow(pa.table({"c": words})))).startswith("BadDrop: ")


@pytest.mark.parametrize("how", [check_json, check_parquet, check_arrow])
def test_noise_is_refused_and_nothing_dies_of_it(sent: Callable[..., str | int], how: Check) -> None:
    import random

    dice = random.Random(7)
    for base in (parquet(), arrow(), b'{"a": 1}\n' * 50):
        for _ in range(150):
            data = bytearray(base)
            for _ in range(dice.randint(1, 6)):
                data[dice.randrange(len(data))] = dice.randrange(256)
            outcome = sent(how, bytes(data))
            assert isinstance(outcome, int) or outcome.startswith((BadDrop.__name__, DropOverLimit.__name__))


def _number(value: int) -> bytes:
    encoded = b""
    while value > 127:
        encoded, value = encoded + bytes([value & 127 | 128]), value >> 7
    return encoded + bytes([value])


def footer_of(columns: int) -> bytes:
    """A file of nothing but a footer, whose columns have 8 bytes each there, and some 1,400 in memory."""
    root = b"\x48\x01r\x15" + _number(2 * columns) + b"\x00"
    leaf = b"\x15\x02\x25\x02\x18\x01a\x00"
    footer = b"\x15\x02\x19\xfc" + _number(columns + 1) + root + leaf * columns + b"\x16\x02\x19\x0c\x00"
    return b"PAR1" + footer + len(footer).to_bytes(4, "little") + b"PAR1"


@pytest.mark.slow
def test_a_footer_that_takes_all_memory_ends_nothing_but_the_look_at_it(
    sent: Callable[..., str | int],
) -> None:
    assert (
        sent(check_parquet, footer_of(100))
        == "BadDrop: the Parquet file is broken: it declares 1 rows, and its groups have 0"
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    error = sent(check_parquet, footer_of(400_000), small(footer_memory=256 << 20))
    assert str(error).startswith("DropOverLimit: the footer of the Parquet file can't be read"), error
    assert str(error).endswith("(limits.footer_memory)")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # KiB


def test_a_footer_that_takes_too_long_is_refused_with_its_limit(sent: Callable[..., str | int]) -> None:
    assert "more than 0.01 s (limits.footer_time)" in str(
        sent(check_parquet, footer_of(400_000), small(footer_time=0.01))
    )


@pytest.mark.slow
def test_a_large_footer_that_is_honest_is_taken_and_refused_as_a_small_one(sent: Callable[..., str | int]) -> None:
    wide = parquet(pa.table({f"column_{number}": [number, number] for number in range(4_000)}))
    assert int.from_bytes(wide[-8:-4], "little") > 256 << 10
    assert sent(check_parquet, wide) == 2
    assert "limits.rows" in str(sent(check_parquet, wide, LIMITS.model_copy(update={"rows": 1})))


def test_a_disk_that_is_full_is_no_fault_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def run(self, *arguments: object) -> None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(validate_parquet, "FORK_SERVER", Full())
    with pytest.raises(EngineError, match=r"can't be read in a process: No space left on device") as caught:
        check_in_subprocess(tmp_path / "drop", LIMITS)
    assert caught.value.remedy is Remedy.RETRY
