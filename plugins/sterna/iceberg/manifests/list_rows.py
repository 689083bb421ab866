"""A manifest list's rows as complete records by field ids: to compare those of two lists, and to write a list of both.

Source of the fields: Iceberg specification, "Manifest Lists" (v1 to v3).
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import fastavro

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.iceberg.avro.by_field_id import Values, field_schema
from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.records import AVRO_ERRORS, decode_group, parse_schema
from sterna.iceberg.avro.rewrite import replace_records
from sterna.iceberg.manifests.header import open_manifest_container
from sterna.iceberg.manifests.manifest_list import ManifestFile, read_manifest_list

PATH: Final = 500
LENGTH: Final = 501
SPEC_ID: Final = 502
ADDED_SNAPSHOT: Final = 503
ADDED_FILES: Final = 504
EXISTING_FILES: Final = 505
DELETED_FILES: Final = 506
PARTITIONS: Final = 507
ADDED_ROWS: Final = 512
EXISTING_ROWS: Final = 513
DELETED_ROWS: Final = 514
SEQUENCE_NUMBER: Final = 515
MIN_SEQUENCE_NUMBER: Final = 516
CONTENT: Final = 517
KEY_METADATA: Final = 519
FIRST_ROW_ID: Final = 520

_NAMES: Final = {
    PATH: "manifest_path",
    LENGTH: "manifest_length",
    SPEC_ID: "partition_spec_id",
    CONTENT: "content",
    SEQUENCE_NUMBER: "sequence_number",
    MIN_SEQUENCE_NUMBER: "min_sequence_number",
    ADDED_SNAPSHOT: "added_snapshot_id",
    ADDED_FILES: "added_files_count",
    EXISTING_FILES: "existing_files_count",
    DELETED_FILES: "deleted_files_count",
    ADDED_ROWS: "added_rows_count",
    EXISTING_ROWS: "existing_rows_count",
    DELETED_ROWS: "deleted_rows_count",
    PARTITIONS: "partitions",
    KEY_METADATA: "key_metadata",
    FIRST_ROW_ID: "first_row_id",
    509: "contains_null",
    518: "contains_nan",
    510: "lower_bound",
    511: "upper_bound",
}
# What a list of format v1 leaves out means the same as these.
_DEFAULTS: Final = {CONTENT: 0, SEQUENCE_NUMBER: 0, MIN_SEQUENCE_NUMBER: 0}


@dataclass(frozen=True)
class ListRow:
    """One row of a manifest list.

    Args:
        manifest: what every reader needs of it.
        values: all of its values by field id; what format v1 leaves out has its default.
        stored: its bytes, in the schema of its list.
    """

    manifest: ManifestFile
    values: Values
    stored: bytes

    @property
    def sequence_number(self) -> int:
        """The sequence number that the manifest was added with."""
        return int(self.values[SEQUENCE_NUMBER])


class ManifestListRows:
    """A manifest list whose rows are complete records.

    Args:
        data: the file's bytes.
        uri: its URI, for errors.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_manifest_list`.
    """

    def __init__(self, data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> None:
        manifests = read_manifest_list(data, uri, limits)
        self.container: Container = open_manifest_container(data, uri, "manifest list", limits)
        self._fields = field_schema(self.container, _NAMES)
        self.rows: tuple[ListRow, ...] = tuple(
            ListRow(manifest, values, stored)
            for manifest, (values, stored) in zip(manifests, self._read(), strict=True)
        )

    @cached_property
    def _schema(self) -> Any:
        return parse_schema(self.container)

    def _read(self) -> Iterator[tuple[Values, bytes]]:
        for group in self.container.groups():
            for record, start, end in decode_group(self.container, group, self._schema):
                values = self._fields.values(record)
                absent = {field_id: value for field_id, value in _DEFAULTS.items() if values.get(field_id) is None}
                yield values | absent | {PARTITIONS: values.get(PARTITIONS) or None}, group.data[start:end]

    def encode(self, row: ListRow, origin: ManifestListRows, changes: Mapping[int, Any]) -> bytes:
        """Return a row in this list's schema.

        Args:
            row: of this list or another one.
            origin: the row's list.
            changes: other values for some of its fields.

        Raises:
            BrokenMetadata: a value doesn't fit this list's schema.
        """
        if not changes and origin.container.schema == self.container.schema:
            return row.stored
        values = row.values | dict(changes)
        record = self._fields.record(values | {PARTITIONS: values[PARTITIONS] or []})
        stream = io.BytesIO()
        try:
            fastavro.schemaless_writer(stream, self._schema, record)
        except AVRO_ERRORS as error:
            raise self.container.broken(
                f"a row can't be written in the list's schema: {type(error).__name__}"
            ) from error
        return stream.getvalue()

    def with_rows(self, encoded: Iterable[bytes]) -> bytes:
        """Return a list with this one's header, and other rows.

        Args:
            encoded: as `encode` returns them.
        """
        return replace_records(self.container, encoded)
