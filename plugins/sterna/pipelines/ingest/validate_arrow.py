"""An Arrow stream, as it was uploaded: complete, and of types that a table can have.

Types whose values take no bytes are refused where they are nested, and so are compressed buffers: a stream of a few
bytes could become anything otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from sterna.config.sections.ingest import TenantLimits
from sterna.errors import BadDrop, DropOverLimit, printable
from sterna.libraries import pa, pc
from sterna.pipelines.ingest.columns import arrow_columns

_SCHEMA, _DICTIONARY, _BATCH = 1, 2, 3
_TEXT_TYPES = ("string", "binary", "large_string", "large_binary")
_UNSAFE_NESTED_TYPES = ("string_view", "binary_view", "list_view", "large_list_view", "run_end_encoded", "dictionary")


def check_arrow(path: Path, limits: TenantLimits) -> int:
    """Return how many rows an Arrow stream has.

    Raises:
        BadDrop: it is cut, broken, compressed, has a type that no table has, or isn't all that there is.
        DropOverLimit: it has too many rows, is nested too deeply, or would become too much.
    """
    try:
        with pa.memory_map(str(path)) as source:
            if source.size() == 0:
                raise BadDrop("this is no Arrow stream: it is empty")
            for message in _messages(source):
                _require_uncompressed(message)
            # Readers stop at the stream's end: rows behind it would be lost.
            if source.read().strip(b"\0"):
                raise BadDrop("this is no Arrow stream: it has bytes after its end")
            source.seek(0)
            return _count_rows(source, limits)
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


def _count_rows(source: Any, limits: TenantLimits) -> int:
    from pyarrow import ipc

    rows = total_bytes = 0
    with ipc.open_stream(source) as reader:
        for field in reader.schema:
            _check_type(field.name, field.type, limits.depth)
        arrow_columns(reader.schema)
        for batch in reader:
            rows += batch.num_rows
            if rows > limits.rows:
                raise DropOverLimit(f"more than {limits.rows} rows (limits.rows)")
            batch.validate(full=True)
            total_bytes += sum(_unpacked_bytes(column) for column in batch.columns)
            if total_bytes > limits.ratio * source.size():
                raise DropOverLimit(f"it becomes more than {limits.ratio} times its size (limits.ratio)")
    if not rows:
        raise BadDrop("there are no rows")
    return rows


def _unpacked_bytes(column: Any) -> int:
    """Return about how many bytes a column becomes: what is written once in a dictionary counts for each row."""
    if not pa.types.is_dictionary(column.type):
        return int(column.nbytes)
    dictionary = column.dictionary
    if any(getattr(pa.types, f"is_{kind}")(dictionary.type) for kind in _TEXT_TYPES):
        lengths = pc.binary_length(dictionary).cast(pa.int64())
        return int(pc.sum(lengths.take(column.indices)).as_py() or 0)
    return len(column) * 16


def _check_type(name: str, type: Any, max_depth: int, *, is_top_level: bool = True) -> None:
    if max_depth <= 0:
        raise DropOverLimit(f"column {name!r} is nested too deeply (limits.depth)")
    if is_top_level and (pa.types.is_null(type) or pa.types.is_dictionary(type)):
        return None if pa.types.is_null(type) else _check_type(name, type.value_type, max_depth, is_top_level=False)
    # Values of these may overlap, or take no bytes: a few bytes may become any number of values.
    if any(getattr(pa.types, f"is_{kind}")(type) for kind in _UNSAFE_NESTED_TYPES):
        raise BadDrop(f"column {name!r} has a type that no table has in a stream: {printable(str(type), 100)}")
    for number in range(type.num_fields):
        _check_type(name, type.field(number).type, max_depth - 1, is_top_level=False)


def _require_uncompressed(message: Any) -> None:
    # A flatbuffer, as Arrow's Message.fbs and Schema.fbs lay it out.
    buffer = message.metadata.to_pybytes()
    root = struct.unpack_from("<I", buffer, 0)[0]
    kind_at, header_at = _field_offset(buffer, root, 1), _field_offset(buffer, root, 2)
    kind = buffer[kind_at] if kind_at else 0
    if header_at is None or kind not in (_DICTIONARY, _BATCH):
        return
    table = _indirect(buffer, header_at)
    if kind == _DICTIONARY:
        batch_offset = _field_offset(buffer, table, 1)
        if batch_offset is None:
            raise BadDrop("this is no Arrow stream: a dictionary has no values")
        table = _indirect(buffer, batch_offset)
    if _field_offset(buffer, table, 3) is not None:
        raise BadDrop("compressed buffers are not taken: send the stream without compression")


def _indirect(buffer: bytes, position: int) -> int:
    return position + int(struct.unpack_from("<I", buffer, position)[0])


def _field_offset(buffer: bytes, table: int, number: int) -> int | None:
    """Return where a flatbuffer's table has a field, None where it has none."""
    names = table - struct.unpack_from("<i", buffer, table)[0]
    slot = 4 + 2 * number
    if names < 0 or slot + 2 > struct.unpack_from("<H", buffer, names)[0]:
        return None
    offset = struct.unpack_from("<H", buffer, names + slot)[0]
    return table + offset if offset else None
