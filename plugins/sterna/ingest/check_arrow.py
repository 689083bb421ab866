"""An Arrow stream, as it came in: whole, and of types that a table can have.

Types whose values take no bytes are refused where they are nested, and so are compressed buffers: a stream of a few
bytes could become anything otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sterna.errors import BadDrop, DropOverLimit, printable
from sterna.ingest.columns import columns_brought
from sterna.services.ingest import TenantLimits

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_OVERLAPPING = ("string_view", "binary_view", "list_view", "large_list_view", "run_end_encoded", "dictionary")


def check_arrow(path: Path, limits: TenantLimits) -> int:
    """Return how many rows an Arrow stream has.

    Raises:
        BadDrop: it is cut, broken, compressed, has a type that no table has, or isn't all that there is.
        DropOverLimit: it has too many rows, is nested too deeply, or would become too much.
    """
    import pyarrow as pa

    try:
        with pa.memory_map(str(path)) as source:
            if source.size() == 0:
                raise BadDrop("this is no Arrow stream: it is empty")
            for message in _messages(source):
                _refuse_compressed(message)
            # Readers stop at the stream's end: rows behind it would be nobody's.
            if source.read().strip(b"\0"):
                raise BadDrop("this is no Arrow stream: something stands behind its end")
            source.seek(0)
            return _rows(source, limits)
    except (pa.ArrowException, OSError, ValueError, IndexError, struct.error) as error:
        raise BadDrop(f"this is no Arrow stream: {printable(str(error), 200)}") from None


def _messages(source: Any) -> Iterator[Any]:
    from pyarrow import ipc

    reader = ipc.MessageReader.open_stream(source)
    while True:
        try:
            yield reader.read_next_message()
        except StopIteration:
            return


def _rows(source: Any, limits: TenantLimits) -> int:
    from pyarrow import ipc

    rows = whole = 0
    with ipc.open_stream(source) as reader:
        for field in reader.schema:
            _check_type(field.name, field.type, limits.depth)
        columns_brought(reader.schema)
        for batch in reader:
            rows += batch.num_rows
            if rows > limits.rows:
                raise DropOverLimit(f"more than {limits.rows} rows (limits.rows)")
            batch.validate(full=True)
            whole += sum(_size(column) for column in batch.columns)
            if whole > limits.ratio * source.size():
                raise DropOverLimit(f"it becomes more than {limits.ratio} times its size (limits.ratio)")
    if not rows:
        raise BadDrop("there are no rows")
    return rows


def _size(column: Any) -> int:
    """Return about how many bytes a column becomes: what is written once in a dictionary counts for each row."""
    import pyarrow as pa
    from pyarrow import compute

    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    words = column.dictionary
    if pa.types.is_string(words.type) or pa.types.is_binary(words.type) or _is_large(words.type):
        lengths = compute.binary_length(words).cast(pa.int64())
        return int(compute.sum(lengths.take(column.indices)).as_py() or 0)
    return len(column) * 16


def _is_large(type: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_large_string(type) or pa.types.is_large_binary(type))


def _check_type(name: str, type: Any, left: int, *, top: bool = True) -> None:
    import pyarrow as pa

    if left <= 0:
        raise DropOverLimit(f"column {name!r} is nested too deeply (limits.depth)")
    if top and (pa.types.is_null(type) or pa.types.is_dictionary(type)):
        return None if pa.types.is_null(type) else _check_type(name, type.value_type, left, top=False)
    # Values of these may lie over one another, or take no bytes: a few bytes become anything.
    if any(getattr(pa.types, f"is_{kind}")(type) for kind in _OVERLAPPING):
        raise BadDrop(f"column {name!r} has a type that no table has in a stream: {printable(str(type), 100)}")
    for inner in _inner(type):
        _check_type(name, inner, left - 1, top=False)


def _inner(type: Any) -> list[Any]:
    return [type.field(number).type for number in range(type.num_fields)]


def _refuse_compressed(message: Any) -> None:
    # A flatbuffer, as Arrow's Message.fbs and Schema.fbs lay it out.
    data = message.metadata.to_pybytes()
    root = struct.unpack_from("<I", data, 0)[0]
    kind_at, header_at = _field(data, root, 1), _field(data, root, 2)
    kind = data[kind_at] if kind_at else 0
    if header_at is None or kind not in (_DICTIONARY, _BATCH):
        return
    table = _indirect(data, header_at)
    if kind == _DICTIONARY:
        inner = _field(data, table, 1)
        if inner is None:
            raise BadDrop("this is no Arrow stream: a dictionary has no values")
        table = _indirect(data, inner)
    if _field(data, table, 3) is not None:
        raise BadDrop("compressed buffers are not taken: send the stream without compression")


def _indirect(data: bytes, at: int) -> int:
    return at + int(struct.unpack_from("<I", data, at)[0])


def _field(data: bytes, table: int, number: int) -> int | None:
    """Return where a flatbuffer's table has a field, None where it has none."""
    names = table - struct.unpack_from("<i", data, table)[0]
    entry = 4 + 2 * number
    if names < 0 or entry + 2 > struct.unpack_from("<H", data, names)[0]:
        return None
    offset = struct.unpack_from("<H", data, names + entry)[0]
    return table + offset if offset else None
