"""The partition of a file, proven by Iceberg's transforms of its values; pure.

Source: Apache Iceberg, "Spec", "Partition Transforms" and "Appendix B: 32-bit Hash Requirements".
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

from sterna.errors import Unsupported
from sterna.pipelines.ingest.column_types import Type, parse_decimal

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How Iceberg spells that a partition has no value."""
_PARAMETER = re.compile(r"(bucket|truncate)\[([0-9]{1,9})\]")
_DECIMAL_CONTEXT = Context(prec=80)  # a decimal has 38, and Python's own context 28
_EPOCH_ORDINAL = date(1970, 1, 1).toordinal()
_EPOCH_INSTANT = datetime(1970, 1, 1)
_INTEGER_TYPES = ("int", "long")
_TIMESTAMP_TYPES = ("timestamp", "timestamptz")


def is_ordered(transform: str) -> bool:
    """Return whether values between two others are in their partition where both are in one."""
    return not transform.startswith("bucket")


def format_partition(values: Iterable[Any], transform: str, type: Type, column: str) -> str:
    """Return the one partition of all values, as Iceberg's builder of data files reads it.

    Args:
        values: all of the column, or its smallest and largest where the transform keeps order.
        transform: as a partition spec writes it.
        type: the column's.
        column: its name.

    Raises:
        Unsupported: they are in several, or it can't be proven for such a column.
    """
    partitions = {_partition_value(value, transform, type, column) for value in values}
    if len(partitions) != 1:
        count = "several partitions" if partitions else "no partition"
        raise Unsupported(f"its rows are in {count}, by {transform} of column {column!r}")
    return partitions.pop()


def _partition_value(value: Any, transform: str, type: Type, column: str) -> str:
    if transform == "void" or value is None:
        return NULL
    parameter = _PARAMETER.fullmatch(transform)
    partition: Any = _UNSUPPORTED
    if transform == "identity":
        partition = _identity(value, type)
    elif transform in ("year", "month", "day", "hour"):
        partition = _time(value, transform, type)
    elif parameter and parameter[1] == "truncate":
        partition = _truncate(value, int(parameter[2]), type)
    elif parameter:
        partition = _bucket(value, int(parameter[2]), type)
    if partition is _UNSUPPORTED or partition == NULL:
        raise Unsupported(f"its partition can't be determined, by {transform} of column {column!r}")
    return str(partition)


_UNSUPPORTED = object()


def _identity(value: Any, type: Type) -> Any:
    if type == "boolean":
        return "true" if value else "false"
    if type == "date":
        return value.isoformat()
    if parse_decimal(type):
        return format(value, "f")
    return value if type in (*_INTEGER_TYPES, "string") else _UNSUPPORTED


def _time(value: Any, transform: str, type: Type) -> Any:
    if type == "date" and transform == "day":
        return value.isoformat()
    if type not in ("date", *_TIMESTAMP_TYPES) or (type == "date" and transform == "hour"):
        return _UNSUPPORTED
    if transform == "year":
        return value.year - 1970
    if transform == "month":
        return (value.year - 1970) * 12 + value.month - 1
    if transform == "day":
        return value.date().isoformat()
    since = value.replace(tzinfo=None) - _EPOCH_INSTANT
    return since.days * 24 + since.seconds // 3600


def _truncate(value: Any, width: int, type: Type) -> Any:
    if type in _INTEGER_TYPES:
        return value - value % width
    if type == "string":
        return value[:width]
    if sizes := parse_decimal(type):
        unscaled = int(value.scaleb(sizes[1], _DECIMAL_CONTEXT))
        return format(Decimal(unscaled - unscaled % width).scaleb(-sizes[1], _DECIMAL_CONTEXT), "f")
    return _UNSUPPORTED


def _bucket(value: Any, count: int, type: Type) -> Any:
    data = _hash_input(value, type)
    return _UNSUPPORTED if data is None else (murmur3(data) & 0x7FFFFFFF) % count


def _hash_input(value: Any, type: Type) -> bytes | None:
    if type in _INTEGER_TYPES:
        return int(value).to_bytes(8, "little", signed=True)
    if type == "date":
        return int(value.toordinal() - _EPOCH_ORDINAL).to_bytes(8, "little", signed=True)
    if type in _TIMESTAMP_TYPES:
        since = value.replace(tzinfo=None) - _EPOCH_INSTANT
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        return int(micros).to_bytes(8, "little", signed=True)
    if type == "string":
        return bytes(value.encode())
    if type == "binary":
        return bytes(value)
    if sizes := parse_decimal(type):
        unscaled = int(value.scaleb(sizes[1], _DECIMAL_CONTEXT))
        length: int = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8
        return unscaled.to_bytes(length, "big", signed=True)
    return None


def murmur3(data: bytes) -> int:
    """Return MurmurHash3 of 32 bits (x86, seed 0), unsigned."""
    mask, state, aligned = 0xFFFFFFFF, 0, len(data) // 4 * 4
    for offset in range(0, aligned, 4):
        state ^= _mix(int.from_bytes(data[offset : offset + 4], "little"))
        state = ((state << 13 | state >> 19) & mask) * 5 + 0xE6546B64 & mask
    if data[aligned:]:
        state ^= _mix(int.from_bytes(data[aligned:], "little"))
    state ^= len(data)
    for factor, shift in ((0x85EBCA6B, 16), (0xC2B2AE35, 13)):
        state = (state ^ state >> shift) * factor & mask
    return state ^ state >> 16


def _mix(word: int) -> int:
    word = word * 0xCC9E2D51 & 0xFFFFFFFF
    return (word << 15 | word >> 17) * 0x1B873593 & 0xFFFFFFFF
