"""A table's metadata.json: what it points to, and its localized copy. Each part is decoded once, for both.

Source of the fields: Iceberg specification, "Table Metadata Fields", "Snapshots", "Statistics" and "Encryption" (v1 to
v3).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

from sterna.config.limits import DEFAULT_LIMITS, Limits
from sterna.errors import BrokenMetadata, Unsupported
from sterna.iceberg.files import MAX_FORMAT_VERSION
from sterna.iceberg.json_text import Document, Edit, Element, Token, is_long, quote, read_document, replacement_edits
from sterna.iceberg.metadata.edits import property_edits, summary_edits
from sterna.iceberg.metadata.history import all_snapshots, has_inherited_files, snapshot_log_start
from sterna.iceberg.metadata.model import Branch, Snapshot, StatisticsFile, TableMetadata

__all__ = [
    "Snapshot",
    "StatisticsFile",
    "TableMetadata",
    "dropped_source_fields",
    "localize_table_metadata",
    "parse_table_metadata",
    "read_table_metadata",
]

_STATISTICS: Final = ("statistics", "partition-statistics")
"""The arrays whose entries name a statistics file and the snapshot that it describes."""

_ARRAYS: Final = ("snapshots", *_STATISTICS)
_SCHEMA_MEMBERS: Final = ("schemas", "current-schema-id", "schema", "partition-specs", "partition-spec")
"""The members of a metadata.json that `dropped_source_fields` looks at."""


def read_table_metadata(data: bytes, uri: str, limits: Limits = DEFAULT_LIMITS) -> TableMetadata:
    """Read a metadata.json of format v1 to v3.

    Args:
        data: the file's bytes, gzip or not.
        uri: the file's URI, for errors.

    Returns:
        The parts that name other files, and what a plan needs beside them.

    Raises:
        Unsupported: a newer format version, or encryption.
        OverLimit: the file is larger than the limits allow, or holds more.
        BrokenMetadata: the file does not parse, lacks a required field, or contradicts itself.
    """
    return parse_table_metadata(read_document(data, uri, limits))


def parse_table_metadata(document: Document) -> TableMetadata:
    """Read a metadata.json that was decompressed and decoded; see `read_table_metadata`."""
    return _parse_table_parts(document).metadata


def localize_table_metadata(
    data: bytes,
    uri: str,
    *,
    map_content: Callable[[str], str],
    map_root: Callable[[str], str],
    map_property: Callable[[str], str | None],
    manifest_lists: Mapping[str, str],
    manifests: Mapping[str, str] = MappingProxyType({}),
    select_snapshots: Callable[[TableMetadata], frozenset[int]] = all_snapshots,
    filter_existing: Callable[[Sequence[StatisticsFile]], Collection[StatisticsFile]] = lambda items: items,
    limits: Limits = DEFAULT_LIMITS,
) -> bytes:
    """Return the replica's copy of a metadata.json: its paths changed, all other characters as they were.

    Changed on purpose beside the paths: `metadata-log` is emptied, and `gc.enabled` is "false", so that no maintenance
    through the replica branch deletes files of `main`. Snapshots that don't stay are taken out, with their statistics
    and what they end of the snapshot log (`history.pruned`).

    Args:
        data: the file's bytes, gzip or not; the result has the same form.
        uri: the file's URI, for errors.
        map_content: maps the URI of a statistics file.
        map_root: maps a URI to its place below the replica root, be it local or not.
        map_property: maps a whole value that is a URI with a registered prefix; None for every other value.
        manifest_lists: source URI of each manifest list of a snapshot that stays, to its replica URI.
        manifests: the same for inline manifests.
        select_snapshots: returns from the file's content the ids of the snapshots to keep; those of the refs and the
            current one must.
        filter_existing: returns those of some statistics files that are there; readers can do without, so that the
            entries of others are left out.

    Returns:
        The localized file.

    Raises:
        Unsupported, OverLimit, BrokenMetadata: as `read_table_metadata`; also when `manifest_lists` or `manifests`
        lacks one.
    """
    parts = _parse_table_parts(read_document(data, uri, limits))
    metadata = parts.metadata
    kept = select_snapshots(metadata)
    removed = all_snapshots(metadata) - kept
    location = parts.members["location"]
    edits = [Edit(location.start, location.end, quote(map_root(location.value)))]
    edits += _property_edits(parts, map_root, map_property)
    edits += _snapshot_edits(parts, removed, map_property, manifest_lists, manifests)
    edits += _statistics_edits(parts, kept, filter_existing, map_content)
    edits += _log_edits(parts, removed)
    return parts.document.write(edits)


def _property_edits(
    parts: _TableParts, map_root: Callable[[str], str], map_property: Callable[[str], str | None]
) -> list[Edit]:
    # A maintenance job run through the replica branch must not delete files that are main's own.
    properties = parts.members.get("properties")
    if properties is None:
        return [Edit(parts.root.start + 1, parts.root.start + 1, '"properties":{"gc.enabled":"false"},')]
    if not properties.value:
        return [Edit(properties.start, properties.end, '{"gc.enabled":"false"}')]
    members = parts.document.members(properties)
    edits: list[Edit] = []
    if "gc.enabled" not in members:
        edits.append(Edit(properties.start + 1, properties.start + 1, '"gc.enabled":"false",'))
    for key, token in members.items():
        if key == "gc.enabled":
            edits += replacement_edits(token, "false")
        else:
            edits += property_edits(parts.document, key, token, map_root, map_property)
    return edits


def _snapshot_edits(
    parts: _TableParts,
    removed: frozenset[int],
    map_property: Callable[[str], str | None],
    manifest_lists: Mapping[str, str],
    manifests: Mapping[str, str],
) -> list[Edit]:
    edits = _removal_edits(parts, "snapshots", removed)
    for element in parts.arrays["snapshots"]:
        snapshot = element.members
        if snapshot["snapshot-id"].value in removed:
            continue
        for token in _inline_manifests(parts.document, snapshot):
            edits += _replica_uri_edits(parts, token, manifests, "manifest")
        if "manifest-list" in snapshot and snapshot["manifest-list"].value is not None:
            edits += _replica_uri_edits(parts, snapshot["manifest-list"], manifest_lists, "manifest list")
        edits += summary_edits(parts.document, snapshot.get("summary"), map_property)
    return edits


def _replica_uri_edits(parts: _TableParts, token: Token, replica_uris: Mapping[str, str], file_kind: str) -> list[Edit]:
    if token.value not in replica_uris:
        raise parts.document.broken(f"the {file_kind} {token.value} was not localized")
    return replacement_edits(token, replica_uris[token.value])


def _statistics_edits(
    parts: _TableParts,
    kept: frozenset[int],
    filter_existing: Callable[[Sequence[StatisticsFile]], Collection[StatisticsFile]],
    map_content: Callable[[str], str],
) -> list[Edit]:
    edits: list[Edit] = []
    remaining_files = iter(parts.metadata.statistics)  # in the order of the arrays
    existing = filter_existing(
        [statistics_file for statistics_file in parts.metadata.statistics if statistics_file.snapshot_id in kept]
    )
    for name in _STATISTICS:
        removed_indexes: set[int] = set()
        for index, (element, statistics_file) in enumerate(zip(parts.arrays[name], remaining_files, strict=False)):
            if statistics_file in existing:
                edits += replacement_edits(element.members["statistics-path"], map_content(statistics_file.path))
            else:
                removed_indexes.add(index)
        edits += parts.document.removal_edits([element.token for element in parts.arrays[name]], removed_indexes)
    return edits


def _log_edits(parts: _TableParts, removed: frozenset[int]) -> list[Edit]:
    edits: list[Edit] = []
    log = parts.members.get("metadata-log")
    if log is not None and log.value:
        edits.append(Edit(log.start, log.end, "[]"))
    start = snapshot_log_start(parts.metadata.snapshot_log, all_snapshots(parts.metadata) - removed) if removed else 0
    if start:
        entries = parts.document.elements(parts.members["snapshot-log"])
        edits += parts.document.removal_edits(entries, range(start))
    return edits


def _removal_edits(parts: _TableParts, name: str, removed: frozenset[int]) -> list[Edit]:
    """Return the edits that take the entries of snapshots that are gone out of an array."""
    elements = parts.arrays[name]
    indexes = {index for index, element in enumerate(elements) if element.members["snapshot-id"].value in removed}
    return parts.document.removal_edits([element.token for element in elements], indexes)


@dataclass(frozen=True)
class _TableParts:
    """A table's metadata.json, with the spans of its parts.

    Args:
        version: its format version, one that is supported.
        root: the object that the file is.
        members: the members of that object; those in `arrays` without their values.
        arrays: the elements of `snapshots`, `statistics` and `partition-statistics`; absent or null arrays are empty.
    """

    document: Document
    version: int
    root: Token
    members: dict[str, Token]
    arrays: dict[str, list[Element]]

    @cached_property
    def metadata(self) -> TableMetadata:
        """What the file says.

        Raises:
            Unsupported: encryption.
            BrokenMetadata: a required field is missing, or the file contradicts itself.
        """
        document, members = self.document, self.members
        properties = document.string_map(members.get("properties"))
        _require_unencrypted(self, properties)
        current = document.optional_integer(members, "current-snapshot-id")
        current = None if current == -1 else current
        uuid = members.get("table-uuid")
        metadata = TableMetadata(
            format_version=self.version,
            uuid=None if uuid is None or uuid.value is None else document.string(members, "table-uuid"),
            location=document.string(members, "location"),
            current_snapshot_id=current,
            last_updated_ms=document.integer(members, "last-updated-ms"),
            snapshots=tuple(_snapshot(document, element.members) for element in self.arrays["snapshots"]),
            statistics=tuple(
                _statistics(document, element.members) for name in _STATISTICS for element in self.arrays[name]
            ),
            properties=properties,
            refs=_refs(document, members.get("refs"), current),
            snapshot_log=_snapshot_log(document, members.get("snapshot-log")),
            metadata_log=_metadata_log(members.get("metadata-log")),
            branches=_branches(members.get("refs"), current),
            dropped_source_fields=dropped_source_fields(
                {name: members[name].value for name in _SCHEMA_MEMBERS if name in members}
            ),
        )
        _validate_heads(document, metadata)
        return metadata


def _parse_table_parts(document: Document) -> _TableParts:
    """Look up the parts of a table's metadata.json.

    Raises:
        Unsupported: a newer format version.
        BrokenMetadata: not a JSON object, or a part has another form.
    """
    root = document.root().without_value()
    members = document.members(root)
    version = _format_version(document, members)  # first: what follows may have any form in a newer one
    present_names = [name for name in _ARRAYS if name in members and members[name].value is not None]
    members |= {name: members[name].without_value() for name in present_names}
    arrays = {name: document.objects(members[name]) if name in present_names else [] for name in _ARRAYS}
    return _TableParts(document, version, root, members, arrays)


def _inline_manifests(document: Document, snapshot: Mapping[str, Token]) -> list[Token]:
    """Return the span of each inline manifest of a snapshot.

    Raises:
        BrokenMetadata: not an array of strings.
    """
    token = snapshot.get("manifests")
    if token is None or token.value is None:
        return []
    if not isinstance(token.value, list) or not all(isinstance(path, str) for path in token.value):
        raise document.broken("'manifests' is not an array of strings")
    return document.elements(token)


def _format_version(document: Document, members: Mapping[str, Token]) -> int:
    version = document.integer(members, "format-version")
    if version > MAX_FORMAT_VERSION:
        raise Unsupported(f"table format version {version}", file=document.uri)
    if version < 1:
        raise BrokenMetadata(f"table format version {version}", file=document.uri)
    return version


def _require_unencrypted(parts: _TableParts, properties: Mapping[str, str]) -> None:
    keys = parts.members.get("encryption-keys")
    if (keys is not None and keys.value) or properties.get("encryption.key-id"):
        raise Unsupported("table encryption", file=parts.document.uri)
    for name, key in (("snapshots", "key-id"), *((name, "key-metadata") for name in _STATISTICS)):
        for element in parts.arrays[name]:
            if key in element.members and element.members[key].value not in (None, ""):
                raise Unsupported(f"encryption: {key!r} in {name!r}", file=parts.document.uri)


def _snapshot(document: Document, members: Mapping[str, Token]) -> Snapshot:
    # Readers differ in which of the two they read first; v1 tables that were upgraded keep their inline manifests.
    has_list, has_inline = (
        name in members and members[name].value is not None for name in ("manifest-list", "manifests")
    )
    if has_list == has_inline:
        raise document.broken(
            "a snapshot with both 'manifest-list' and 'manifests'" if has_list else "a snapshot without manifests"
        )
    summary = document.string_map(members.get("summary"))
    return Snapshot(
        snapshot_id=document.integer(members, "snapshot-id"),
        parent_id=document.optional_integer(members, "parent-snapshot-id"),
        timestamp_ms=document.integer(members, "timestamp-ms"),
        manifest_list=document.string(members, "manifest-list") if has_list else None,
        schema_id=document.optional_integer(members, "schema-id"),
        manifests=tuple(token.value for token in _inline_manifests(document, members)),
        wap_id=summary.get("wap.id", ""),
        operation=summary.get("operation", ""),
        sterna_properties=tuple(sorted((name, value) for name, value in summary.items() if name.startswith("sterna."))),
        has_inherited_files=has_inherited_files(summary),
    )


def _statistics(document: Document, members: Mapping[str, Token]) -> StatisticsFile:
    return StatisticsFile(
        path=document.string(members, "statistics-path"),
        length=document.size(members, "file-size-in-bytes"),
        snapshot_id=document.integer(members, "snapshot-id"),
    )


def _refs(document: Document, token: Token | None, current: int | None) -> dict[str, int]:
    if token is None or token.value is None:
        return {} if current is None else {"main": current}
    return {
        name: document.integer(document.members(ref), "snapshot-id") for name, ref in document.members(token).items()
    }


def _branches(token: Token | None, current: int | None) -> tuple[Branch, ...]:
    if token is None or token.value is None:
        return () if current is None else (Branch(current),)
    # A limit of another form doesn't keep a table from being read; expiry alone uses it.
    return tuple(_branch(ref) for ref in token.value.values() if ref.get("type") != "tag")


def _branch(ref: Mapping[str, Any]) -> Branch:
    max_age_ms, min_snapshots = ref.get("max-snapshot-age-ms"), ref.get("min-snapshots-to-keep")
    has_invalid_retention = any(
        not (limit is None or (type(limit) is int and limit >= 0 and is_long(limit)))
        for limit in (max_age_ms, min_snapshots)
    )
    return Branch(
        ref["snapshot-id"],
        *((None, None) if has_invalid_retention else (max_age_ms, min_snapshots)),
        has_invalid_retention,
    )


def _snapshot_log(document: Document, token: Token | None) -> tuple[int, ...]:
    entries = [] if token is None or token.value is None else token.value
    # Long, and read each time: what the decoder made of it is enough here.
    if not isinstance(entries, list) or not all(
        isinstance(entry, dict) and type(entry.get("snapshot-id")) is int and is_long(entry["snapshot-id"])
        for entry in entries
    ):
        raise document.broken("'snapshot-log' is not an array of objects with a 'snapshot-id'")
    return tuple(entry["snapshot-id"] for entry in entries)


def _metadata_log(token: Token | None) -> tuple[str, ...]:
    # It isn't followed: what has another form names nothing.
    entries = token.value if token is not None and isinstance(token.value, list) else []
    named = (entry.get("metadata-file") for entry in entries if isinstance(entry, dict))
    return tuple(uri for uri in named if isinstance(uri, str))


def _validate_heads(document: Document, metadata: TableMetadata) -> None:
    # Iceberg's own parser refuses such a table, PyIceberg would read it as empty.
    ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    if metadata.current_snapshot_id is not None and metadata.current_snapshot_id not in ids:
        raise document.broken(f"the current snapshot {metadata.current_snapshot_id} is not among the snapshots")
    for name, snapshot_id in metadata.refs.items():
        if snapshot_id not in ids:
            raise document.broken(f"the snapshot {snapshot_id} of ref {name!r} is not among the snapshots")


def dropped_source_fields(metadata: Mapping[str, Any]) -> dict[int, tuple[str, ...]]:
    """Return, by id of a partition spec, the names of its fields whose columns the current schema lacks.

    A `void` field needs no column. What has another form than the specification's says nothing: nobody but Iceberg's
    own writers needs it, and these say so. Source: Iceberg specification, "Partition Evolution" and appendix C,
    "Partition Specs" and "Schemas" (v1 to v3).

    Args:
        metadata: the members `_SCHEMA_MEMBERS` of a metadata.json.
    """
    schemas, current_id = metadata.get("schemas"), metadata.get("current-schema-id")
    current_schemas = [candidate for candidate in _objects(schemas) if candidate.get("schema-id") == current_id]
    schema = current_schemas[0] if current_schemas and current_id is not None else metadata.get("schema")
    if not isinstance(schema, Mapping):
        return {}
    columns = {id for id in _column_ids(schema) if type(id) is int}
    specs = [(spec.get("spec-id"), spec.get("fields")) for spec in _objects(metadata.get("partition-specs"))]
    # Files of format v1 have one spec alone, without an id.
    names_by_spec = [
        (id, _dropped_source_names(fields, columns)) for id, fields in specs or [(0, metadata.get("partition-spec"))]
    ]
    return {id: names for id, names in names_by_spec if type(id) is int and names}


def _dropped_source_names(fields: Any, columns: set[int]) -> tuple[str, ...]:
    return tuple(
        str(field.get("name"))
        for field in _objects(fields)
        if field.get("transform") != "void" and any(type(id) is int and id not in columns for id in _source_ids(field))
    )


def _source_ids(field: Mapping[str, Any]) -> list[Any]:
    source_ids = field.get("source-ids")  # v3: a transform may take several columns
    return source_ids if isinstance(source_ids, list) else [field.get("source-id")]


def _column_ids(kind: Any) -> Iterator[Any]:
    """Yield the ids of all columns in a type, at whatever depth."""
    pending = [kind]
    while pending:
        nested = pending.pop()
        if not isinstance(nested, Mapping):
            continue
        for field in _objects(nested.get("fields")):
            yield field.get("id")
            pending.append(field.get("type"))
        for name in ("element", "key", "value"):
            if name in nested:
                yield nested.get(f"{name}-id")
                pending.append(nested[name])


def _objects(array: Any) -> list[Mapping[str, Any]]:
    return [element for element in array if isinstance(element, Mapping)] if isinstance(array, list) else []
