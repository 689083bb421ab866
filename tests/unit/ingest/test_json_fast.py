"""What Arrow's reader of JSON takes is what row by row comes to; what that refuses it refuses, too."""

from __future__ import annotations

import random
from pathlib import Path

import pyarrow as pa
import pytest

from sterna.pipelines.ingest.column_types import arrow_type
from sterna.pipelines.ingest.columns import Column
from sterna.pipelines.ingest.json_columns import read_fast
from sterna.pipelines.ingest.json_rows import build_converter, parse_line
from sterna.pipelines.ingest.strict_parsing import BadValue

COLUMNS = (
    Column("i", "int"),
    Column("l", "long"),
    Column("d", "double"),
    Column("s", "string"),
    Column("b", "boolean"),
)
LONGEST = 20
NUMBERS = [
    "0", "-0", "1", "-1", "1.0", "1e2", "1E-7", "2147483647", "2147483648", "-2147483649", "9223372036854775807",
    "9223372036854775808", "-9223372036854775808", "9007199254740993", "0.1", "1.7976931348623157e308", "1e309",
    "-1e400", "5e-324", "2e-324", "1e-400", "3.0000000000000004", "123456789012345678901234567890", "01", "+1", ".5",
    "1.", "NaN", "Infinity", "-Infinity", "0.30000000000000004", "8.41e21", "2.2250738585072011e-308",
    "179769313486231580793728971405301e276", "1e999999999", "0x10",
]  # fmt: skip
TEXTS = [
    '""', '"a"', '"é日"', '"\\u00e9"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\udc00x"', '"a\\nb"', '"\\u0000"', '"\\/"',
    '"' + "x" * 20 + '"', '"' + "é" * 20 + '"', '"' + "x" * 21 + '"', '"a\tb"', '"\\x"', '"2026-01-01"', "'a'",
    '"2026-01-01T00:00:00Z"', '"\x7f"', '"}{"', '"{"',
]  # fmt: skip
OTHERS = ["null", "true", "false", "True", "[]", "{}", "[1]", '{"x": 1}', "", "nul"]


def slow(data: bytes) -> list[dict[str, object]] | None:
    """Row by row; None: some row is bad."""
    takers = {column.name: build_converter(column.type) for column in COLUMNS}
    parsed = []
    for line in data.split(b"\n"):
        if not line.strip():
            continue
        try:
            row = parse_line(line)
            if set(row) - set(takers):
                return None
            converted = {name: take(row.get(name)) for name, take in takers.items()}
        except BadValue:
            return None
        if any(isinstance(value, str) and len(value) > LONGEST for value in converted.values()):
            return None
        parsed.append(converted)
    schema = pa.schema([pa.field(column.name, arrow_type(column.type)) for column in COLUMNS])
    rows: list[dict[str, object]] = pa.Table.from_pylist(parsed, schema).to_pylist()
    return rows


def same(path: Path, data: bytes) -> bool:
    """See that both come to the same, or that the fast way isn't taken; say whether it was."""
    path.write_bytes(data)
    fast = read_fast(path, COLUMNS, LONGEST)
    if fast is None:
        return False
    by_row = slow(data)
    assert by_row is not None, data
    assert repr(fast.to_pylist()) == repr(by_row), data
    return True


@pytest.mark.parametrize("column", [column.name for column in COLUMNS])
def test_each_value_in_each_column(tmp_path: Path, column: str) -> None:
    taken = [
        value
        for value in (*NUMBERS, *TEXTS, *OTHERS)
        if same(tmp_path / "f", b'{"%s": %s}\n' % (column.encode(), value.encode()))
    ]
    assert "null" in taken and len(taken) >= 3


def test_odd_lines(tmp_path: Path) -> None:
    good, path = b'{"l": 1}', tmp_path / "f"
    assert same(path, good) and same(path, good + b"\n" + good + b"\n") and same(path, b'{"l": 1, "s": "x"}\n{}\n')
    for odd in (
        b"", b"\n", b" " + good, good + b" ", good + b"\r\n", b"\xef\xbb\xbf" + good, good + good, good + b" " + good,
        good + b"\r" + good, b'{"l":\n1}', b'{"l": 1}\n\n{"l": 2}', b'{"l": 1, "l": 2}', b'{"l": 1,}', b"[1]",
        b'{"l": 1} // {}', b'/* */{"l": 1}', b'{"s": "\xff"}', b'{"s": "\xed\xa0\x80"}', b'{"x": null}', b'{"L": 1}',
        good.decode().encode("utf-16-le"), b'{"l": 1}\n{"l":{}\n{}}', b'{"l": 1}{"l": 2}\n{"d":{}\n{}}\n',
        b"{}}", b"{{}",
        b'{"s": "a\nb"}', b'{"s": "}\n{"}', b'{"l": 1}\x00', b'{"l"\x00: 1}',
    ):  # fmt: skip
        same(path, odd)
        same(path, good + b"\n" + odd)
        same(path, odd + b"\n" + good)


@pytest.mark.parametrize("seed", range(20))
def test_random_files(tmp_path: Path, seed: int) -> None:
    rng, taken = random.Random(seed), 0
    for _ in range(100):
        lines = []
        for _ in range(rng.randint(1, 6)):
            fields = []
            for column in COLUMNS:
                if rng.random() < 0.3:
                    continue
                number = rng.choice([str(rng.randint(-(2**31), 2**31 - 1)), repr(rng.uniform(-9e15, 9e15))])
                long = str(rng.randint(-(2**63), 2**63))
                usual = {"s": '"ab"', "b": "true", "d": number, "i": "7", "l": long}
                value = usual[column.name] if rng.random() < 0.97 else rng.choice([*NUMBERS, *TEXTS, *OTHERS])
                fields.append(f'"{column.name}": {value}')
            rng.shuffle(fields)
            lines.append("{" + ", ".join(fields) + "}")
        taken += same(tmp_path / "f", "\n".join(lines).encode() + b"\n")
    assert taken > 30


def test_what_it_doesn_t_look_at(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b'{"l": null}\n')
    assert read_fast(path, [Column("l", "long", required=True)], LONGEST) is None
    for type in ("float", "date", "timestamptz", "decimal(9, 2)", "uuid", "binary", {"type": "list"}):
        assert read_fast(path, [Column("l", type)], LONGEST) is None
    assert read_fast(path, (), LONGEST) is None
