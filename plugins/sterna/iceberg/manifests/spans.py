"""A manifest's entries in place in the Avro blocks: spans of bytes, read and replaced without decoding."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.config.limits import MIB
from sterna.iceberg.avro.binary import Truncated, encode_bytes, encode_long, read_bytes, read_long
from sterna.iceberg.avro.container import Container, Group
from sterna.iceberg.avro.locate import FieldPositions, locate
from sterna.iceberg.avro.program import NotWalkable, Program, ProjectedField, compile_schema, type_name
from sterna.iceberg.avro.splice import Splice, Splices, encode_string, encode_strings, rewrite
from sterna.iceberg.manifests import fields as ids
from sterna.iceberg.manifests.entry import (
    Entry,
    EntryChange,
    EntryColumns,
    MapUris,
    ReferencesOtherFiles,
    Scan,
    UriMapping,
    localize_entry,
    over_columns,
)
from sterna.libraries import np, pa, pc

_NESTED: Final = {ids.DATA_FILE: "data_file"}
_REPLACED_FIELDS: Final = (
    ids.FILE_PATH,
    ids.FILE_SIZE,
    ids.REFERENCED_DATA_FILE,
    *ids.BOUND_FIELDS,
    *ids.LAYOUT_FIELDS,
)
_MAX_CACHED_PROGRAMS: Final = 16
_programs: dict[tuple[bytes, tuple[ProjectedField, ...]], Program] = {}


def read_columns(container: Container) -> Iterator[EntryColumns]:
    """Read the entries, group by group.

    Raises:
        NotWalkable: the schema is one for `records`.
        BrokenMetadata: the bytes don't fit the schema, or a required field is missing.
    """
    program = compile_walk(container, ids.FILE_FIELDS)
    for group in container.groups():
        yield _read_group(container, group, locate(program, group, container))


def localize(container: Container, mapping: UriMapping) -> bytes | None:
    """Return the localized manifest, or None when nothing changes.

    Raises:
        NotWalkable: the schema is one for `records`.
        Unsupported, BrokenMetadata: as `manifest.localize_manifest`.
    """
    program = _compile_all(container)
    empty = {
        field_id: _encode_null_or_empty(program.types[field_id])
        for field_id in ids.LAYOUT_FIELDS
        if field_id in program.types
    }

    def splices(group: Group) -> Splices:
        positions = locate(program, group, container)
        entry_columns = _read_group(container, group, positions)
        entry_columns.validate(container.uri)
        if entry_columns.references_other_files:
            return Splices.of(_EntrySplices(container, group, program, positions, empty).build(entry_columns, mapping))
        targets = entry_columns.target_uris(over_columns(mapping.map_content), over_columns(mapping.map_deleted))
        return _path_splices(positions, entry_columns.file_path, targets)

    return rewrite(container, splices)


def scan(container: Container, map_content: MapUris, map_deleted: MapUris) -> Scan:
    """Read the entries and localize them in one walk.

    Raises:
        NotWalkable: the schema is one for `records`.
        Unsupported, BrokenMetadata: as `manifest.scan_manifest`.
    """
    _compile_all(container)  # what localizing would refuse is refused here
    program = compile_walk(container, ids.FILE_FIELDS)
    groups: list[tuple[EntryColumns, pa.StringArray]] = []

    def splices(group: Group) -> Splices:
        positions = locate(program, group, container)
        entry_columns = _read_group(container, group, positions)
        entry_columns.validate(container.uri)
        if entry_columns.references_other_files:
            raise ReferencesOtherFiles
        targets = entry_columns.target_uris(map_content, map_deleted)
        groups.append((entry_columns, targets))
        return _path_splices(positions, entry_columns.file_path, targets)

    return Scan(groups, rewrite(container, splices))


def _compile_all(container: Container) -> Program:
    program = compile_walk(container, (*ids.FILE_FIELDS, *ids.DELETE_FIELDS))
    for field_id in ids.BOUND_FIELDS:
        if field_id in program.types:
            _validate_int_map(program.types[field_id])
    return program


def compile_walk(container: Container, projection: tuple[ProjectedField, ...]) -> Program:
    """Return the program that reads an entry's projected fields; cached by schema.

    Raises:
        BrokenMetadata: the schema lacks a required field.
    """
    # A table's manifests have one schema, and compiling it takes longer than walking a few hundred entries.
    cache_key = (container.metadata["avro.schema"], projection)
    program = _programs.get(cache_key)
    if program is None:
        program = compile_schema(
            container.schema, {None: ids.ENTRY_FIELDS, ids.DATA_FILE: projection}, _NESTED, container.uri
        )
        if len(_programs) >= _MAX_CACHED_PROGRAMS:
            _programs.clear()
        if len(cache_key[0]) <= MIB:
            _programs[cache_key] = program
    for field_id in ids.REQUIRED_FIELDS:
        if field_id not in program.columns:
            raise container.broken(f"the schema lacks the required field {field_id}")
    return program


def _read_group(container: Container, group: Group, positions: FieldPositions) -> EntryColumns:
    def has(field_id: int) -> pa.BooleanArray:
        return pa.array(positions.column_array(field_id, 0) >= 0)

    def has_bytes(field_id: int) -> pa.BooleanArray:
        return pa.array(positions.column_array(field_id, 2) > positions.column_array(field_id, 1))

    _validate_required_fields(container, positions)
    return EntryColumns(
        status=pa.array(positions.column_array(ids.STATUS, 1)),
        content=pa.array(
            np.where(positions.column_array(ids.CONTENT, 0) < 0, ids.DATA, positions.column_array(ids.CONTENT, 1))
        ),
        file_path=_strings(container, group, positions, ids.FILE_PATH),
        file_format=pc.utf8_upper(_strings(container, group, positions, ids.FILE_FORMAT)),
        file_size=pa.array(positions.column_array(ids.FILE_SIZE, 1)),
        encrypted=has_bytes(ids.KEY_METADATA),
        has_offset=has(ids.CONTENT_OFFSET),
        has_referenced_data_file=has_bytes(ids.REFERENCED_DATA_FILE),
    )


def _validate_required_fields(container: Container, positions: FieldPositions) -> None:
    for field_id in ids.REQUIRED_FIELDS:
        if positions.column_array(field_id, 0).min(initial=0) < 0:
            raise container.broken(f"an entry lacks the required field {field_id}")
    if positions.column_array(ids.FILE_SIZE, 1).min(initial=0) < 0:
        raise container.broken("an entry with a negative file size")


def _strings(container: Container, group: Group, positions: FieldPositions, field_id: int) -> pa.StringArray:
    try:
        return positions.strings(group.data, field_id)
    except pa.ArrowInvalid:
        raise container.broken(f"field {field_id} of an entry is not UTF-8") from None


def _path_splices(positions: FieldPositions, paths: pa.StringArray, targets: pa.StringArray) -> Splices:
    """The fast path, for manifests whose entries refer to nothing but their own file."""
    starts, ends = (positions.column_array(ids.FILE_PATH, part) for part in (0, 2))
    changed = pc.not_equal(paths, targets)
    rows = changed.to_numpy(zero_copy_only=False)
    return Splices(starts[rows], ends[rows], encode_strings(targets.filter(changed)))


@dataclass(frozen=True)
class _EntrySplices:
    """The splices of a delete manifest's entries.

    Args:
        program: the compiled schema.
        positions: the spans of the fields.
        empty: field id → the bytes that empty it, for the fields that describe a file's layout.
    """

    container: Container
    group: Group
    program: Program
    positions: FieldPositions
    empty: dict[int, bytes]

    def build(self, entry_columns: EntryColumns, mapping: UriMapping) -> list[Splice]:
        spans = {field_id: self.spans(field_id) for field_id in _REPLACED_FIELDS}
        referenced = self.positions.column(ids.REFERENCED_DATA_FILE, 1)
        splices: list[Splice] = []
        columns = (
            entry_columns.status,
            entry_columns.content,
            entry_columns.file_path,
            entry_columns.file_size,
            entry_columns.is_deletion_vector,
        )
        rows = zip(*(column.to_pylist() for column in columns), strict=True)
        for row, (status, content, path, size, vector) in enumerate(rows):
            row_spans = {field_id: spans[field_id][row] for field_id in spans}
            bounds = [self.read_bound_map(row_spans[field_id], field_id) for field_id in ids.BOUND_FIELDS]
            entry = Entry(
                status=status,
                content=content,
                path=path,
                size=size,
                is_deletion_vector=vector,
                referenced_data_file=self.text(referenced[row], row_spans[ids.REFERENCED_DATA_FILE][1]),
                lower_bound=bounds[0].get(ids.PATH_COLUMN),
                upper_bound=bounds[1].get(ids.PATH_COLUMN),
            )
            splices += self.entry_splices(entry, localize_entry(entry, mapping, self.container.uri), row_spans, bounds)
        return splices

    def spans(self, field_id: int) -> list[tuple[int, int]]:
        return list(zip(self.positions.column(field_id, 0), self.positions.column(field_id, 2), strict=True))

    def entry_splices(
        self, entry: Entry, new: EntryChange, row_spans: dict[int, tuple[int, int]], bounds: list[_IntMap]
    ) -> list[Splice]:
        values: dict[int, bytes] = {}
        if new.path != entry.path:
            values[ids.FILE_PATH] = encode_string(new.path)
        if new.size != entry.size:
            values[ids.FILE_SIZE] = encode_long(new.size)
        if new.referenced_data_file is not None and new.referenced_data_file != entry.referenced_data_file:
            values[ids.REFERENCED_DATA_FILE] = encode_string(new.referenced_data_file)
        for field_id, bound_map, old, bound in zip(
            ids.BOUND_FIELDS,
            bounds,
            (entry.lower_bound, entry.upper_bound),
            (new.lower_bound, new.upper_bound),
            strict=True,
        ):
            if bound != old:
                values[field_id] = bound_map.encode(ids.PATH_COLUMN, bound)
        if new.drop_layout:
            values |= self.empty
        return sorted(
            (*row_spans[field_id], value) for field_id, value in values.items() if row_spans[field_id][0] >= 0
        )

    def text(self, start: int, end: int) -> str | None:
        try:
            return None if start < 0 else self.group.data[start:end].decode()
        except UnicodeDecodeError:
            raise self.container.broken("a referenced data file that is not UTF-8") from None

    def read_bound_map(self, span: tuple[int, int], field_id: int) -> _IntMap:
        kind: Any = self.program.types.get(field_id)
        try:
            return _read_int_map(self.group.data, *span, kind)
        except (Truncated, IndexError):
            raise self.container.broken(f"field {field_id} of an entry does not fit its type") from None


def _encode_null_or_empty(kind: Any) -> bytes:
    """Return the bytes of "no value" in a field: null where its union has one, else an empty array or map.

    Raises:
        NotWalkable: the type has neither.
    """
    if isinstance(kind, list):
        for number, branch in enumerate(kind):
            if type_name(branch) == "null":
                return encode_long(number)
    if type_name(kind) in ("array", "map"):
        return encode_long(0)
    raise NotWalkable("a field that can't be emptied")


def _validate_int_map(kind: Any) -> None:
    """Refuse a type that is not an Iceberg map of int to bytes as Avro holds it: a (nullable) array of key and
    value records.

    Raises:
        NotWalkable: another shape.
    """
    for branch in kind if isinstance(kind, list) else [kind]:
        element = branch.get("items") if isinstance(branch, dict) else None
        fields = element.get("fields") if isinstance(element, dict) else None
        shape = [type_name(field.get("type")) for field in fields] if isinstance(fields, list) else []
        if type_name(branch) != "null" and not (
            type_name(branch) == "array" and shape in (["int", "bytes"], ["long", "bytes"])
        ):
            raise NotWalkable("a map of another shape")


@dataclass(frozen=True)
class _IntMap:
    """An Iceberg map of int to bytes.

    Args:
        branch: the bytes of its union branch, if it has one.
        items: keys and values, in order.
    """

    branch: bytes
    items: tuple[tuple[int, bytes], ...]

    def get(self, key: int) -> bytes | None:
        """Return the value of a key, or None; of a key that occurs twice the last one, which is what readers take."""
        return dict(self.items).get(key)

    def encode(self, key: int, value: bytes | None) -> bytes:
        """Return the field with one key's value replaced, or without the key where `value` is None."""
        items = [(number, value if number == key else old) for number, old in self.items]
        kept = [encode_long(number) + encode_bytes(content) for number, content in items if content is not None]
        return self.branch + (encode_long(len(kept)) if kept else b"") + b"".join(kept) + encode_long(0)


def _read_int_map(data: bytes, start: int, end: int, kind: Any) -> _IntMap:
    """Read an Iceberg map of int to bytes.

    Args:
        data: the group's data.
        start: offset of the field's value, its union branch included; -1 where the schema lacks the field.
        end: offset after it.
        kind: its Avro type, as `_validate_int_map` accepts it.

    Raises:
        Truncated: the bytes don't fit the type.
    """
    if start < 0:
        return _IntMap(b"", ())
    at = start
    if isinstance(kind, list):
        number, at = read_long(data, start)
        kind = kind[number]
    branch = data[start:at]
    items: list[tuple[int, bytes]] = []
    count = 0
    if type_name(kind) != "null":
        count, at = read_long(data, at)
    while count:
        if count < 0:
            _, at = read_long(data, at)
        for _ in range(abs(count)):
            key, at = read_long(data, at)
            value, at = read_bytes(data, at)
            items.append((key, value))
        count, at = read_long(data, at)
    if at != end:
        raise Truncated
    return _IntMap(branch, tuple(items))
