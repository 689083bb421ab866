"""The general path: whole records decoded, edited and encoded again by fastavro.

It is for schemas in which a wanted field has a shape that the walk does not take down. Some thirty times slower, and
the same result record for record; tests hold the two against each other.
"""

from __future__ import annotations

import io
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

import fastavro
from fastavro.schema import SchemaParseException

from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import locate
from sterna.iceberg.avro.program import compile_schema
from sterna.iceberg.avro.splice import rewrite

Record = dict[str, Any]

# What fastavro raises on bytes that don't fit, or values that it can't write.
_AVRO_ERRORS: Final = (
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    EOFError,
    StopIteration,
    OverflowError,
    AttributeError,
    struct.error,
)


def records(container: Container) -> Iterator[Record]:
    """Decode all records.

    Raises:
        BrokenMetadata: the bytes don't fit the schema.
    """
    schema = _parse(container)
    for group in container.groups():
        for record, _, _ in _decode(container, group, schema):
            yield record


def rewrite_records(container: Container, edit: Callable[[Record], bool]) -> bytes | None:
    """Return the file with edited records, or None when no record changed.

    Args:
        container: the file.
        edit: changes a record in place, and says whether it did.

    Raises:
        BrokenMetadata: the bytes don't fit the schema.
    """
    schema = _parse(container)

    def splices(group: Group) -> list[tuple[int, int, bytes]]:
        return [
            (start, end, _encode(container, record, schema))
            for record, start, end in _decode(container, group, schema)
            if edit(record)
        ]

    return rewrite(container, splices)


def field_names(schema: Any, names: Mapping[int, str]) -> dict[int, str]:
    """Return what the wanted fields are called in a record of this schema.

    Args:
        schema: an Avro record.
        names: field id → name for a schema without ids.

    Returns:
        Field id → name, for those that the record has.
    """
    fields = [item for item in schema["fields"] if isinstance(item, dict)]
    if any("field-id" in item for item in fields):
        return {item["field-id"]: str(item.get("name")) for item in fields if isinstance(item.get("field-id"), int)}
    present = {item.get("name") for item in fields}
    return {number: name for number, name in names.items() if name in present}


def nullable_fields(schema: Any) -> frozenset[str]:
    """Return the names of the fields of an Avro record that may be null."""
    fields = [item for item in schema["fields"] if isinstance(item, dict)]
    return frozenset(
        str(item.get("name")) for item in fields if isinstance(item.get("type"), list) and "null" in item["type"]
    )


def _parse(container: Container) -> Any:
    # Logical types would turn a partition value into a date or a decimal and back; the plain value is what must stay.
    try:
        return fastavro.parse_schema(_plain(container.schema))
    except (SchemaParseException, *_AVRO_ERRORS) as error:
        raise container.broken(f"fastavro refuses the schema: {type(error).__name__}") from error


def _decode(container: Container, group: Group, schema: Any) -> list[tuple[Record, int, int]]:
    # The walk proves first that lengths and counts are sane: fastavro has no limits of its own.
    locate(compile_schema(container.schema, {}, {}, container.uri), group, container)
    stream = io.BytesIO(group.data)
    found: list[tuple[Record, int, int]] = []
    try:
        for _ in range(group.records):
            start = stream.tell()
            record: Any = fastavro.schemaless_reader(stream, schema, None)
            found.append((record, start, stream.tell()))
    except _AVRO_ERRORS as error:
        raise container.broken(f"the records don't fit the schema: {type(error).__name__}") from error
    return found


def _encode(container: Container, record: Record, schema: Any) -> bytes:
    stream = io.BytesIO()
    try:
        fastavro.schemaless_writer(stream, schema, record)
    except _AVRO_ERRORS as error:
        raise container.broken(f"a record can't be written back: {type(error).__name__}") from error
    return stream.getvalue()


def _plain(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {key: _plain(value) for key, value in schema.items() if key != "logicalType"}
    return [_plain(branch) for branch in schema] if isinstance(schema, list) else schema
