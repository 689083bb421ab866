"""Values of Arrow and Parquet as a column takes them: exactly, or the row that has one that it doesn't take; pure.

Every layout is taken for what it says: dictionaries, runs, views, large and fixed-size ones are other ways to lay out
the same values.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from sterna.ingest.column_types import Type, arrow_type, is_list

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_LARGEST = (1 << 63) - 1
_MICROSECONDS = {"s": 1_000_000, "ms": 1_000}
_NANOSECONDS = 1_000  # in a microsecond
_VIEW = 16  # bytes of one
_UUID = "^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"
Wrong = dict[int, str]
"""By the place of a value: what is wrong of it, or of a value inside of it."""


def exact(values: pa.Array, type: Type, path: str) -> tuple[pa.Array, Wrong]:
    """Return values as a column takes them, and which of them it doesn't take.

    Args:
        values: an array of a type that fits the column's.
        type: the column's.
        path: how messages call it.

    Returns:
        An array of `arrow_type(type)`, as long as the values; where one is wrong stands any.
    """
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(values, pa.ExtensionArray):
        values = values.storage
    if pa.types.is_run_end_encoded(values.type):
        values = compute.run_end_decode(values)
    if pa.types.is_dictionary(values.type):
        # A word that only dead rows have may be no text at all.
        used = compute.unique(values.indices).drop_null()
        indices = compute.index_in(values.indices, value_set=used)
        words, wrong_words = exact(values.dictionary.take(used), type, path)
        places = indices.to_pylist() if wrong_words else ()
        wrong = {at: wrong_words[word] for at, word in enumerate(places) if word in wrong_words}
        return words.take(indices), wrong
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), arrow_type(type)), {}
    if isinstance(type, str):
        return _leaf(values, type, path)
    if type["type"] == "struct":
        return _struct(values, type, path)
    return _map(values, type, path) if type["type"] == "map" else _list(values, type, path)


def sizes(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return how many bytes each value has, those inside of it counted; one without a value has none.

    Nothing is unpacked for that: a word in a dictionary may stand in each row.
    """
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(values, pa.ExtensionArray):
        return sizes(values.storage)
    kind = values.type
    if pa.types.is_run_end_encoded(kind):
        runs = pa.RunEndEncodedArray.from_arrays(values.run_ends, _numbers(sizes(values.values)))
        return _ints(compute.run_end_decode(runs.slice(values.offset, len(values))))
    if pa.types.is_dictionary(kind):
        return _ints(_numbers(sizes(values.dictionary)).take(values.indices))
    if pa.types.is_string_view(kind) or pa.types.is_binary_view(kind):
        return _view_sizes(values)
    if _has_length(values.type):
        return _ints(compute.binary_length(values))
    if pa.types.is_map(kind):
        offsets, keys, items = _entries(values)
        whole = _sums(offsets, np.maximum(sizes(keys) + sizes(items), 1))
        return np.asarray(whole * np.asarray(values.is_valid()))
    if is_list(kind):
        offsets = _offsets(values)
        return _sums(offsets, np.maximum(sizes(compute.list_flatten(values)), 1))
    if pa.types.is_struct(kind):
        return np.asarray(np.sum([sizes(field) for field in values.flatten()], axis=0, dtype=np.int64))
    width = 0 if pa.types.is_null(kind) else (kind.bit_width + 7) // 8
    return np.full(len(values), width, np.int64)


def misfits(values: pa.Array) -> Wrong:
    """Return which values are none of what their own type says, those inside of them counted: writers don't look.

    Args:
        values: of which nothing was looked at yet.

    Raises:
        pa.ArrowException: they are broken otherwise: what is inside of them can't be read.
    """
    # Arrow names one fault alone: with bytes for texts and the like, whatever else is wrong shows.
    values.view(_bytes(values.type)).validate(full=True)
    wrong: Wrong = {}
    for reason, is_kind in _MISFITS:
        wrong |= dict.fromkeys(_misfits(values, is_kind).nonzero()[0].tolist(), reason)
    return wrong


def _bytes(kind: pa.DataType) -> pa.DataType:
    """Return a type with the same layout that has bytes or numbers in the place of what `_MISFITS` looks at."""
    import pyarrow as pa

    if isinstance(kind, pa.BaseExtensionType):
        return _bytes(kind.storage_type)
    if (same := _bytes_of_leaf(kind)) is not None:
        return same
    if pa.types.is_dictionary(kind):
        return pa.dictionary(kind.index_type, _bytes(kind.value_type), kind.ordered)
    if pa.types.is_map(kind):
        return pa.map_(_bytes(kind.key_type), kind.item_field.with_type(_bytes(kind.item_type)), kind.keys_sorted)
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_bytes(field.type)) for field in kind])
    if not is_list(kind):
        return kind
    element = kind.value_field.with_type(_bytes(kind.value_type))
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(element, kind.list_size)
    return {
        "list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view, "large_list_view": pa.large_list_view,
    }[str(kind).partition("<")[0]](element)  # fmt: skip


def _bytes_of_leaf(kind: pa.DataType) -> pa.DataType | None:
    import pyarrow as pa

    for text, same in (("string", pa.binary), ("large_string", pa.large_binary), ("string_view", pa.binary_view)):
        if getattr(pa.types, f"is_{text}")(kind):
            return same()
    if pa.types.is_decimal(kind):
        return pa.binary(kind.byte_width)
    if pa.types.is_time(kind) or pa.types.is_date64(kind):
        return pa.int32() if kind.bit_width == 32 else pa.int64()
    return None


def _misfits(values: pa.Array, is_kind: Callable[[pa.DataType], bool]) -> np.ndarray[Any, Any]:
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    if isinstance(values, pa.ExtensionArray):
        return _misfits(values.storage, is_kind)
    kind = values.type
    if pa.types.is_dictionary(kind):
        return _ints(_numbers(_misfits(values.dictionary, is_kind)).take(values.indices)) > 0
    if is_kind(kind):
        return _misfit_places(values)
    if pa.types.is_map(kind):
        offsets, keys, items = _entries(values)
        return _sums(offsets, _misfits(keys, is_kind) | _misfits(items, is_kind)) > 0
    if is_list(kind):
        return _sums(_offsets(values), _misfits(compute.list_flatten(values), is_kind)) > 0
    wrong = np.zeros(len(values), np.bool_)
    for field in values.flatten() if pa.types.is_struct(kind) else ():
        wrong |= _misfits(field, is_kind)
    return wrong


def _is_text(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is(name: str) -> Callable[[pa.DataType], bool]:
    def is_kind(kind: pa.DataType) -> bool:
        import pyarrow as pa

        return bool(getattr(pa.types, f"is_{name}")(kind))

    return is_kind


_MISFITS = (
    ("a text that is no UTF-8", _is_text),
    ("a time that no day has", _is("time")),
    ("more digits than its type has", _is("decimal")),
    ("a date with a time of the day", _is("date64")),
)
"""What Arrow says of a whole batch where one value isn't of its type, and the types that have such values."""


def _misfit_places(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return which values aren't of their type, by halves: most are."""
    import numpy as np
    import pyarrow as pa

    wrong = np.zeros(len(values), np.bool_)
    ranges = [(0, len(values))]
    while ranges:
        start, stop = ranges.pop()
        try:
            values.slice(start, stop - start).validate(full=True)
        except pa.ArrowInvalid:
            middle = (start + stop) // 2
            wrong[start] |= stop - start == 1
            ranges += [(start, middle), (middle, stop)] if stop - start > 1 else []
    return wrong


def _view_sizes(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return how long the texts of views are: the first four bytes of each view, by Arrow's columnar format."""
    import numpy as np

    lengths = np.frombuffer(values.buffers()[1], "<i4")[:: _VIEW // 4]
    lengths = lengths[values.offset : values.offset + len(values)].astype(np.int64)
    return np.asarray(lengths * np.asarray(values.is_valid()))


def _entries(values: pa.Array) -> tuple[np.ndarray[Any, Any], pa.Array, pa.Array]:
    """Return where each map of an array begins and ends in the keys and items beside."""
    import numpy as np

    offsets = np.asarray(values.offsets).astype(np.int64)
    first, length = int(offsets[0]), int(offsets[-1] - offsets[0])
    return offsets - first, values.keys.slice(first, length), values.items.slice(first, length)


def _has_length(kind: pa.DataType) -> bool:
    import pyarrow as pa

    names = ("string", "large_string", "binary", "large_binary", "fixed_size_binary")
    return any(getattr(pa.types, f"is_{name}")(kind) for name in names)


def _numbers(values: np.ndarray[Any, Any]) -> pa.Array:
    import pyarrow as pa

    return pa.array(values, pa.int64())


def _ints(values: pa.Array) -> np.ndarray[Any, Any]:
    import numpy as np
    import pyarrow as pa
    from pyarrow import compute

    return np.asarray(compute.fill_null(values.cast(pa.int64()), 0))


def _sums(offsets: np.ndarray[Any, Any], inner: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    import numpy as np

    whole = np.concatenate([np.zeros(1, np.int64), np.cumsum(inner, dtype=np.int64)])
    return np.asarray(whole[offsets[1:]] - whole[offsets[:-1]])


def _offsets(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return where each list of an array begins and ends in its `list_flatten`."""
    import numpy as np
    from pyarrow import compute

    return np.concatenate([np.zeros(1, np.int64), np.cumsum(_ints(compute.list_value_length(values)))])


def _mask(values: pa.Array) -> pa.Array | None:
    from pyarrow import compute

    return compute.is_null(values) if values.null_count else None


def _without(values: pa.Array, path: str, *, required: bool) -> Wrong:
    if not required or not values.null_count:
        return {}
    return dict.fromkeys(places(values.is_null()), f"column {path!r}: no value, and there has to be one")


def places(mask: Any) -> list[int]:
    """Return where a mask is true; where it has no value it isn't."""
    from pyarrow import compute

    wrong: list[int] = compute.indices_nonzero(mask).to_pylist()  # most masks have none: no value becomes Python's
    return wrong


def _outer(offsets: np.ndarray[Any, Any], inner: Wrong) -> Wrong:
    """Return what is wrong of lists, by what is wrong of their elements."""
    import numpy as np

    at = sorted(inner)
    owners = np.searchsorted(offsets, np.array(at, np.int64), side="right") - 1
    return {int(owner): inner[place] for owner, place in zip(owners, at, strict=True)}


def _list(values: pa.Array, type: Mapping[str, Any], path: str) -> tuple[pa.Array, Wrong]:
    import pyarrow as pa
    from pyarrow import compute

    inside, offsets = f"{path}.element", _offsets(values)
    elements, wrong = exact(compute.list_flatten(values), type["element"], inside)
    wrong |= _without(elements, inside, required=bool(type.get("element-required")))
    places_of = pa.array(offsets, pa.int32())
    lists = pa.ListArray.from_arrays(places_of, elements, type=arrow_type(type), mask=_mask(values))
    return lists, _outer(offsets, wrong)


def _map(values: pa.Array, type: Mapping[str, Any], path: str) -> tuple[pa.Array, Wrong]:
    import pyarrow as pa

    offsets, keys, items = _entries(values)
    keys, wrong = exact(keys, type["key"], f"{path}.key")
    items, more = exact(items, type["value"], f"{path}.value")
    wrong |= more | _without(keys, f"{path}.key", required=True)
    wrong |= dict.fromkeys(_repeated(keys, offsets), f"column {f'{path}.key'!r}: a key stands twice in a map")
    wrong |= _without(items, f"{path}.value", required=bool(type.get("value-required")))
    places_of = pa.array(offsets, pa.int32())
    maps = pa.MapArray.from_arrays(places_of, keys, items, type=arrow_type(type), mask=_mask(values))
    # What lies behind a map that isn't there is no value.
    return maps, {place: reason for place, reason in _outer(offsets, wrong).items() if values[place].is_valid}


def _repeated(keys: pa.Array, offsets: np.ndarray[Any, Any]) -> list[int]:
    """Return the places of keys that stand in their map before.

    Of such a map Spark takes the first value, others take the last one, and what makes a map of it fails.
    """
    import numpy as np

    valid = np.flatnonzero(np.asarray(keys.is_valid()))
    owners = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))[valid]
    words = _words(keys.take(_numbers(valid)))
    _, first = np.unique(owners * (len(keys) + 1) + words, return_index=True)
    again: list[int] = np.delete(valid, first).tolist()
    return again


def _words(values: pa.Array) -> np.ndarray[Any, Any]:
    """Return a number for each value, the same for equal ones."""
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_nested(values.type):  # Arrow tells apart no such values
        values = pa.array(map(repr, values.to_pylist()), pa.string())
    elif pa.types.is_floating(values.type):
        values = compute.add(values, pa.scalar(0.0, values.type))  # 0.0 for -0.0, which equals it
    return _ints(values.dictionary_encode().indices)


def _struct(values: pa.Array, type: Mapping[str, Any], path: str) -> tuple[pa.Array, Wrong]:
    import pyarrow as pa
    from pyarrow import compute

    there = dict(zip((each.name for each in values.type), values.flatten(), strict=True))
    fields, wrong = [], Wrong()
    for field in type["fields"]:
        inside = f"{path}.{field['name']}"
        brought = there.get(field["name"], pa.nulls(len(values)))
        inner, more = exact(brought, field["type"], inside)
        if field.get("required"):
            empty = compute.and_(inner.is_null(), values.is_valid())
            more |= dict.fromkeys(places(empty), f"column {inside!r}: no value, and there has to be one")
        fields.append(inner)
        wrong |= more
    names = list(arrow_type(type))
    return pa.StructArray.from_arrays(fields, fields=names, mask=_mask(values)), wrong


def _leaf(values: pa.Array, type: str, path: str) -> tuple[pa.Array, Wrong]:
    import pyarrow as pa
    from pyarrow import compute

    if type == "uuid":
        return _uuids(values, path)
    mask, reason = _beyond(values)
    wrong: Wrong = {}
    if mask is not None and compute.any(mask).as_py():
        wrong = dict.fromkeys(places(mask), f"column {path!r}: {reason}")
        values = compute.if_else(mask, pa.scalar(None, values.type), values)
    return values.cast(arrow_type(type)), wrong


def _beyond(values: pa.Array) -> tuple[pa.Array | None, str]:
    """Return which values of a type fit no column of the type that its name says, and why."""
    import pyarrow as pa
    from pyarrow import compute

    kind = values.type
    if pa.types.is_uint64(kind):
        return compute.greater(values, pa.scalar(_LARGEST, pa.uint64())), "a number beyond 64 bits"
    if not (pa.types.is_timestamp(kind) or pa.types.is_time64(kind)):
        return None, ""
    numbers = values.view(pa.int64())
    if kind.unit == "ns":
        rest = compute.subtract(numbers, compute.multiply(compute.divide(numbers, _NANOSECONDS), _NANOSECONDS))
        return compute.not_equal(rest, 0), "more than microseconds"
    if kind.unit == "us":
        return None, ""
    most = _LARGEST // _MICROSECONDS[kind.unit]
    beyond = compute.or_(compute.greater(numbers, most), compute.less(numbers, -most))
    return beyond, "a time that microseconds of 64 bits don't reach"


def _uuids(values: pa.Array, path: str) -> tuple[pa.Array, Wrong]:
    import pyarrow as pa
    from pyarrow import compute

    if pa.types.is_fixed_size_binary(values.type):
        return pa.array(_uuid_texts(values.to_pylist()), pa.string()), {}
    texts = values.cast(pa.string())
    mask = compute.invert(compute.match_substring_regex(texts, _UUID))
    wrong = dict.fromkeys(places(mask), f"column {path!r} is no UUID")
    return compute.utf8_lower(texts), wrong


def _uuid_texts(values: Iterable[bytes | None]) -> list[str | None]:
    return [None if value is None else str(uuid.UUID(bytes=value)) for value in values]
