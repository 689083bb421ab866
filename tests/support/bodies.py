"""Bodies of any types and layouts, and what is to become of their rows: by pyarrow's own values, and exact arithmetic.

Nothing of sterna is asked here: what a row is comes from the scalars that pyarrow reads, with times as fractions of a
microsecond, and a row is dead where one of them is no whole number of 64 bits.
"""

from __future__ import annotations

import base64
import datetime as dt
import io
import json
import struct
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import reject
from hypothesis import strategies as st

DEAD = object()
_UNITS = {"s": Fraction(1_000_000), "ms": Fraction(1_000), "us": Fraction(1), "ns": Fraction(1, 1_000)}
_BITS = 1 << 63
_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


@dataclass
class Body:
    """What is sent, and what becomes of it.

    Args:
        format: `json`, `arrow` or `parquet`.
        content: the bytes.
        rows: what each row is, as `plain` shows it; DEAD: it is a dead letter.
        refused: no table has its types: 422.
        overlapping: its layout isn't taken in a stream: 422.
        columns: of the table that it is sent to, as Iceberg's JSON has their types; none: it is made of it.
    """

    format: str
    content: bytes
    rows: list[Any]
    refused: bool = False
    overlapping: bool = False
    columns: dict[str, Any] = field(default_factory=dict)


class Dead(Exception):
    """A value that its column doesn't hold."""


def plain(value: pa.Scalar) -> Any:
    """Return a value without its layout: times as microseconds, floats and UUIDs as texts, nothing for no value.

    Raises:
        Dead: no column holds it.
    """
    kind = value.type
    if isinstance(value, pa.ExtensionScalar):
        return None if value.value is None else str(uuid.UUID(bytes=value.value.as_py()))
    if not value.is_valid:
        return None
    if isinstance(value, pa.DictionaryScalar):
        return plain(value.value)
    if pa.types.is_timestamp(kind) or pa.types.is_time(kind):
        return _whole(value.cast(pa.int64() if kind.bit_width == 64 else pa.int32()).as_py() * _UNITS[kind.unit])
    if pa.types.is_integer(kind):
        return _whole(Fraction(value.as_py()))
    if pa.types.is_floating(kind):
        return repr(value.as_py())
    if pa.types.is_map(kind):
        return [(plain(pair["key"]), plain(pair["value"])) for pair in value.values]
    if pa.types.is_struct(kind):
        return {name: inner for name in value if (inner := plain(value[name])) is not None}
    if pa.types.is_nested(kind):
        return [plain(element) for element in value.values]
    return value.as_py()


def _whole(number: Fraction) -> int:
    if number.denominator != 1 or not -_BITS <= number < _BITS:
        raise Dead
    return int(number)


def plain_rows(table: pa.Table) -> list[Any]:
    """Return the rows of a table as `plain` shows them, or DEAD."""
    rows = []
    for place in range(table.num_rows):
        try:
            row = {name: plain(table.column(name)[place]) for name in table.column_names}
            rows.append({name: value for name, value in row.items() if value is not None})
        except Dead:
            rows.append(DEAD)
    return rows


def _maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def _near(bound: int, step: int = 1) -> st.SearchStrategy[int]:
    """Numbers below a bound, at its edges, and multiples of a step."""
    edges = st.sampled_from([0, 1, bound - 1, bound // 2, bound // 2 + 1])
    return edges | st.integers(0, bound - 1) | st.integers(0, (bound - 1) // step).map(lambda it: it * step)


def _signed(bits: int, step: int = 1) -> st.SearchStrategy[int]:
    most = 1 << (bits - 1)
    return st.tuples(st.sampled_from([1, -1]), _near(most, step)).map(lambda it: it[0] * it[1])


_TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=8)
LEAVES: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.bool_(), st.booleans()),
    *((pa.int8(), _signed(8)), (pa.int16(), _signed(16)), (pa.int32(), _signed(32)), (pa.int64(), _signed(64))),
    *((pa.uint8(), _near(1 << 8)), (pa.uint16(), _near(1 << 16)), (pa.uint32(), _near(1 << 32))),
    (pa.uint64(), _near(1 << 64)),
    *((pa.float16(), st.floats(width=16)), (pa.float32(), st.floats(width=32)), (pa.float64(), st.floats())),
    (pa.decimal128(9, 2), st.decimals(-9_999_999, 9_999_999, places=2)),
    (pa.decimal256(38, 0), st.decimals(-(10**30), 10**30, places=0)),
    (pa.decimal32(7, 3), st.decimals(-9_999, 9_999, places=3)),
    (pa.date32(), st.integers(-100_000, 100_000)),
    *((pa.time32(unit), _near(_DAY[unit])) for unit in ("s", "ms")),
    *((pa.time64(unit), _near(_DAY[unit], 1_000)) for unit in ("us", "ns")),
    *((pa.timestamp(unit), _signed(63, 1_000)) for unit in ("ms", "us", "ns")),
    *((pa.timestamp(unit, zone), _signed(63, 1_000)) for unit in ("ms", "ns") for zone in ("UTC", "+05:30")),
    *((kind, _TEXT) for kind in (pa.string(), pa.large_string(), pa.string_view())),
    *((kind, st.binary(max_size=8)) for kind in (pa.binary(), pa.large_binary(), pa.binary_view())),
    (pa.binary(3), st.binary(min_size=3, max_size=3)),
    (pa.uuid(), st.binary(min_size=16, max_size=16)),
]  # fmt: skip
REFUSED: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.duration("us"), st.integers(0, 9)),
    (pa.decimal256(50, 2), st.decimals(0, 9, places=2)),
]
_OVERLAPPING = ("string_view", "binary_view", "list_view", "large_list_view")


def _nested(inner: st.SearchStrategy[tuple[pa.DataType, Any]]) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    def lists(leaf: tuple[pa.DataType, Any], make: Callable[[pa.DataType], pa.DataType]) -> tuple[pa.DataType, Any]:
        return make(leaf[0]), st.lists(_maybe(leaf[1]), max_size=3)

    makers = st.sampled_from([pa.list_, pa.large_list, pa.list_view, pa.large_list_view])
    pair = inner.map(lambda leaf: (pa.list_(leaf[0], 2), st.lists(_maybe(leaf[1]), min_size=2, max_size=2)))
    maps = inner.map(
        lambda leaf: (
            pa.map_(pa.string(), leaf[0]),
            st.lists(st.tuples(_TEXT, _maybe(leaf[1])), max_size=3, unique_by=lambda it: it[0]),
        )
    )
    structs = st.lists(inner, min_size=1, max_size=3).map(
        lambda leaves: (
            pa.struct([(f"f{place}", kind) for place, (kind, _) in enumerate(leaves)]),
            st.fixed_dictionaries({f"f{place}": _maybe(strategy) for place, (_, strategy) in enumerate(leaves)}),
        )
    )
    return st.tuples(inner, makers).map(lambda it: lists(*it)) | pair | maps | structs


def columns(leaves: list[tuple[pa.DataType, Any]]) -> st.SearchStrategy[tuple[pa.DataType, Any]]:
    """A type, and what makes values of it."""
    leaf = st.sampled_from(leaves)
    # pyarrow makes no arrays of extension types inside of others.
    inner = st.sampled_from([candidate for candidate in leaves if not isinstance(candidate[0], pa.BaseExtensionType)])
    return leaf | _nested(inner) | _nested(_nested(inner))


def _has(kind: pa.DataType, names: tuple[str, ...]) -> bool:
    if any(getattr(pa.types, f"is_{name}")(kind) for name in names):
        return True
    if pa.types.is_dictionary(kind):
        return _has(kind.value_type, names)
    return any(_has(kind.field(place).type, names) for place in range(kind.num_fields))


@st.composite
def files(draw: st.DrawFn, leaves: list[tuple[pa.DataType, Any]] | None = None) -> Body:
    """A body of Arrow or Parquet."""
    chosen = draw(st.lists(columns(leaves or LEAVES), min_size=1, max_size=3))
    if leaves is None and draw(st.integers(0, 9)) == 0:
        chosen.append(draw(columns(REFUSED)))
    count = draw(st.integers(1, 6))
    arrays: dict[str, pa.Array] = {"id": pa.array(range(count), pa.int64())}
    for place, (kind, values) in enumerate(chosen):
        array = pa.array(draw(st.lists(_maybe(values), min_size=count, max_size=count)), kind)
        plain_layout = (
            not pa.types.is_nested(kind) and not _has(kind, _OVERLAPPING) and not isinstance(array, pa.ExtensionArray)
        )
        arrays[f"c{place}"] = array.dictionary_encode() if plain_layout and draw(st.booleans()) else array
    table = pa.table(arrays)
    format = draw(st.sampled_from(["arrow", "parquet"]))
    try:
        content = written(table, format)
    except pa.ArrowNotImplementedError:  # of views in some places
        reject()
    sent = read(content, format)  # Parquet doesn't keep each type of Arrow
    overlapping = format == "arrow" and any(_has(column.type, _OVERLAPPING) for column in sent.schema)
    refused = any(_has(column.type, ("duration",)) or "(50, 2)" in str(column.type) for column in sent.schema)
    if refused or overlapping:
        return Body(format, content, [], refused=refused, overlapping=overlapping)
    return Body(format, content, plain_rows(sent))


def written(table: pa.Table, format: str) -> bytes:
    """Return a table as it is sent."""
    sink = io.BytesIO()
    if format == "parquet":
        pq.write_table(table, sink)
    else:
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
    return sink.getvalue()


def read(content: bytes, format: str) -> pa.Table:
    """Return what pyarrow reads of a body."""
    if format == "parquet":
        return pq.read_table(pa.BufferReader(content))
    return pa.ipc.open_stream(content).read_all()


# For each type, texts of JSON whose value is beyond doubt, and ways to spoil them.
def _day(draw: st.DrawFn) -> tuple[str, int]:
    day = draw(st.dates())
    return f"{day.year:04}-{day.month:02}-{day.day:02}", day.toordinal() - 719_163


def _clock(draw: st.DrawFn) -> tuple[str, int]:
    hour, minute, second = draw(st.integers(0, 23)), draw(st.integers(0, 59)), draw(st.integers(0, 59))
    digits = draw(st.text("0123456789", max_size=6))
    text = f"{hour:02}:{minute:02}:{second:02}" + (f".{digits}{'0' * draw(st.integers(0, 3))}" if digits else "")
    return text, ((hour * 60 + minute) * 60 + second) * 1_000_000 + int(digits.ljust(6, "0"))


def _spoiled(draw: st.DrawFn, text: str) -> str:
    """A text that standard libraries often take for the same value, and no standard does."""
    place = draw(st.integers(0, len(text) - 1))
    digits = [at for at, letter in enumerate(text) if letter.isdigit()]
    at = draw(st.sampled_from(digits))
    ways = {
        "before": f" {text}",
        "after": f"{text} ",
        "line": f"{text}\n",
        "inside": f"{text[:place]} {text[place:]}",
        "underscore": f"{text[:at]}_{text[at:]}",
        "script": text[:at] + chr(0x0660 + int(text[at])) + text[at + 1 :],
        "wide": text[:at] + chr(0xFF10 + int(text[at])) + text[at + 1 :],
        "sign": f"+{text}",
        "zero": text + "\0",
    }
    return ways[draw(st.sampled_from(sorted(ways)))]


JSON_COLUMNS: dict[str, Any] = {
    "i": "int", "l": "long", "d": "double", "f": "float", "n": "decimal(20, 3)", "b": "boolean", "s": "string",
    "day": "date", "clock": "time", "at": "timestamp", "zoned": "timestamptz", "u": "uuid", "x": "binary",
    "fx": "fixed[2]",
    "m": {"type": "map", "key": "int", "value": "long"},
    "deep": {
        "type": "struct",
        "fields": [{"name": "days", "type": {"type": "list", "element": "date"}}, {"name": "n", "type": "int"}],
    },
}  # fmt: skip


def _number(draw: st.DrawFn) -> Any:
    edges = [1 << 24, 1 << 31, 1 << 53, 1 << 63, 10**16]
    return draw(
        st.integers(-100, 100)
        | st.sampled_from(edges)
        .flatmap(lambda edge: st.integers(edge - 2, edge + 2))
        .flatmap(lambda number: st.sampled_from([number, -number]))
    )


def _json_value(draw: st.DrawFn, name: str) -> tuple[Any, Any]:
    """What stands in JSON, and its value as `plain` shows it; DEAD: it is none."""
    if name in ("i", "l", "d", "f", "n"):
        number = _number(draw)
        return number, _held(number, name)
    if name in _CHOICES:
        return draw(st.sampled_from(_CHOICES[name]))
    if name == "s":
        text = draw(_TEXT)
        return draw(st.sampled_from([(text, text), (1, DEAD), ([text], DEAD)]))
    if name == "x":
        data = draw(st.binary(max_size=5))
        text = base64.b64encode(data).decode()
        return draw(st.sampled_from([(text, data), (text + "=", DEAD), (" " + text, DEAD)]))
    if name == "deep":
        text, day = _text(draw, "day")
        return {"days": [text, None]}, DEAD if day is DEAD else {"days": [day, None]}
    return _text(draw, name)


_CHOICES: dict[str, list[tuple[Any, Any]]] = {
    "b": [(True, True), (False, False), (1, DEAD), ("true", DEAD), (0, DEAD)],
    "fx": [("AAE=", b"\0\1"), ("AA==", DEAD), ("AAEC", DEAD), ("AAF=", DEAD)],
    "m": [({"7": 1}, [(7, 1)]), ({}, []), ({"07": 1}, DEAD), ({" 7": 1}, DEAD), ({"7": 1.5}, DEAD)],
}


def _held(number: int, name: str) -> Any:
    """What a column makes of a whole number."""
    if name in ("i", "l"):
        most = 1 << (31 if name == "i" else 63)
        return number if -most <= number < most else DEAD
    if name == "n":
        return Decimal(number) if abs(number) < 10**17 else DEAD
    real = float(number) if name == "d" else struct.unpack("<f", struct.pack("<f", number))[0]
    return repr(real) if int(real) == number else DEAD


def _text(draw: st.DrawFn, name: str) -> tuple[str, Any]:
    if name == "u":
        value = draw(st.uuids())
        text, result = draw(st.sampled_from([str(value), str(value).upper()])), str(value)
        loose = draw(st.sampled_from([value.hex, value.urn, f"{{{value}}}"]))
        return (text, result) if draw(st.booleans()) else (loose, DEAD)
    (day, days), (clock, micros) = _day(draw), _clock(draw)
    text: str
    value: Any
    if name == "day":
        text, value = day, _date(days)
    elif name == "clock":
        text, value = clock, micros
    else:
        text, value = f"{day}{draw(st.sampled_from('T '))}{clock}", days * _DAY["us"] + micros
    if name == "zoned":
        minutes = draw(st.integers(-720, 720)) if 2 < days + 719_163 < 3_652_058 else 0
        sign, size = "-" if minutes < 0 else "+", abs(minutes)
        text, value = f"{text}{sign}{size // 60:02}:{size % 60:02}", value - minutes * 60_000_000
    if draw(st.booleans()):
        return text, value
    if name != "day" and draw(st.booleans()):
        start, _, rest = clock.partition(".")
        return text.replace(clock, f"{start}.{rest.ljust(6, '0')}001"), DEAD
    return _spoiled(draw, text), DEAD


def _date(days: int) -> Any:
    return dt.date.fromordinal(days + 719_163)


@st.composite
def lines(draw: st.DrawFn) -> Body:
    """A body of JSON lines for a table of all types."""
    rows, wanted = [], []
    for id in range(draw(st.integers(1, 6))):
        row, value = {"id": id}, {"id": id}
        names = draw(st.lists(st.sampled_from(sorted(JSON_COLUMNS)), max_size=4, unique=True))
        pairs = {name: _json_value(draw, name) for name in names}
        rows.append(row | {name: pair[0] for name, pair in pairs.items()})
        dead = any(pair[1] is DEAD for pair in pairs.values())
        wanted.append(DEAD if dead else value | {name: pair[1] for name, pair in pairs.items()})
    content = b"".join(json.dumps(row).encode() + b"\n" for row in rows)
    return Body("json", content, wanted, columns={"id": "long", **JSON_COLUMNS})
