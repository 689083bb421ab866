"""The columns of an ORC file as Arrow arrays, and back.

Values are kept as they are stored, so that none is lost whatever its type means: a timestamp is its two numbers, a
decimal its bytes and its scale. Only rows are moved. Source: ORC specification v1, "Column Encodings".
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np  # noqa: TID253 - imported by workers that localize a position delete, and by nothing else
import pyarrow as pa  # noqa: TID253

from sterna.errors import Unsupported
from sterna.iceberg.orc.chunks import Budget
from sterna.iceberg.orc.proto import OrcDamaged
from sterna.iceberg.orc.runs import read_bits, read_bytes, read_integers, write_bits, write_bytes, write_integers
from sterna.iceberg.orc.tail import LIST, MAP, STRUCT, Stripe, Tail

PRESENT: Final = 0
_DATA: Final = 1
_LENGTH: Final = 2
_DICTIONARY: Final = 3
_SECONDARY: Final = 5

_PLAIN: Final = 0
_DIRECT: Final = 2
_DICTIONARY_DIRECT: Final = 3

_BOOLEAN: Final = 0
_BYTE: Final = 1
_INTEGERS: Final = (2, 3, 4, 15)
_FIXED: Final[dict[int, Any]] = {5: np.dtype("<u4"), 6: np.dtype("<u8")}
_STRINGS: Final = (7, 8, 16, 17)
_DECIMAL: Final = 14
_TIMESTAMPS: Final = (9, 18)


@dataclass(frozen=True)
class ColumnReader:
    """Reads the columns of one stripe.

    Args:
        tail: the file's tail.
        budget: pays for all values.
        uri: the file's URI, for errors.
    """

    tail: Tail
    stripe: Stripe
    budget: Budget
    uri: str

    def column(self, node: int, count: int) -> Any:
        """Return a column with its nulls.

        Args:
            node: its id.
            count: how many values it has, nulls included.

        Raises:
            Unsupported: run lengths of version 1.
            OrcDamaged: its streams don't conform to the specification.
        """
        if (node, PRESENT) not in self.stripe.streams:
            return self._values(node, count)
        self.budget.spend(count)
        present = read_bits(self._stream(node, PRESENT), count)
        self.budget.spend(8 * count)
        value_indexes = np.cumsum(present) - 1
        return self._values(node, int(present.sum())).take(pa.array(value_indexes, mask=~present))

    def strings(self, node: int, count: int) -> Any:
        """Return a column of strings without nulls, as a dictionary where the file has one.

        Raises:
            OrcDamaged: a string is not in the dictionary.
        """
        encoding, size = self._encoding(node)
        if encoding != _DICTIONARY_DIRECT:
            return _binary(self._integers(node, _LENGTH, count), self._stream(node, _DATA))
        words = _binary(self._integers(node, _LENGTH, size), self._stream(node, _DICTIONARY))
        word_indexes = self._integers(node, _DATA, count)
        if count and not 0 <= word_indexes.min() <= word_indexes.max() < size:
            raise OrcDamaged("a string outside the dictionary")
        return pa.DictionaryArray.from_arrays(pa.array(word_indexes.astype(np.int32)), words)

    def _values(self, node: int, count: int) -> Any:
        """Return as many values as are not null."""
        kind, children = self.tail.types[node].kind, self.tail.types[node].children
        if kind == STRUCT:
            # A struct without fields has a length all the same.
            return pa.StructArray.from_arrays(
                [self.column(child, count) for child in children] or [pa.nulls(count)],
                [str(child) for child in children] or [""],
            )
        if kind in (LIST, MAP):
            return self._list(node, children, count)
        if kind in _STRINGS:
            return self._decode_dictionary(self.strings(node, count))
        if kind in _TIMESTAMPS:
            return _pair(
                pa.array(self._integers(node, _DATA, count, signed=True)), self._integers(node, _SECONDARY, count)
            )
        if kind == _DECIMAL:
            return _pair(
                _varints(self._stream(node, _DATA), count), self._integers(node, _SECONDARY, count, signed=True)
            )
        return pa.array(self._numbers(node, kind, count))

    def _numbers(self, node: int, kind: int, count: int) -> Any:
        if kind in _INTEGERS:
            return self._integers(node, _DATA, count, signed=True)
        self.budget.spend(count)
        data = self._stream(node, _DATA)
        if kind == _BOOLEAN:
            return read_bits(data, count).astype(np.uint8)
        if kind == _BYTE:
            return read_bytes(data, count)
        if len(data) < count * _FIXED[kind].itemsize:
            raise OrcDamaged("a stream with fewer values than rows")
        return np.frombuffer(data, _FIXED[kind], count)

    def _list(self, node: int, children: tuple[int, ...], count: int) -> Any:
        offsets = _offsets(self._integers(node, _LENGTH, count))
        self.budget.spend(8 * int(offsets[-1]))  # items without fields take no bytes of their own
        items = [self.column(child, int(offsets[-1])) for child in children]
        return pa.LargeListArray.from_arrays(
            pa.array(offsets), pa.StructArray.from_arrays(items, [str(child) for child in children])
        )

    def _decode_dictionary(self, strings: Any) -> Any:
        if not pa.types.is_dictionary(strings.type):
            return strings
        self.budget.spend(int(_lengths(strings.dictionary)[strings.indices.to_numpy()].sum(dtype=np.float64)))
        return strings.dictionary_decode()

    def _encoding(self, node: int) -> tuple[int, int]:
        kind, size = self.stripe.encodings[node]
        if kind not in (_DIRECT, _DICTIONARY_DIRECT):
            raise Unsupported("position deletes in ORC with run lengths of version 1", file=self.uri)
        return kind, size

    def _integers(self, node: int, kind: int, count: int, signed: bool = False) -> Any:
        self._encoding(node)
        self.budget.spend(8 * count)
        return read_integers(self._stream(node, kind), count, signed)

    def _stream(self, node: int, kind: int) -> bytes:
        return self.tail.compression.decompress(self.stripe.streams.get((node, kind), b""), self.budget)


@dataclass(frozen=True)
class ColumnWriter:
    """Collects the streams and encodings of one stripe.

    Args:
        tail: the tail of the source.
        streams: column id, kind and bytes, not compressed, of each stream so far.
        encodings: kind of encoding and size of the dictionary of each column so far.
    """

    tail: Tail
    streams: list[tuple[int, int, bytes]]
    encodings: dict[int, tuple[int, int]]

    def column(self, node: int, values: Any) -> None:
        """Write a column; the inverse of `ColumnReader.column`.

        Args:
            node: its id.
            values: its values, an array.
        """
        if values.null_count:
            self._add(node, PRESENT, write_bits(values.is_valid().to_numpy(zero_copy_only=False)))
            values = values.drop_null()
        kind, children = self.tail.types[node].kind, self.tail.types[node].children
        self.encodings[node] = (_PLAIN if kind in (STRUCT, _BOOLEAN, _BYTE, *_FIXED) else _DIRECT, 0)
        if kind == STRUCT:
            for child, column in zip(children, values.flatten(), strict=False):
                self.column(child, column)
        elif kind in (LIST, MAP):
            self._add(node, _LENGTH, write_integers(values.value_lengths().to_numpy(), signed=False))
            for child, column in zip(children, values.flatten().flatten(), strict=True):
                self.column(child, column)
        elif kind in _STRINGS:
            self._add(node, _DATA, _content(values))
            self._add(node, _LENGTH, write_integers(_lengths(values), signed=False))
        elif kind in (*_TIMESTAMPS, _DECIMAL):
            value, other = values.flatten()
            self._add(
                node, _DATA, _content(value) if kind == _DECIMAL else write_integers(value.to_numpy(), signed=True)
            )
            self._add(node, _SECONDARY, write_integers(other.to_numpy(), signed=kind == _DECIMAL))
        else:
            self._add(node, _DATA, _numbers(kind, values.to_numpy()))

    def paths(self, node: int, values: Any) -> None:
        """Write the column of paths.

        Args:
            node: its id.
            values: a dictionary array without nulls, its dictionary sorted.
        """
        used_indexes, word_indexes = np.unique(values.indices.to_numpy(), return_inverse=True)
        words = values.dictionary.take(pa.array(used_indexes))
        self.encodings[node] = (_DICTIONARY_DIRECT, len(words))
        self._add(node, _DATA, write_integers(word_indexes.astype(np.int64), signed=False))
        self._add(node, _LENGTH, write_integers(_lengths(words), signed=False))
        self._add(node, _DICTIONARY, _content(words))

    def _add(self, node: int, kind: int, data: bytes) -> None:
        self.streams.append((node, kind, data))


def _numbers(kind: int, values: Any) -> bytes:
    if kind in _INTEGERS:
        return write_integers(values, signed=True)
    if kind == _BOOLEAN:
        return write_bits(values.astype(bool))
    if kind == _BYTE:
        return write_bytes(values)
    return bytes(values.tobytes())


def _pair(first: Any, second: Any) -> Any:
    return pa.StructArray.from_arrays([first, pa.array(second)], ["value", "other"])


def _offsets(lengths: Any) -> Any:
    # Floats don't wrap: lengths that add up to more than 64 bits must not appear small.
    if len(lengths) and (lengths.min() < 0 or lengths.sum(dtype=np.float64) > 1 << 62):
        raise OrcDamaged("a negative or senseless length")
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))


def _binary(lengths: Any, data: bytes) -> Any:
    offsets = _offsets(lengths)
    if offsets[-1] > len(data):
        raise OrcDamaged("strings that are longer than their stream")
    return pa.LargeBinaryArray.from_buffers(
        pa.large_binary(), len(lengths), [None, pa.py_buffer(offsets.tobytes()), pa.py_buffer(data)]
    )


def _varints(data: bytes, count: int) -> Any:
    # The last byte of each number has its highest bit clear.
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) < 0x80)[:count] + 1
    if len(ends) < count:
        raise OrcDamaged("a stream with fewer values than rows")
    return _binary(np.diff(ends, prepend=0), data)


def _bounds(strings: Any) -> Any:
    """Return where each string of an array starts in its buffer, and the end of the last one."""
    if not len(strings):
        return np.zeros(1, np.int64)
    return np.frombuffer(strings.buffers()[1], np.int64)[strings.offset : strings.offset + len(strings) + 1]


def _lengths(strings: Any) -> Any:
    return np.diff(_bounds(strings))


def _content(strings: Any) -> bytes:
    """Return the strings of an array, end to end."""
    bounds, data = _bounds(strings), strings.buffers()[2]
    return b"" if data is None else bytes(memoryview(data)[bounds[0] : bounds[-1]])
