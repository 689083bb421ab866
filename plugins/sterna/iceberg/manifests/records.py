"""A manifest's entries as whole records, read and rewritten: for schemas that `spans` does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.iceberg.avro.container import Container
from sterna.iceberg.avro.records import Record, field_names, nullable_fields, records
from sterna.iceberg.avro.rewrite import rewrite_records
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.entry import Columns, Entry, NamesOthers, Scan, UriMapping, change

_NAMES: Final = {want.id: want.names[0] for want in (*ids.FILE_WANTS, *ids.DELETE_WANTS)}
_TOP_NAMES: Final = {ids.STATUS: "status", ids.DATA_FILE: "data_file"}
_BOUNDS: Final = (ids.LOWER_BOUNDS, ids.UPPER_BOUNDS)
_LAYOUT: Final = (ids.COLUMN_SIZES, ids.SPLIT_OFFSETS)


def columns(container: Container) -> Iterator[Columns]:
    """Read all entries.

    Raises:
        BrokenMetadata: the bytes don't fit the schema, or a required field is missing.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    fields = _fields(container)
    rows = [_wanted(fields, record) for record in records(container)]
    texts, numbers, marks = pa.string(), pa.int64(), pa.bool_()
    kinds = (numbers, numbers, texts, texts, numbers, marks, marks, marks)
    found = Columns(*(pa.array([row[at] for row in rows], kind) for at, kind in enumerate(kinds)))
    if pc.any(pc.less(found.file_size, 0)).as_py():
        raise container.broken("an entry with a negative file size")
    yield found


def _wanted(fields: _Fields, record: Record) -> tuple[Any, ...]:
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
    fields = _fields(container)
    for found in columns(container):
        found.check(container.uri)
    return rewrite_records(container, lambda record: _edit(container, fields, record, mapping))


def scan(container: Container, content: Callable[[str], str], deleted: Callable[[str], str]) -> Scan:
    """Read the entries, and localize them.

    Raises:
        Unsupported, BrokenMetadata: as `manifest.scan_manifest`.
    """
    groups = []
    for found in columns(container):
        found.check(container.uri)
        if found.name_others:
            raise NamesOthers
        groups.append((found, found.targets(content, deleted)))
    return Scan(groups, localize(container, UriMapping(content, {}, deleted, deleted)))


def _entry(fields: _Fields, record: Record, data_file: Record) -> Entry:
    refers = fields.has_bytes(data_file, ids.REFERENCED_DATA_FILE)
    return Entry(
        status=fields.integer(record, ids.STATUS),
        content=fields.content(data_file),
        path=fields.string(data_file, ids.FILE_PATH),
        size=fields.integer(data_file, ids.FILE_SIZE),
        vector=fields.string(data_file, ids.FILE_FORMAT).upper() == ids.PUFFIN,
        referenced=fields.string(data_file, ids.REFERENCED_DATA_FILE) if refers else None,
        lower=fields.bound(data_file, ids.LOWER_BOUNDS),
        upper=fields.bound(data_file, ids.UPPER_BOUNDS),
    )


def _edit(container: Container, fields: _Fields, record: Record, mapping: UriMapping) -> bool:
    data_file = fields.data_file(record)
    entry = _entry(fields, record, data_file)
    new = change(entry, mapping, container.uri)
    before = dict(data_file)
    fields.put(data_file, ids.FILE_PATH, new.path)
    fields.put(data_file, ids.FILE_SIZE, new.size)
    if new.referenced is not None:
        fields.put(data_file, ids.REFERENCED_DATA_FILE, new.referenced)
    for number, old, bound in zip(_BOUNDS, (entry.lower, entry.upper), (new.lower, new.upper), strict=True):
        if bound != old:
            fields.put_bound(data_file, number, bound)
    if new.drop_layout:
        for number in _LAYOUT:
            fields.empty(data_file, number)
    return data_file != before


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

    def _get(self, record: Record, number: int) -> Any:
        names = self.top if number == ids.STATUS else self.inner
        return record.get(names[number]) if number in names else None

    def has(self, record: Record, number: int) -> bool:
        return self._get(record, number) is not None

    def has_bytes(self, record: Record, number: int) -> bool:
        return bool(self._get(record, number))

    def integer(self, record: Record, number: int) -> int:
        value = self._get(record, number)
        if not isinstance(value, int):
            raise self.container.broken(f"field {number} of an entry is not an integer")
        return int(value)  # True is one, too

    def content(self, data_file: Record) -> int:
        return self.integer(data_file, ids.CONTENT) if self.has(data_file, ids.CONTENT) else ids.DATA

    def string(self, record: Record, number: int) -> str:
        value = self._get(record, number)
        if not isinstance(value, str):
            raise self.container.broken(f"field {number} of an entry is not a string")
        return value

    def put(self, record: Record, number: int, value: Any) -> None:
        if number in self.inner:
            record[self.inner[number]] = value

    def empty(self, record: Record, number: int) -> None:
        value = self._get(record, number)
        if value is None or self.inner[number] in self.nullable:
            self.put(record, number, None)
        elif isinstance(value, list | dict):
            self.put(record, number, type(value)())
        else:
            raise self.container.broken(f"field {number} of an entry can't be emptied")

    def bound(self, record: Record, number: int) -> bytes | None:
        values = [item["value"] for item in self._items(record, number) if item["key"] == ids.PATH_COLUMN]
        return values[-1] if values else None

    def put_bound(self, record: Record, number: int, value: bytes | None) -> None:
        items = [
            {**item, "value": value} if item["key"] == ids.PATH_COLUMN else item for item in self._items(record, number)
        ]
        self.put(record, number, [item for item in items if item["value"] is not None])

    def _items(self, record: Record, number: int) -> list[dict[str, Any]]:
        items = self._get(record, number) or []
        if not isinstance(items, list) or not all(
            isinstance(item, dict) and {"key", "value"} <= item.keys() for item in items
        ):
            raise self.container.broken(f"field {number} of an entry is not a map of bounds")
        return items


def _fields(container: Container) -> _Fields:
    schema = container.schema
    if not isinstance(schema, dict) or not isinstance(schema.get("fields"), list):
        raise container.broken("the Avro schema is not a record")
    top = field_names(schema, _TOP_NAMES)
    kind = next((item["type"] for item in schema["fields"] if item.get("name") == top.get(ids.DATA_FILE)), None)
    branches = kind if isinstance(kind, list) else [kind]
    inner = next(
        (branch for branch in branches if isinstance(branch, dict) and isinstance(branch.get("fields"), list)), None
    )
    if inner is None:
        raise container.broken("the Avro schema has no data file record")
    return _Fields(container, top, field_names(inner, _NAMES), nullable_fields(inner))
