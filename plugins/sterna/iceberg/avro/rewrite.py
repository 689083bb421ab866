"""Rewriting an Avro file record by record: decoded, edited and encoded again by fastavro.

Unedited records keep their bytes.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable
from typing import Any, Final

import fastavro

from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.records import AVRO_ERRORS, Record, decode_group, parse_schema
from sterna.iceberg.avro.splice import Splices, rewrite

_BLOCK_BYTES: Final = 64 << 10  # as Avro's own writers make them


def rewrite_records(container: Container, edit: Callable[[Record], bool]) -> bytes | None:
    """Return the file with edited records, or None when no record changed.

    Args:
        edit: changes a record in place, and returns whether it did.

    Raises:
        BrokenMetadata: the bytes don't fit the schema.
    """
    schema = parse_schema(container)

    def splices(group: Group) -> Splices:
        return Splices.of(
            [
                (start, end, _encode(container, record, schema))
                for record, start, end in decode_group(container, group, schema)
                if edit(record)
            ]
        )

    return rewrite(container, splices)


def _encode(container: Container, record: Record, schema: Any) -> bytes:
    stream = io.BytesIO()
    try:
        fastavro.schemaless_writer(stream, schema, record)
    except AVRO_ERRORS as error:
        raise container.broken(f"a record can't be written back: {type(error).__name__}") from error
    return stream.getvalue()


def replace_records(container: Container, encoded: Iterable[bytes]) -> bytes:
    """Return a file with the header of another one, and other records.

    Args:
        container: whose schema, metadata, codec and sync marker the file has.
        encoded: its records, in that schema.
    """
    pieces = [container.data[: container.header_end]]
    block: list[bytes] = []
    size = 0
    for record in encoded:
        block.append(record)
        size += len(record)
        if size >= _BLOCK_BYTES:
            pieces.append(container.encode_block(len(block), b"".join(block)))
            block, size = [], 0
    if block:
        pieces.append(container.encode_block(len(block), b"".join(block)))
    return b"".join(pieces)
