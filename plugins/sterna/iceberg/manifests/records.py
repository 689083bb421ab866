"""A manifest's entries as complete records, read and rewritten: for schemas that `spans` does not support."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.records import Record, field_names, nullable_fields, read_records
from sterna.iceberg.avro.rewrite import rewrite_records
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.entry import (
    Entry,
    EntryColumns,
    MapUris,
    ReferencesOtherFiles,
    Scan,
    UriMapping,
    localize_entry,
)
from sterna.libraries import pa, pc

_NAMES: Final = {projected.id: projected.names[0] for projected in (*ids.FILE_FIELDS, *ids.DELETE_FIELDS)}
_TOP_NAMES: Final = {ids.STATUS: "status", ids.DATA_FILE: "data_file"}


def read_columns(container: Container) -> Iterator[EntryColumns]:
    """Read all entries.

    Raises:
        BrokenMetadata: the bytes don't fit the schema, or a required field is missing.
    """
    fields = _resolve_fields(container)
    rows = [_entry_row(fields, record) for record in read_records(container)]
    texts, numbers, flags = pa.string(), pa.int64(), pa.bool_()
    kinds = (numbers, numbers, texts, texts, numbers, flags, flags, flags)
    entry_columns = EntryColumns(*(pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)))
    if pc.any(pc.less(entry_columns.file_size, 0)).as_py():
        raise container.broken("an entry with a negative file size")
    yield entry_columns


def _entry_row(fields: _Fields, record: Record) -> tuple[Any, ...]:
    """Return the wanted fields of an entry, in the order of `Columns`."""
    data_file = fields.data_file(record)
    return (
        fields.integer(record, ids.STATUS),
        fields.content(data_file),
        fields.string(data_file, ids.FILE_PATH),
        fields.string(data_file, ids.FILE_FORMAT).upper(),
        fields.integer(data_file, ids.FILE_SIZE),
        fields.has_bytes(data_file, ids.KEY_METADATA),
        fields.has(data_file, ids.CONTENT_OFFSET),
        fields.has_bytes(data_file, ids.REFERENCED_DATA_FILE),
    )


def localize(container: Container, mapping: UriMapping) -> bytes | None:
    """Return the localized manifest, or None when nothing changes.

    Raises:
        Unsupported, BrokenMetadata: as `manifest.localize_manifest`.
    """
    fields = _resolve_fields(container)
    for entry_columns in read_columns(container):
        entry_columns.validate(container.uri)
    return rewrite_records(container, lambda record: _edit(container, fields, record, mapping))


def scan(container: Container, map_content: MapUris, map_deleted: MapUris) -> Scan:
    """Read the entries, and localize them.

    Raises:
        Unsupported, BrokenMetadata: as `manifest.scan_manifest`.
        ReferencesOtherFiles: an entry names other files, whose places `localize` alone can map.
    """
    groups = []
    for entry_columns in read_columns(container):
        entry_columns.validate(container.uri)
        if entry_columns.references_other_files:
            raise ReferencesOtherFiles
        groups.append((entry_columns, entry_columns.target_uris(map_content, map_deleted)))
    live, deleted = dict[str, str](), dict[str, str]()
    for entry_columns, targets in groups:
        rows = zip(
            *(column.to_pylist() for column in (entry_columns.status, entry_columns.file_path, targets)), strict=True
        )
        for status, path, target in rows:
            (deleted if status == ids.DELETED else live)[path] = target
    mapping = UriMapping(live.__getitem__, {}, deleted.__getitem__, deleted.__getitem__)
    return Scan(groups, localize(container, mapping))


def _entry(fields: _Fields, record: Record, data_file: Record) -> Entry:
    has_referenced_data_file = fields.has_bytes(data_file, ids.REFERENCED_DATA_FILE)
    return Entry(
        status=fields.integer(record, ids.STATUS),
        content=fields.content(data_file),
        path=fields.string(data_file, ids.FILE_PATH),
        size=fields.integer(data_file, ids.FILE_SIZE),
        is_deletion_vector=fields.string(data_file, ids.FILE_FORMAT).upper() == ids.PUFFIN,
        referenced_data_file=fields.string(data_file, ids.REFERENCED_DATA_FILE) if has_referenced_data_file else None,
        lower_bound=fields.bound(data_file, ids.LOWER_BOUNDS),
        upper_bound=fields.bound(data_file, ids.UPPER_BOUNDS),
    )


def _edit(container: Container, fields: _Fields, record: Record, mapping: UriMapping) -> bool:
    data_file = fields.data_file(record)
    entry = _entry(fields, record, data_file)
    new = localize_entry(entry, mapping, container.uri)
    unedited = dict(data_file)
    fields.put(data_file, ids.FILE_PATH, new.path)
    fields.put(data_file, ids.FILE_SIZE, new.size)
    if new.referenced_data_file is not None:
        fields.put(data_file, ids.REFERENCED_DATA_FILE, new.referenced_data_file)
    for field_id, old, bound in zip(
        ids.BOUND_FIELDS, (entry.lower_bound, entry.upper_bound), (new.lower_bound, new.upper_bound), strict=True
    ):
        if bound != old:
            fields.put_bound(data_file, field_id, bound)
    if new.drop_layout:
        for field_id in ids.LAYOUT_FIELDS:
            fields.clear(data_file, field_id)
    return data_file != unedited


@dataclass(frozen=True)
class _Fields:
    """Access to a record's fields by Iceberg field id.

    Args:
        container: the manifest, for errors.
        top: field id → name, in an entry.
        inner: field id → name, in its data file.
        nullable: the names of the data file's fields that may be null.
    """

    container: Container
    top: dict[int, str]
    inner: dict[int, str]
    nullable: frozenset[str]

    def data_file(self, record: Record) -> Record:
        value = record.get(self.top.get(ids.DATA_FILE, ""))
        if not isinstance(value, dict):
            raise self.container.broken("an entry without a data file")
        return value

    def _get(self, record: Record, field_id: int) -> Any:
        names = self.top if field_id == ids.STATUS else self.inner
        return record.get(names[field_id]) if field_id in names else None

    def has(self, record: Record, field_id: int) -> bool:
        return self._get(record, field_id) is not None

    def has_bytes(self, record: Record, field_id: int) -> bool:
        return bool(self._get(record, field_id))

    def integer(self, record: Record, field_id: int) -> int:
        value = self._get(record, field_id)
        if not isinstance(value, int):
            raise self.container.broken(f"field {field_id} of an entry is not an integer")
        return int(value)  # True is one, too

    def content(self, data_file: Record) -> int:
        return self.integer(data_file, ids.CONTENT) if self.has(data_file, ids.CONTENT) else ids.DATA

    def string(self, record: Record, field_id: int) -> str:
        value = self._get(record, field_id)
        if not isinstance(value, str):
            raise self.container.broken(f"field {field_id} of an entry is not a string")
        return value

    def put(self, record: Record, field_id: int, value: Any) -> None:
        if field_id in self.inner:
            record[self.inner[field_id]] = value

    def clear(self, record: Record, field_id: int) -> None:
        value = self._get(record, field_id)
        if value is None or self.inner[field_id] in self.nullable:
            self.put(record, field_id, None)
        elif isinstance(value, list | dict):
            self.put(record, field_id, type(value)())
        else:
            raise self.container.broken(f"field {field_id} of an entry can't be emptied")

    def bound(self, record: Record, field_id: int) -> bytes | None:
        values = [pair["value"] for pair in self._map_pairs(record, field_id) if pair["key"] == ids.PATH_COLUMN]
        return values[-1] if values else None

    def put_bound(self, record: Record, field_id: int, value: bytes | None) -> None:
        pairs = [
            {**pair, "value": value} if pair["key"] == ids.PATH_COLUMN else pair
            for pair in self._map_pairs(record, field_id)
        ]
        self.put(record, field_id, [pair for pair in pairs if pair["value"] is not None])

    def _map_pairs(self, record: Record, field_id: int) -> list[dict[str, Any]]:
        pairs = self._get(record, field_id) or []
        if not isinstance(pairs, list) or not all(
            isinstance(pair, dict) and {"key", "value"} <= pair.keys() for pair in pairs
        ):
            raise self.container.broken(f"field {field_id} of an entry is not a map of bounds")
        return pairs


def _resolve_fields(container: Container) -> _Fields:
    schema = container.schema
    if not isinstance(schema, dict) or not isinstance(schema.get("fields"), list):
        raise container.broken("the Avro schema is not a record")
    top = field_names(schema, _TOP_NAMES)
    kind = next((field["type"] for field in schema["fields"] if field.get("name") == top.get(ids.DATA_FILE)), None)
    branches = kind if isinstance(kind, list) else [kind]
    inner = next(
        (branch for branch in branches if isinstance(branch, dict) and isinstance(branch.get("fields"), list)), None
    )
    if inner is None:
        raise container.broken("the Avro schema has no data file record")
    return _Fields(container, top, field_names(inner, _NAMES), nullable_fields(inner))
