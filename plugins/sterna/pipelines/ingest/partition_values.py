"""The partition of a file, proven by PyIceberg's transforms of its values; pure."""

from __future__ import annotations

from collections.abc import Collection
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

from sterna.errors import Unsupported
from sterna.pipelines.ingest.column_types import Type

NULL = "__HIVE_DEFAULT_PARTITION__"
"""How Iceberg spells that a partition has no value."""
_EPOCH = date(1970, 1, 1)


def is_ordered(transform: str) -> bool:
    """Return whether values between two others are in their partition where both are in one."""
    return not transform.startswith("bucket")


def format_partition(values: Collection[Any], transform: str, type: Type, column: str) -> str:
    """Return the one partition of all values, as Iceberg's builder of data files reads it.

    Args:
        values: all of the column, or its smallest and largest where the transform keeps order.
        transform: as a partition spec writes it.
        type: the column's.
        column: its name.

    Raises:
        Unsupported: they are in several, or it can't be proven for such a column.
    """
    filled = {value for value in values if value is not None and transform != "void"}
    partitions = _transform(filled, transform, type)
    if (filled and not partitions) or NULL in partitions:
        raise Unsupported(f"its partition can't be determined, by {transform} of column {column!r}")
    if len(filled) < len(set(values)):
        partitions.add(NULL)
    if len(partitions) != 1:
        count = "several partitions" if partitions else "no partition"
        raise Unsupported(f"its rows are in {count}, by {transform} of column {column!r}")
    return partitions.pop()


def _transform(values: Collection[Any], transform: str, type: Type) -> set[str]:
    """Return the partitions of values; none where Iceberg's builder reads none of such a type, or for no value."""
    from pyiceberg.exceptions import ValidationError
    from pyiceberg.transforms import parse_transform
    from pyiceberg.types import BooleanType, DateType, DecimalType, IntegerType, LongType, PrimitiveType, StringType

    try:
        parsed, source = parse_transform(transform), PrimitiveType.model_validate(type)
    except (ValidationError, ValueError):
        return set()
    # It takes `bucket[4]x` for `bucket[4]`.
    if str(parsed) != transform or not parsed.can_transform(source):
        return set()
    result = parsed.result_type(source)
    if not isinstance(result, (BooleanType, DateType, DecimalType, IntegerType, LongType, StringType)):
        return set()
    apply = parsed.transform(source)
    return {_format(apply(value), is_date=isinstance(result, DateType)) for value in values}


def _format(partition: Any, *, is_date: bool) -> str:
    if isinstance(partition, bool):
        return "true" if partition else "false"
    if isinstance(partition, Decimal):
        return format(partition, "f")
    if is_date and isinstance(partition, int):
        partition = _EPOCH + timedelta(days=partition)
    return str(partition)
