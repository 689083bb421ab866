"""Comparison of a replica's manifests and manifest lists with their sources, record by record, decoded by fastavro."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Any, Final

from sterna.iceberg.avro.container import Container, open_container
from sterna.iceberg.avro.records import field_names, read_records
from sterna.replication.verify.avro import PATH_COLUMN, data_file_fields, parse_bounds
from sterna.replication.verify.compare_json import differences
from sterna.replication.verify.locations import Places
from sterna.replication.verify.manifests import POSITION_DELETES

_LIST_NAMES: Final = {500: "manifest_path", 501: "manifest_length"}
_FILE_NAMES: Final = {
    100: "file_path",
    104: "file_size_in_bytes",
    108: "column_sizes",
    125: "lower_bounds",
    128: "upper_bounds",
    132: "split_offsets",
    134: "content",
    143: "referenced_data_file",
}
_PATHS: Final = (100, 143)
_BOUNDS: Final = (125, 128)
# What follows from a rewritten delete file's bytes; that its size is right is a matter of structure.
_LAYOUT: Final = (104, 108, 132)


def list_differences(replica: bytes, uri: str, source: bytes, source_uri: str, places: Places) -> Iterator[str]:
    """Yield where a manifest list differs from its source: paths are taken back to `main`, lengths are left out.

    Raises:
        Unsupported, BrokenMetadata: one of the two can't be read; the error names it.
    """
    sides = open_container(replica, uri, places.limits), open_container(source, source_uri, places.limits)
    yield from _differences(*sides, lambda side: _manifests(side, places), "manifest")


def manifest_differences(replica: bytes, uri: str, source: bytes, source_uri: str, places: Places) -> Iterator[str]:
    """Yield where a manifest differs from its source: paths are taken back to `main`, and what describes a
    rewritten delete is left out.

    Raises:
        Unsupported, BrokenMetadata: as `list_differences`.
    """
    sides = open_container(replica, uri, places.limits), open_container(source, source_uri, places.limits)
    yield from _differences(*sides, lambda side: _entries(side, places), "entry")


def _differences(
    replica: Container, source: Container, read: Callable[[Container], Iterator[dict[str, Any]]], kind: str
) -> Iterator[str]:
    """Yield where the headers differ, then the records."""
    for key in dict.fromkeys((*replica.metadata, *source.metadata)):
        if replica.metadata.get(key) != source.metadata.get(key):
            yield f"the header's {key} differs"
    replica_count = source_count = 0
    for number, (replica_record, source_record) in enumerate(zip_longest(read(replica), read(source))):
        replica_count += replica_record is not None
        source_count += source_record is not None
        if replica_record is not None and source_record is not None:
            yield from differences(replica_record, source_record, f"{kind} {number}")
    if replica_count != source_count:
        yield f"{replica_count} records, the source has {source_count}"


def _manifests(container: Container, places: Places) -> Iterator[dict[str, Any]]:
    if not isinstance(container.schema, dict) or "fields" not in container.schema:
        raise container.broken("the schema is not a manifest list's")
    names = field_names(container.schema, _LIST_NAMES)
    for record in read_records(container):
        path = record.pop(names.get(500, ""), None)
        record.pop(names.get(501, ""), None)
        yield record | {"manifest_path": None if path is None else places.origin(path)}


def _entries(container: Container, places: Places) -> Iterator[dict[str, Any]]:
    name, names = data_file_fields(container, _FILE_NAMES)
    for record in read_records(container):
        try:
            _normalize(record[name], names, places)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise container.broken(f"an entry that is not a manifest's: {type(error).__name__}") from error
        yield record


def _normalize(file: dict[str, Any], names: dict[int, str], places: Places) -> None:
    """Change an entry's data_file to what it is on both sides."""
    for number in _PATHS:
        if file.get(names.get(number, "")) is not None:
            file[names[number]] = places.origin(file[names[number]])
    if file.get(names.get(134, "")) != POSITION_DELETES:
        return
    for number in _LAYOUT:
        file.pop(names.get(number, ""), None)
    for name in (names[number] for number in _BOUNDS if number in names):
        # Bounds of paths may be dropped; that they cover the rows is a matter of structure.
        file[name] = {key: value for key, value in parse_bounds(file[name]).items() if key != PATH_COLUMN}
