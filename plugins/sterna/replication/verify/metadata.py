"""Required fields of a replica's metadata.json, of a table and of a view."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from sterna.errors import BrokenMetadata
from sterna.replication.verify.findings import DISAGREES, OTHER_CATALOG, UNPROTECTED, Findings
from sterna.replication.verify.locations import Places
from sterna.replication.verify.view_names import referenced_catalogs

WRITE_PATHS: Final = (
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.path",
    "write.folder-storage.path",
)
"""Properties with the locations where writers put files: the third and the fourth are deprecated names of the first."""

_NO_SNAPSHOT_ID = -1  # what format v1 writes for "no current snapshot"


@dataclass(frozen=True)
class SnapshotEntry:
    """One snapshot of a table.

    Args:
        id: snapshot id.
        sequence_number: 0 in format v1.
        manifest_list: URI of its manifest list, None where the manifests are inline in the snapshot.
        manifests: URIs of those manifests.
    """

    id: int
    sequence_number: int
    manifest_list: str | None
    manifests: tuple[str, ...]


@dataclass(frozen=True)
class TableDocument:
    """What a table's metadata.json leads to.

    Args:
        current: id of the current one, or None.
        specs: ids of the partition specs; empty where format v1 names none.
        statistics: URI and size of each table and partition statistics file.
    """

    snapshots: tuple[SnapshotEntry, ...]
    current: int | None
    specs: frozenset[int]
    statistics: tuple[tuple[str, int], ...]


def parse_table(document: dict[str, Any], uri: str) -> TableDocument:
    """Take from a table's metadata.json what leads to other files.

    Raises:
        BrokenMetadata: a field is missing, or of another type.
    """
    try:
        current = document.get("current-snapshot-id")
        return TableDocument(
            snapshots=tuple(_parse_snapshot(item) for item in document.get("snapshots") or ()),
            current=None if current in (None, _NO_SNAPSHOT_ID) else int(current),
            specs=frozenset(int(item["spec-id"]) for item in document.get("partition-specs") or ()),
            statistics=tuple(
                (str(item["statistics-path"]), int(item["file-size-in-bytes"]))
                for name in ("statistics", "partition-statistics")
                for item in document.get(name) or ()
            ),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BrokenMetadata(f"not a table's metadata: {type(error).__name__} {error}", file=uri) from error


def _parse_snapshot(snapshot: dict[str, Any]) -> SnapshotEntry:
    path = snapshot.get("manifest-list")
    manifests = tuple(str(uri) for uri in snapshot.get("manifests") or ())
    if path is None and "manifests" not in snapshot:
        raise KeyError("manifest-list")
    return SnapshotEntry(
        int(snapshot["snapshot-id"]),
        int(snapshot.get("sequence-number") or 0),
        None if path is None else str(path),
        manifests,
    )


def check_table(document: dict[str, Any], table: TableDocument, uri: str, places: Places, findings: Findings) -> None:
    """Check a table's metadata.json: no foreign URI, protected from maintenance, and in agreement with itself.

    Args:
        document: the file, parsed.
        table: what it leads to.
        findings: takes the faults; paths of lists, manifests and statistics are checked by their readers.
    """
    summaries = (item.get("summary") for item in document.get("snapshots") or ())
    _check_locations(document, uri, places, findings)
    _check_texts((document.get("properties"), *summaries), uri, places, findings)
    log = (item.get("metadata-file") for item in document.get("metadata-log") or ())
    findings.add_foreign(uri, [path for path in log if not places.is_local(str(path))], places.region)
    if str((document.get("properties") or {}).get("gc.enabled")).lower() != "false":
        findings.add(
            UNPROTECTED, uri, "gc.enabled is not false: expiry and purge through the replica branch would delete files"
        )
    for message in _contradictions(document, table):
        findings.add(DISAGREES, uri, message)


def check_view(document: dict[str, Any], uri: str, places: Places, findings: Findings) -> None:
    """Check a view's metadata.json as `check_table` does.

    Raises:
        BrokenMetadata: it is no view's.
    """
    if "versions" not in document:
        raise BrokenMetadata("not a view's metadata: no versions", file=uri)
    _check_locations(document, uri, places, findings)
    _check_texts(
        (document.get("properties"), *(item.get("summary") for item in document["versions"])), uri, places, findings
    )
    views = places.mapping.registry.views
    other_catalogs = referenced_catalogs(document, places.namespaces, views.own_catalogs) - set(views.other_catalogs)
    if other_catalogs:
        findings.add(
            OTHER_CATALOG,
            uri,
            f"its SQL names {', '.join(sorted(other_catalogs))}: a reader of the replica reads there, be it `main` or "
            "dark; define the name in the registry's `views`, or create the view again without it",
        )


def _check_locations(document: dict[str, Any], uri: str, places: Places, findings: Findings) -> None:
    """A new file, and whatever cleans up below a location, must stay below the replica root."""
    properties = document.get("properties") or {}
    locations = {"location": document.get("location")} | {
        name: properties[name] for name in WRITE_PATHS if name in properties
    }
    for name, value in locations.items():
        if name in WRITE_PATHS and not places.is_registered(str(value)):
            continue  # for writers alone, and a replica has none
        if not places.is_local(str(value).removesuffix("/")):
            findings.add_foreign(uri, [str(value)], places.region)
        elif not places.below_root(str(value)):
            findings.add(UNPROTECTED, uri, f"{name} {value} is not below the replica root")


def _check_texts(maps: tuple[dict[str, Any] | None, ...], uri: str, places: Places, findings: Findings) -> None:
    texts = (
        value
        for map in maps
        for name, value in (map or {}).items()
        if name not in WRITE_PATHS and isinstance(value, str)
    )
    findings.add_foreign(
        uri, sorted({text for text in texts if "/" in text and places.is_foreign(text)}), places.region
    )


def _contradictions(document: dict[str, Any], table: TableDocument) -> Iterator[str]:
    snapshot_ids = {snapshot.id for snapshot in table.snapshots}
    if table.current is not None and table.current not in snapshot_ids:
        yield f"the current snapshot {table.current} is not among the snapshots"
    refs = document.get("refs") or {}
    for name, ref in refs.items():
        if ref.get("snapshot-id") not in snapshot_ids:
            yield f"ref {name!r} names snapshot {ref.get('snapshot-id')}, which is not among the snapshots"
    if table.current is not None and refs.get("main", {}).get("snapshot-id", table.current) != table.current:
        yield f"branch main is at snapshot {refs['main'].get('snapshot-id')}, the current one is {table.current}"
    log = document.get("snapshot-log") or ()
    if log and table.current is not None and log[-1].get("snapshot-id") != table.current:
        yield f"the snapshot log ends with {log[-1].get('snapshot-id')}, the current snapshot is {table.current}"
    last_sequence_number = document.get("last-sequence-number")
    for snapshot in table.snapshots:
        if last_sequence_number is not None and snapshot.sequence_number > last_sequence_number:
            yield (
                f"snapshot {snapshot.id} has sequence number {snapshot.sequence_number}, the last one is "
                f"{last_sequence_number}"
            )
