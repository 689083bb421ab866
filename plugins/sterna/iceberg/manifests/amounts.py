"""What a manifest says of its files beyond where they lie: how much is in them, their partition, and who wrote them.

Source of the fields: Iceberg specification, "Manifests" (v1 to v3).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from sterna.errors import Unsupported
from sterna.iceberg.avro.binary import Truncated, read_long
from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import Located, locate
from sterna.iceberg.avro.program import NotWalkable, Program, Take, Want, base, compile_schema
from sterna.iceberg.avro.records import AVRO_ERRORS
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.header import open_iceberg
from sterna.limits import DEFAULT_LIMITS, Limits

_SNAPSHOT: Final = 1
_PARTITION: Final = 102
_RECORDS: Final = 103
_ENTRY_WANTS: Final = (*ids.ENTRY_WANTS, Want(_SNAPSHOT, ("snapshot_id",), Take.LONG))
_FILE_WANTS: Final = (
    Want(ids.CONTENT, ("content",), Take.LONG),
    Want(ids.FILE_PATH, ("file_path",), Take.BYTES),
    Want(ids.FILE_SIZE, ("file_size_in_bytes",), Take.LONG),
    Want(_PARTITION, ("partition",), Take.SPAN),
    Want(_RECORDS, ("record_count",), Take.LONG),
    Want(ids.COLUMN_SIZES, ("column_sizes",), Take.SPAN),
    Want(ids.REFERENCED_DATA_FILE, ("referenced_data_file",), Take.BYTES),
)


@dataclass(frozen=True)
class FileAmount:
    """One entry of a manifest.

    Args:
        status: 0 existing, 1 added, 2 deleted.
        content: 0 data, 1 position deletes, 2 equality deletes.
        path: its URI.
        size: in bytes.
        records: its rows; of a file of deletes, how many rows it deletes.
        columns: bytes of its columns, without what the format needs beside them; -1 where nobody tells.
        snapshot_id: the snapshot that added it, or took it away; None: that which added the manifest.
        partition: its partition as text, `day=2026-01-02`; "" in an unpartitioned table. Equal within a spec means the
            same partition.
        referenced: the one data file that all its deletes are for, or "".
    """

    status: int
    content: int
    path: str
    size: int
    records: int
    columns: int
    snapshot_id: int | None
    partition: str
    referenced: str


def read_amounts(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> tuple[FileAmount, ...]:
    """Read what a manifest says of its files' amounts, in its order.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.
        limits: of the region.

    Raises:
        Unsupported: format v4 or newer, or a schema of a shape that no writer is known to make.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse, or lacks a required field.
    """
    container = open_iceberg(data, uri, "manifest", limits)
    wants = {None: _ENTRY_WANTS, ids.DATA_FILE: _FILE_WANTS}
    try:
        program = compile_schema(container.schema, wants, {ids.DATA_FILE: "data_file"}, uri)
    except NotWalkable as error:
        raise Unsupported(f"a manifest whose schema is of another shape: {error}", file=uri) from None
    for number in (ids.STATUS, ids.FILE_PATH, ids.FILE_SIZE, _RECORDS):
        if number not in program.columns:
            raise container.broken(f"the schema lacks the required field {number}")
    partitions = _Partitions(container, program)
    found: list[FileAmount] = []
    for group in container.groups():
        found += _amounts(container, program, group, locate(program, group, container), partitions)
    return tuple(found)


def _amounts(
    container: Container, program: Program, group: Group, located: Located, partitions: _Partitions
) -> Iterator[FileAmount]:
    def numbers(number: int) -> list[int | None]:
        starts, values = located.column(number, 0), located.column(number, 1)
        return [None if start < 0 else value for start, value in zip(starts, values, strict=True)]

    def texts(number: int) -> list[str]:
        starts, ends = located.column(number, 1), located.column(number, 2)
        there = located.column(number, 0)
        spans = zip(there, starts, ends, strict=True)
        return ["" if at < 0 else group.data[start:end].decode("utf-8", "replace") for at, start, end in spans]

    spans = {
        number: list(zip(located.column(number, 0), located.column(number, 2), strict=True))
        for number in (_PARTITION, ids.COLUMN_SIZES)
    }
    rows = zip(
        numbers(ids.STATUS),
        numbers(ids.CONTENT),
        texts(ids.FILE_PATH),
        numbers(ids.FILE_SIZE),
        numbers(_RECORDS),
        numbers(_SNAPSHOT),
        texts(ids.REFERENCED_DATA_FILE),
        spans[_PARTITION],
        spans[ids.COLUMN_SIZES],
        strict=True,
    )
    for status, content, path, size, records, snapshot, referenced, partition, sizes in rows:
        if status is None or size is None or records is None or not path or min(size, records) < 0:
            raise container.broken("an entry lacks a required field, or has a negative size")
        start, end = sizes
        columns = _sum_of_map(container, group.data, start, end, program.types.get(ids.COLUMN_SIZES))
        text = partitions.text(group.data[partition[0] : partition[1]] if partition[0] >= 0 else b"")
        yield FileAmount(status, content or 0, path, size, records, columns, snapshot, text, referenced)


class _Partitions:
    """The partitions of a manifest's entries, each decoded once."""

    def __init__(self, container: Container, program: Program) -> None:
        self._container = container
        kind = program.types.get(_PARTITION)
        try:
            self._schema = (
                None if kind is None else fastavro.parse_schema(json.loads(json.dumps(kind)), _write_hint=False)
            )
        except Exception as error:
            raise container.broken(f"fastavro refuses the partition's schema: {type(error).__name__}") from error
        self._known: dict[bytes, str] = {}

    def text(self, data: bytes) -> str:
        known = self._known.get(data)
        if known is None:
            known = self._known[data] = self._decoded(data)
        return known

    def _decoded(self, data: bytes) -> str:
        if self._schema is None:
            return ""
        try:
            record: Any = fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)
        except AVRO_ERRORS as error:
            raise self._container.broken(f"a partition doesn't fit its schema: {type(error).__name__}") from error
        return "/".join(f"{name}={_shown(value)}" for name, value in record.items()) if record else ""


def _shown(value: Any) -> str:
    return "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)


def _sum_of_map(container: Container, data: bytes, start: int, end: int, kind: Any) -> int:
    """Return the sum of the values of an Iceberg map of int to long; -1 where there is none."""
    if start < 0:
        return -1
    try:
        at, total = start, 0
        if isinstance(kind, list):
            branch, at = read_long(data, at)
            if base(kind[branch]) == "null":
                return -1
        count, at = read_long(data, at)
        while count:
            if count < 0:
                _, at = read_long(data, at)
            for _ in range(abs(count)):
                _, at = read_long(data, at)
                value, at = read_long(data, at)
                total += value
            count, at = read_long(data, at)
    except (Truncated, IndexError):
        raise container.broken("the sizes of an entry's columns don't fit their type") from None
    return total if at == end else -1
