"""Statistics of a manifest's files: their rows and bytes, their partition, and the snapshot that wrote them.

Source of the fields: Iceberg specification, "Manifests" (v1 to v3).
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import fastavro

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import Unsupported
from sterna.iceberg.avro.binary import Truncated, read_long
from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import FieldPositions, locate
from sterna.iceberg.avro.program import Capture, NotWalkable, Program, ProjectedField, compile_schema, type_name
from sterna.iceberg.avro.records import AVRO_ERRORS
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.header import open_manifest_container

_SNAPSHOT: Final = 1
_PARTITION: Final = 102
_RECORDS: Final = 103
_ENTRY_FIELDS: Final = (*ids.ENTRY_FIELDS, ProjectedField(_SNAPSHOT, ("snapshot_id",), Capture.LONG))
_FILE_FIELDS: Final = (
    ProjectedField(ids.CONTENT, ("content",), Capture.LONG),
    ProjectedField(ids.FILE_PATH, ("file_path",), Capture.BYTES),
    ProjectedField(ids.FILE_SIZE, ("file_size_in_bytes",), Capture.LONG),
    ProjectedField(_PARTITION, ("partition",), Capture.SPAN),
    ProjectedField(_RECORDS, ("record_count",), Capture.LONG),
    ProjectedField(ids.COLUMN_SIZES, ("column_sizes",), Capture.SPAN),
    ProjectedField(ids.REFERENCED_DATA_FILE, ("referenced_data_file",), Capture.BYTES),
)


@dataclass(frozen=True)
class FileStats:
    """One entry of a manifest.

    Args:
        status: 0 existing, 1 added, 2 deleted.
        content: 0 data, 1 position deletes, 2 equality deletes.
        size: in bytes.
        record_count: its rows; of a file of deletes, how many rows it deletes.
        column_bytes: bytes of its columns, without the format's overhead; -1 where the manifest has none.
        snapshot_id: the snapshot that added it, or took it away; None: that which added the manifest.
        partition: its partition as text, `day=2026-01-02`; "" in an unpartitioned table. Equal within a spec means the
            same partition.
        referenced_data_file: the one data file that all its deletes are for, or "".
    """

    status: int
    content: int
    path: str
    size: int
    record_count: int
    column_bytes: int
    snapshot_id: int | None
    partition: str
    referenced_data_file: str


def read_file_stats(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> tuple[FileStats, ...]:
    """Read the statistics of a manifest's files, in its order.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.

    Raises:
        Unsupported: format v4 or newer, or a schema of a shape that no writer is known to make.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse, or lacks a required field.
    """
    container = open_manifest_container(data, uri, "manifest", limits)
    projection = {None: _ENTRY_FIELDS, ids.DATA_FILE: _FILE_FIELDS}
    try:
        program = compile_schema(container.schema, projection, {ids.DATA_FILE: "data_file"}, uri)
    except NotWalkable as error:
        raise Unsupported(f"a manifest whose schema is of another shape: {error}", file=uri) from None
    for field_id in (ids.STATUS, ids.FILE_PATH, ids.FILE_SIZE, _RECORDS):
        if field_id not in program.columns:
            raise container.broken(f"the schema lacks the required field {field_id}")
    partitions = _Partitions(container, program)
    stats: list[FileStats] = []
    for group in container.groups():
        stats += _group_stats(container, program, group, locate(program, group, container), partitions)
    return tuple(stats)


def _group_stats(
    container: Container, program: Program, group: Group, positions: FieldPositions, partitions: _Partitions
) -> Iterator[FileStats]:
    def numbers(field_id: int) -> list[int | None]:
        starts, values = positions.column(field_id, 0), positions.column(field_id, 1)
        return [None if start < 0 else value for start, value in zip(starts, values, strict=True)]

    def texts(field_id: int) -> list[str]:
        starts, ends = positions.column(field_id, 1), positions.column(field_id, 2)
        presence = positions.column(field_id, 0)
        spans = zip(presence, starts, ends, strict=True)
        return ["" if offset < 0 else group.data[start:end].decode("utf-8", "replace") for offset, start, end in spans]

    spans = {
        field_id: list(zip(positions.column(field_id, 0), positions.column(field_id, 2), strict=True))
        for field_id in (_PARTITION, ids.COLUMN_SIZES)
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
        columns = _sum_map_values(container, group.data, start, end, program.types.get(ids.COLUMN_SIZES))
        text = partitions.text(group.data[partition[0] : partition[1]] if partition[0] >= 0 else b"")
        yield FileStats(status, content or 0, path, size, records, columns, snapshot, text, referenced)


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
        self._texts: dict[bytes, str] = {}

    def text(self, data: bytes) -> str:
        text = self._texts.get(data)
        if text is None:
            text = self._texts[data] = self._decode(data)
        return text

    def _decode(self, data: bytes) -> str:
        if self._schema is None:
            return ""
        try:
            record: Any = fastavro.schemaless_reader(io.BytesIO(data), self._schema, None)
        except AVRO_ERRORS as error:
            raise self._container.broken(f"a partition doesn't fit its schema: {type(error).__name__}") from error
        return "/".join(f"{name}={_format_value(value)}" for name, value in record.items()) if record else ""


def _format_value(value: Any) -> str:
    return "null" if value is None else value.hex() if isinstance(value, bytes) else str(value)


def _sum_map_values(container: Container, data: bytes, start: int, end: int, kind: Any) -> int:
    """Return the sum of the values of an Iceberg map of int to long; -1 where there is none."""
    if start < 0:
        return -1
    try:
        offset, total = start, 0
        if isinstance(kind, list):
            branch, offset = read_long(data, offset)
            if type_name(kind[branch]) == "null":
                return -1
        count, offset = read_long(data, offset)
        while count:
            if count < 0:
                _, offset = read_long(data, offset)
            for _ in range(abs(count)):
                _, offset = read_long(data, offset)
                value, offset = read_long(data, offset)
                total += value
            count, offset = read_long(data, offset)
    except (Truncated, IndexError):
        raise container.broken("the sizes of an entry's columns don't fit their type") from None
    return total if offset == end else -1
