"""Position delete files in ORC: their localized copy.

Not read and written by Arrow, whose ORC reader crashes on damaged files and supports few years of a timestamp, and
whose writer has no user metadata. Types, attributes, user metadata and everything else of the footer that does not
depend on the order of rows is the source's. Row indexes, stripe statistics and Bloom filters, all optional, are
dropped.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pyarrow as pa  # noqa: TID253 - imported by workers that localize a position delete, and by nothing else
import pyarrow.compute as pc  # noqa: TID253

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.deletes.arrow import LocalizedDeletes, localize_table
from sterna.iceberg.deletes.rows import PATH_ID, PATH_NAME, POS_ID, POS_NAME, find_column, validate_size
from sterna.iceberg.orc.chunks import Budget
from sterna.iceberg.orc.columns import PRESENT, ColumnReader, ColumnWriter
from sterna.iceberg.orc.proto import Message, OrcDamaged
from sterna.iceberg.orc.runs import read_bits
from sterna.iceberg.orc.tail import HEADER, TIMESTAMP, Stripe, Tail, read_stripe, read_tail
from sterna.iceberg.varint import to_zigzag

_FIELD_ID: Final = b"iceberg.id"
_STRING: Final = 7
_LONG: Final = 4


def localize_orc(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    """Return an ORC position delete file's localized copy.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.
        map_content: maps the URI of a data file; called once for each distinct path.

    Returns:
        The new file, or None when no path changes.

    Raises:
        Unsupported: an encrypted file, or a version, codec, type or encoding that is not written back.
        OverLimit: the file holds more than the limits allow.
        BrokenMetadata: no readable position delete file.
    """
    try:
        return _localize(data, uri, map_content, limits)
    except (OrcDamaged, pa.ArrowException) as error:
        raise BrokenMetadata(f"not a readable ORC file: {error}", file=uri) from error


def _localize(data: bytes, uri: str, map_content: Callable[[str], str], limits: Limits) -> bytes | None:
    budget = Budget(limits, uri)
    tail = read_tail(data, uri, budget)
    validate_size(tail.rows, 0, uri, limits)
    path, pos = _columns(tail, uri)
    if not tail.rows:
        return None
    stripes = [read_stripe(data, tail, number, budget) for number in range(len(tail.stripes))]
    zone = _time_zone(tail, stripes, uri)
    table = pa.concat_tables([_read(ColumnReader(tail, stripe, budget, uri), path) for stripe in stripes])
    localized = localize_table(table, path, pos, map_content, uri)
    return None if localized is None else _write(tail, localized, path, zone)


def _columns(tail: Tail, uri: str) -> tuple[int, int]:
    """Return which of the root's children hold paths and positions."""
    root = tail.types[0]
    raw = [tail.types[child].attributes.get(_FIELD_ID, b"") for child in root.children]
    ids = [int(value) if value.isdigit() else None for value in raw]
    path = find_column(ids, root.names, PATH_ID, PATH_NAME, uri)
    pos = find_column(ids, root.names, POS_ID, POS_NAME, uri)
    kinds = tail.types[root.children[path]].kind, tail.types[root.children[pos]].kind
    if kinds != (_STRING, _LONG):
        raise BrokenMetadata(f"position deletes of the ORC types {kinds[0]} and {kinds[1]}", file=uri)
    return path, pos


def _time_zone(tail: Tail, stripes: list[Stripe], uri: str) -> list[bytes]:
    """Return the time zone that timestamps without one are stored in, if there is one."""
    zones = [stripe.footer.blobs(3) for stripe in stripes]
    if any(kind.kind == TIMESTAMP for kind in tail.types) and any(zone != zones[0] for zone in zones):
        raise Unsupported("position deletes with timestamps written in several time zones", file=uri)
    return zones[0]


def _read(reader: ColumnReader, path: int) -> Any:
    root, rows = reader.tail.types[0], reader.stripe.rows
    for node in (0, root.children[path]):
        present = reader.tail.compression.decompress(reader.stripe.streams.get((node, PRESENT), b""), reader.budget)
        if present and not read_bits(present, rows).all():
            raise OrcDamaged("a position delete without path or position")
    columns = []
    for number, node in enumerate(root.children):
        column = reader.strings(node, rows) if number == path else reader.column(node, rows)
        columns.append(
            column.dictionary_encode() if number == path and not pa.types.is_dictionary(column.type) else column
        )
    return pa.table(columns, [str(node) for node in root.children])


def _write(tail: Tail, localized: LocalizedDeletes, path: int, zone: list[bytes]) -> bytes:
    """Write stripes of as many rows as the largest of the source, and a tail."""
    pieces = [HEADER]
    at = len(HEADER)
    stripes: list[bytes] = []
    on_disk = [0] * len(tail.types)
    for rows in localized.slices(max(stripe[0] for stripe in tail.stripes)):
        streams, footer = _write_stripe(tail, rows.combine_chunks(), path, zone, on_disk)
        stripe = Message().put(1, at).put(2, 0).put(3, len(streams)).put(4, len(footer)).put(5, rows.num_rows)
        stripes.append(stripe.encode())
        pieces += (streams, footer)
        at += len(streams) + len(footer)
    statistics = _statistics(tail, localized.table.column(path).chunk(0), tail.types[0].children[path], on_disk)
    footer = tail.compression.compress(tail.footer.put(2, at).put(3, *stripes).put(7, *statistics).put(8, 0).encode())
    postscript = tail.postscript.put(1, len(footer)).put(5, 0).encode()
    return b"".join((*pieces, footer, postscript, bytes((len(postscript),))))


def _write_stripe(tail: Tail, rows: Any, path: int, zone: list[bytes], on_disk: list[int]) -> tuple[bytes, bytes]:
    """Return a stripe's streams and its footer, and add to the bytes that each column takes."""
    writer = ColumnWriter(tail, [], {0: (0, 0)})
    for number, node in enumerate(tail.types[0].children):
        values = rows.column(number).chunk(0)
        writer.paths(node, values) if number == path else writer.column(node, values)
    pieces: list[bytes] = []
    stream_messages: list[bytes] = []
    for node, kind, raw in writer.streams:
        packed = tail.compression.compress(raw)
        pieces.append(packed)
        stream_messages.append(Message().put(1, kind).put(2, node).put(3, len(packed)).encode())
        on_disk[node] += len(packed)
    encodings = [writer.encodings[node] for node in range(len(tail.types))]
    encoding_messages = [Message().put(1, kind).put(2, *([size] if size else [])).encode() for kind, size in encodings]
    footer = Message().put(1, *stream_messages).put(2, *encoding_messages).put(3, *zone)
    return b"".join(pieces), tail.compression.compress(footer.encode())


def _statistics(tail: Tail, paths: Any, node: int, on_disk: list[int]) -> list[bytes]:
    """Return the file's statistics: all but those of the paths, and the bytes that columns take, are as they were."""
    statistics = tail.footer.messages(7)
    if len(statistics) not in (0, len(tail.types)):
        raise OrcDamaged("a footer without statistics for each column")
    if statistics:
        statistics[node] = (
            Message()
            .put(1, len(paths))
            .put(4, _path_statistics(paths))
            .put(10, 0)
            .put(11, *statistics[node].integers(11))
        )
    return [
        column_statistics.put(11, on_disk[at]).encode()
        if column_statistics.integers(11)
        else column_statistics.encode()
        for at, column_statistics in enumerate(statistics)
    ]


def _path_statistics(paths: Any) -> bytes:
    used = paths.dictionary
    total = pc.sum(pc.binary_length(used).take(paths.indices)).as_py()
    return Message().put(1, used[0].as_py()).put(2, used[-1].as_py()).put(3, to_zigzag(total)).encode()
