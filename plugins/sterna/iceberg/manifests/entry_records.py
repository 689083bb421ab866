"""A manifest's entries as complete records by field ids: to compare those of two manifests, and to replace their files.

Source of the fields: Iceberg specification, "Manifests" (v1 to v3).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.iceberg.avro.by_field_id import FieldSchema, Values, field_schema
from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.records import Record, read_records
from sterna.iceberg.avro.rewrite import rewrite_records
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.header import open_manifest_container

SNAPSHOT_ID: Final = 1
SEQUENCE_NUMBER: Final = 3
FILE_SEQUENCE_NUMBER: Final = 4
PARTITION: Final = 102
RECORD_COUNT: Final = 103
EQUALITY_IDS: Final = 135
FIRST_ROW_ID: Final = 142
CONTENT_SIZE: Final = 145

_NAMES: Final = {
    **{projected.id: projected.names[0] for projected in (*ids.ENTRY_FIELDS, *ids.FILE_FIELDS, *ids.DELETE_FIELDS)},
    SNAPSHOT_ID: "snapshot_id",
    SEQUENCE_NUMBER: "sequence_number",
    FILE_SEQUENCE_NUMBER: "file_sequence_number",
    ids.DATA_FILE: "data_file",
    PARTITION: "partition",
    RECORD_COUNT: "record_count",
    109: "value_counts",
    110: "null_value_counts",
    137: "nan_value_counts",
    EQUALITY_IDS: "equality_ids",
    140: "sort_order_id",
    FIRST_ROW_ID: "first_row_id",
    CONTENT_SIZE: "content_size_in_bytes",
}


@dataclass(frozen=True)
class EntryRecord:
    """One entry of a manifest, as it stands there: without what it inherits from the manifest's row in a list.

    Args:
        status: 0 existing, 1 added, 2 deleted.
        snapshot_id, sequence_number, file_sequence_number: None where they are inherited.
        file: the values of its `data_file`, by field id.
    """

    status: int
    snapshot_id: int | None
    sequence_number: int | None
    file_sequence_number: int | None
    file: Values

    @property
    def path(self) -> str:
        """The file's URI."""
        return str(self.file[ids.FILE_PATH])

    @property
    def content(self) -> int:
        """0 data, 1 position deletes, 2 equality deletes."""
        return int(self.file.get(ids.CONTENT) or ids.DATA)

    @property
    def size(self) -> int:
        """The file's size in bytes."""
        return int(self.file[ids.FILE_SIZE])

    @property
    def record_count(self) -> int:
        """The file's rows."""
        return int(self.file[RECORD_COUNT])

    @property
    def file_format(self) -> str:
        """The file's format in upper case."""
        return str(self.file[ids.FILE_FORMAT]).upper()

    @property
    def offset(self) -> int | None:
        """Where its part of the file begins; None for a whole file."""
        offset: int | None = self.file.get(ids.CONTENT_OFFSET)
        return offset

    @property
    def referenced_data_file(self) -> str:
        """The one data file that all its deletes are for, or ""."""
        return str(self.file.get(ids.REFERENCED_DATA_FILE) or "")


class ManifestRecords:
    """A manifest whose entries are complete records.

    Args:
        data: the manifest's bytes.
        uri: its URI, for errors.

    Raises:
        Unsupported: format v4 or newer, or a schema that can't be followed.
        OverLimit: the file is larger than the limits allow.
        BrokenMetadata: the header does not parse, or the schema lacks a required field.
    """

    def __init__(self, data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> None:
        self.container: Container = open_manifest_container(data, uri, "manifest", limits)
        self._fields: FieldSchema = field_schema(self.container, _NAMES)
        files = self._fields.nested(ids.DATA_FILE)
        if files is None or not self._fields.name(ids.STATUS):
            raise self.container.broken("the Avro schema has no status, or no data file record")
        self._files: FieldSchema = files

    def entries(self) -> Iterator[EntryRecord]:
        """Yield the entries, in order.

        Raises:
            OverLimit: the file holds more than the limits allow.
            BrokenMetadata: the bytes don't fit the schema, or a required value is missing.
        """
        for record in read_records(self.container):
            yield self._entry(record)

    def with_files(self, replace: Callable[[EntryRecord], Values | None]) -> bytes | None:
        """Return the manifest with other files in its entries, or None when nothing changes.

        Args:
            replace: returns the values that differ, by field id; what the schema has no field for is left out.

        Raises:
            OverLimit: the file holds more than the limits allow.
            BrokenMetadata: the bytes don't fit the schema, or a value doesn't.
        """

        def edit(record: Record) -> bool:
            values = replace(self._entry(record))
            if values is None:
                return False
            file = record[self._fields.name(ids.DATA_FILE)]
            names = {self._files.name(field_id) for field_id in values} - {""}
            changes = {name: value for name, value in self._files.record(values).items() if name in names}
            is_changed = any(file.get(name) != value for name, value in changes.items())
            file.update(changes)
            return is_changed

        return rewrite_records(self.container, edit)

    def _entry(self, record: Record) -> EntryRecord:
        values = self._fields.values(record)
        file = values.get(ids.DATA_FILE)
        if not isinstance(file, dict) or not isinstance(values.get(ids.STATUS), int):
            raise self.container.broken("an entry without a status or a data file")
        for field_id, kind in ((ids.FILE_PATH, str), (ids.FILE_FORMAT, str), (ids.FILE_SIZE, int), (RECORD_COUNT, int)):
            if not isinstance(file.get(field_id), kind):
                raise self.container.broken(f"an entry whose field {field_id} is missing, or of another type")
        if min(file[ids.FILE_SIZE], file[RECORD_COUNT]) < 0:
            raise self.container.broken("an entry with a negative size or number of rows")
        return EntryRecord(
            values[ids.STATUS],
            _integer(values, SNAPSHOT_ID),
            _integer(values, SEQUENCE_NUMBER),
            _integer(values, FILE_SEQUENCE_NUMBER),
            file,
        )


def _integer(values: Values, field_id: int) -> int | None:
    value: Any = values.get(field_id)
    return value if isinstance(value, int) else None
