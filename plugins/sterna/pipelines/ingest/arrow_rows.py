"""Values of Arrow and Parquet as a column takes them: exactly, or the row that has one that it doesn't take; pure.

Every layout is accepted: dictionaries, runs, views, large and fixed-size ones represent the same values.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
from pyarrow import compute

from sterna.pipelines.ingest.column_types import Type, arrow_type, convert_leaves, is_list

_MAX_INT64 = (1 << 63) - 1
_MICROSECONDS_PER_UNIT = {"s": 1_000_000, "ms": 1_000}
_NANOSECONDS_PER_MICROSECOND = 1_000  # in a microsecond
_VIEW_BYTES = 16  # bytes of one
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
RowErrors = dict[int, str]
"""By the place of a value: what is wrong of it, or of a value inside of it."""


def convert_array(values: pa.Array, type: Type, path: str) -> tuple[pa.Array, RowErrors]:
    """Return values as a column takes them, and which of them it doesn't take.

    Args:
        values: an array of a type that fits the column's.
        type: the column's.
        path: how messages call it.

    Returns:
        An array of `arrow_type(type)`, as long as the values; an invalid one is replaced by an arbitrary one.
    """
    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_run_end_encoded(values.type):
        values = compute.run_end_decode(values)
    if pa.types.is_dictionary(values.type):
        # A word that only dead rows have may be no text at all.
        used = compute.unique(values.indices).drop_null()
        indices = compute.index_in(values.indices, value_set=used)
        dictionary, dictionary_errors = convert_array(values.dictionary.take(used), type, path)
        positions = indices.to_pylist() if dictionary_errors else ()
        errors = {
            row: dictionary_errors[position] for row, position in enumerate(positions) if position in dictionary_errors
        }
        return dictionary.take(indices), errors
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(type)), {}
    if isinstance(type, str):
        return _leaf(values, type, path)
    if type["type"] == "struct":
        return _struct(values, type, path)
    return _map(values, type, path) if type["type"] == "map" else _list(values, type, path)


def value_sizes(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return how many bytes each value has, those inside of it counted; one without a value has none.

    Nothing is unpacked for that: a dictionary's value may be in every row.
    """
    if isinstance(values, pa.ExtensionArray):
        return value_sizes(values.storage)
    kind = values.type
    if pa.types.is_run_end_encoded(kind):
        runs = pa.RunEndEncodedArray.from_arrays(values.run_ends, _numbers(value_sizes(values.values)))
        return _ints(compute.run_end_decode(runs.slice(values.offset, len(values))))
    if pa.types.is_dictionary(kind):
        return _ints(_numbers(value_sizes(values.dictionary)).take(values.indices))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _view_sizes(values)
    if _has_length(values.type):
        return _ints(compute.binary_length(values))
    if pa.types.is_map(kind):
        offsets, keys, items = _entries(values)
        totals = _sum_ranges(offsets, np.maximum(value_sizes(keys) + value_sizes(items), 1))
        return np.asarray(totals * np.asarray(values.is_valid()))
    if is_list(kind):
        offsets = _offsets(values)
        return _sum_ranges(offsets, np.maximum(value_sizes(compute.list_flatten(values)), 1))
    if pa.types.is_struct(kind):
        return np.asarray(np.sum([value_sizes(field) for field in values.flatten()], axis=0, dtype=np.int64))
    width = 0 if pa.types.is_null(kind) else (kind.bit_width + 7) // 8
    return np.full(len(values), width, np.int64)


def find_invalid(values: pa.Array) -> RowErrors:
    """Return which values are invalid for their own type, nested ones included: writers don't check.

    Args:
        values: not checked yet.

    Raises:
        pa.ArrowException: they are broken otherwise: what is inside of them can't be read.
    """
    # Arrow names one fault alone: with bytes for texts and the like, whatever else is wrong shows.
    values.view(convert_leaves(pa.field("", values.type), _storage_type).type).validate(full=True)
    errors: RowErrors = {}
    for reason, is_kind in _VALIDITY_CHECKS:
        errors |= dict.fromkeys(_mask_invalid(values, is_kind).nonzero()[0].tolist(), reason)
    return errors


def _storage_type(field: pa.Field) -> pa.DataType:
    """Return a type with the same layout that has bytes or numbers in the place of what `_VALIDITY_CHECKS` looks at."""
    kind = field.type
    if isinstance(kind, pa.BaseExtensionType):
        return convert_leaves(field.with_type(kind.storage_type), _storage_type).type
    for text, storage_type in (
        ("string", pa.binary),
        ("large_string", pa.large_binary),
        ("string_view", pa.binary_view),
    ):
        if getattr(pa.types, f"is_{text}")(kind):
            return storage_type()
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_time(kind) or pa.types.is_date64(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return kind


def _mask_invalid(values: pa.Array, is_kind: Callable[[pa.DataType], bool]) -> np.ndarray[Any, Any]:
    if isinstance(values, pa.ExtensionArray):
        return _mask_invalid(values.storage, is_kind)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _ints(_numbers(_mask_invalid(values.dictionary, is_kind)).take(values.indices)) > 0
    if is_kind(kind):
        return _mask_invalid_leaves(values)
    if pa.types.is_map(kind):
        offsets, keys, items = _entries(values)
        return _sum_ranges(offsets, _mask_invalid(keys, is_kind) | _mask_invalid(items, is_kind)) > 0
    if is_list(kind):
        return _sum_ranges(_offsets(values), _mask_invalid(compute.list_flatten(values), is_kind)) > 0
    mask = np.zeros(len(values), np.bool_)
    for field in values.flatten() if pa.types.is_struct(kind) else ():
        mask |= _mask_invalid(field, is_kind)
    return mask


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _type_check(name: str) -> Callable[[pa.DataType], bool]:
    def is_kind(kind: pa.DataType) -> bool:
        return bool(getattr(pa.types, f"is_{name}")(kind))

    return is_kind


_VALIDITY_CHECKS = (
    ("a text that is no UTF-8", _is_text),
    ("a time that no day has", _type_check("time")),
    ("more digits than its type has", _type_check("decimal")),
    ("a date with a time of the day", _type_check("date64")),
)
"""Arrow's errors for a whole batch with one value that isn't of its type, and the types that have such values."""


def _mask_invalid_leaves(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return which values aren't of their type, by halves: most are."""
    mask = np.zeros(len(values), np.bool_)
    ranges = [(0, len(values))]
    while ranges:
        start, stop = ranges.pop()
        try:
            values.slice(start, stop - start).validate(full=True)
        except pa.ArrowInvalid:
            middle = (start + stop) // 2
            mask[start] |= stop - start == 1
            ranges += [(start, middle), (middle, stop)] if stop - start > 1 else []
    return mask


def _view_sizes(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return how long the texts of views are: the first four bytes of each view, by Arrow's columnar format."""
    lengths = np.frombuffer(values.buffers()[1], "<i4")[:: _VIEW_BYTES // 4]
    lengths = lengths[values.offset : values.offset + len(values)].astype(np.int64)
    return np.asarray(lengths * np.asarray(values.is_valid()))


def _entries(values: pa.Array) -> tuple[np.ndarray[Any, Any], pa.Array, pa.Array]:
    """Return where each map of an array begins and ends in the keys and items beside."""
    offsets = np.asarray(values.offsets).astype(np.int64)
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets - first, values.keys.slice(first, length), values.items.slice(first, length)


def _has_length(kind: pa.DataType) -> bool:
    names = ("string", "large_string", "binary", "large_binary", "fixed_size_binary")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _numbers(values: np.ndarray[Any, Any]) -> pa.Array:
    return pa.array(values, pa.int64())


def _ints(values: pa.Array) -> np.ndarray[Any, Any]:
    return np.asarray(compute.fill_null(values.cast(pa.int64()), 0))


def _sum_ranges(offsets: np.ndarray[Any, Any], inner: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    cumulative = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner, dtype=np.int64)])
    return np.asarray(cumulative[offsets[1:]] - cumulative[offsets[:-1]])


def _offsets(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return where each list of an array begins and ends in its `list_flatten`."""
    return np.concatenate([np.zeros(1, np.int64), np.cumsum(_ints(compute.list_value_length(values)))])


def _mask(values: pa.Array) -> pa.Array | None:
    return compute.is_null(values) if values.null_count else None


def _missing_value_errors(values: pa.Array, path: str, *, required: bool) -> RowErrors:
    if not required or not values.null_count:
        return {}
    return dict.fromkeys(true_positions(values.is_null()), f"column {path!r}: no value, and there has to be one")


def true_positions(mask: Any) -> list[int]:
    """Return where a mask is true; where it has no value it isn't."""
    positions: list[int] = compute.indices_nonzero(mask).to_pylist()  # most masks have none: no value becomes Python's
    return positions


def _errors_by_parent(offsets: np.ndarray[Any, Any], inner: RowErrors) -> RowErrors:
    """Return what is wrong of lists, by what is wrong of their elements."""
    positions = sorted(inner)
    owners = np.searchsorted(offsets, np.array(positions, np.int64), side="right") - 1
    return {int(owner): inner[position] for owner, position in zip(owners, positions, strict=True)}


def _list(values: pa.Array, type: Mapping[str, Any], path: str) -> tuple[pa.Array, RowErrors]:
    element_path, offsets = f"{path}.element", _offsets(values)
    elements, errors = convert_array(compute.list_flatten(values), type["element"], element_path)
    errors |= _missing_value_errors(elements, element_path, required=bool(type.get("element-required")))
    list_offsets = pa.array(offsets, pa.int32())
    lists = pa.ListArray.from_arrays(list_offsets, elements, type=arrow_type(type), mask=_mask(values))
    return lists, _errors_by_parent(offsets, errors)


def _map(values: pa.Array, type: Mapping[str, Any], path: str) -> tuple[pa.Array, RowErrors]:
    offsets, keys, items = _entries(values)
    keys, errors = convert_array(keys, type["key"], f"{path}.key")
    items, value_errors = convert_array(items, type["value"], f"{path}.value")
    errors |= value_errors | _missing_value_errors(keys, f"{path}.key", required=True)
    errors |= dict.fromkeys(_find_duplicates(keys, offsets), f"column {f'{path}.key'!r}: a map has a key twice")
    errors |= _missing_value_errors(items, f"{path}.value", required=bool(type.get("value-required")))
    map_offsets = pa.array(offsets, pa.int32())
    maps = pa.MapArray.from_arrays(map_offsets, keys, items, type=arrow_type(type), mask=_mask(values))
    # What is behind a null map is no value.
    return maps, {
        position: reason for position, reason in _errors_by_parent(offsets, errors).items() if values[position].is_valid
    }


def _find_duplicates(keys: pa.Array, offsets: np.ndarray[Any, Any]) -> list[int]:
    """Return the indices of keys that their map has before.

    Of such a map Spark takes the first value, others take the last one, and what makes a map of it fails.
    """
    valid = np.flatnonzero(np.asarray(keys.is_valid()))
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[valid]
    codes = _codes(keys.take(_numbers(valid)))
    _, first = np.unique(owners * (len(keys) + 1) + codes, return_index=True)
    duplicates: list[int] = np.delete(valid, first).tolist()
    return duplicates


def _codes(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return a number for each value, the same for equal ones."""
    if pa.types.is_nested(values.type):  # Arrow can't compare such values
        values = pa.array(map(repr, values.to_pylist()), pa.string())
    elif pa.types.is_floating(values.type):
        values = compute.add(values, pa.scalar(0.0, values.type))  # 0.0 for -0.0, which equals it
    return _ints(values.dictionary_encode().indices)


def _struct(values: pa.Array, type: Mapping[str, Any], path: str) -> tuple[pa.Array, RowErrors]:
    arrays = dict(zip((arrow_field.name for arrow_field in values.type), values.flatten(), strict=True))
    fields, errors = [], RowErrors()
    for field in type["fields"]:
        field_path = f"{path}.{field['name']}"
        incoming = arrays.get(field["name"], pa.nulls(len(values)))
        converted, field_errors = convert_array(incoming, field["type"], field_path)
        if field.get("required"):
            missing = compute.and_(converted.is_null(), values.is_valid())
            field_errors |= dict.fromkeys(
                true_positions(missing), f"column {field_path!r}: no value, and there has to be one"
            )
        fields.append(converted)
        errors |= field_errors
    names = list(arrow_type(type))
    return pa.StructArray.from_arrays(fields, fields=names, mask=_mask(values)), errors


def _leaf(values: pa.Array, type: str, path: str) -> tuple[pa.Array, RowErrors]:
    if type == "uuid":
        return _uuids(values, path)
    mask, reason = _out_of_range(values)
    errors: RowErrors = {}
    if mask is not None and compute.any(mask).as_py():
        errors = dict.fromkeys(true_positions(mask), f"column {path!r}: {reason}")
        values = compute.if_else(mask, pa.scalar(None, values.type), values)
    return values.cast(arrow_type(type)), errors


def _out_of_range(values: pa.Array) -> tuple[pa.Array | None, str]:
    """Return which values of a type are out of range for a column of that name's type, and why."""
    kind = values.type
    if pa.types.is_uint64(kind):
        return compute.greater(values, pa.scalar(_MAX_INT64, pa.uint64())), "a number beyond 64 bits"
    if not (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)):
        return None, ""
    numbers = values.view(pa.int64())
    if kind.unit == "ns":
        remainder = compute.subtract(
            numbers,
            compute.multiply(compute.divide(numbers, _NANOSECONDS_PER_MICROSECOND), _NANOSECONDS_PER_MICROSECOND),
        )
        return compute.not_equal(remainder, 0), "more than microseconds"
    if kind.unit == "us":
        return None, ""
    limit = _MAX_INT64 // _MICROSECONDS_PER_UNIT[kind.unit]
    mask = compute.or_(compute.greater(numbers, limit), compute.less(numbers, -limit))
    return mask, "a time that microseconds of 64 bits don't reach"


def _uuids(values: pa.Array, path: str) -> tuple[pa.Array, RowErrors]:
    if pa.types.is_fixed_size_binary(values.type):
        return pa.array(_uuid_texts(values.to_pylist()), pa.string()), {}
    texts = values.cast(pa.string())
    mask = compute.invert(compute.match_substring_regex(texts, _UUID))
    errors = dict.fromkeys(true_positions(mask), f"column {path!r} is no UUID")
    return compute.utf8_lower(texts), errors


def _uuid_texts(values: Iterable[bytes | None]) -> list[str | None]:
    return [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
