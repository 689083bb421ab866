"""A commit to one table: the client's updates, taken back to `main`'s own names and applied to `main`'s metadata."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, Content, Key, key_name
from sterna.config.near_places import Places, accepted_folders, region_places, table_near_places
from sterna.config.registry.fingerprint import MetadataVersion
from sterna.errors import (
    BadUpdate,
    Forbidden,
    RequirementFailed,
    TableError,
)
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog import main_metadata
from sterna.serving.rest_catalog.client_files import ClientFiles, write_roots
from sterna.serving.rest_catalog.metadata_updates import apply_table_updates, new_table_metadata
from sterna.serving.rest_catalog.name_errors import taken_name
from sterna.serving.rest_catalog.overlay import strip_overlay
from sterna.serving.rest_catalog.requirements import check_requirements
from sterna.serving.rest_catalog.rules import (
    ReservedPlaces,
    Rights,
    reject_forbidden_updates,
    reject_moved_table,
    reject_protected_updates,
    reject_replica_uris,
    require_own_location,
    require_own_write_paths,
    require_readable_everywhere,
    require_replicated,
)
from sterna.serving.rest_catalog.take_back import TakenBack, take_back_snapshot

_STATISTICS = {"set-statistics": "statistics", "set-partition-statistics": "partition-statistics"}
# What needs the snapshots that the commit adds, and so can be applied only with them.
_OF_SNAPSHOTS = ("add-snapshot", "set-snapshot-ref", "remove-snapshot-ref", "remove-snapshots", *_STATISTICS)


@dataclass(frozen=True)
class TableCommit:
    """A client's commit to one table.

    Args:
        requirements, updates: as the REST specification has them.
    """

    key: Key
    requirements: Sequence[Mapping[str, Any]]
    updates: Sequence[Mapping[str, Any]]

    @property
    def creates(self) -> bool:
        """Whether the table must not exist yet: the end of a staged creation."""
        return any(requirement.get("type") == "assert-create" for requirement in self.requirements)

    @property
    def adds_snapshots(self) -> bool:
        """Whether an update adds a snapshot."""
        return any(_added_snapshot(update) is not None for update in self.updates)

    @property
    def snapshot_ids(self) -> frozenset[int]:
        """The ids of the snapshots that it adds."""
        added = (_added_snapshot(update) for update in self.updates)
        ids = (snapshot.get("snapshot-id") for snapshot in added if snapshot is not None)
        return frozenset(snapshot_id for snapshot_id in ids if type(snapshot_id) is int)


@dataclass(frozen=True)
class MainTable:
    """A table on `main`.

    Args:
        content: the catalog's entry.
        metadata: its metadata.json.
    """

    content: Content
    metadata: Mapping[str, Any]

    @property
    def uri(self) -> str:
        """The URI of its metadata.json."""
        return self.content.metadata_location or ""


def read_table(
    read_metadata: Callable[[str], Mapping[str, Any]], key: Key, content: Content | None
) -> MainTable | None:
    """Return a table as `main` has it, None where there is none.

    Args:
        read_metadata: returns the JSON of a metadata.json.
        content: the catalog's entry.

    Raises:
        AlreadyExists: there is something else under its name.
        TableError, StoreError: its metadata can't be read.
    """
    if content is None:
        return None
    if content.kind != ICEBERG_TABLE or not content.metadata_location:
        raise taken_name(content.kind, key)
    return MainTable(content, read_metadata(content.metadata_location))


def is_replay(table: MainTable, commit: TableCommit) -> bool:
    """Return whether `main` has all snapshots that a commit adds: it was carried out, and its answer was lost.

    Raises:
        BadUpdate: a snapshot has the id of another one.
    """
    added = [snapshot for update in commit.updates if (snapshot := _added_snapshot(update)) is not None]
    existing = {snapshot.get("snapshot-id"): snapshot for snapshot in table.metadata.get("snapshots") or ()}
    present = [
        snapshot
        for snapshot in added
        if type(snapshot.get("snapshot-id")) is int and snapshot.get("snapshot-id") in existing
    ]
    for snapshot in present:
        if _identity(existing[snapshot.get("snapshot-id")]) != _identity(snapshot):
            raise BadUpdate(f"another snapshot has the id {snapshot.get('snapshot-id')}", table=key_name(commit.key))
    return bool(added) and len(present) == len(added)


def _identity(snapshot: Mapping[str, Any]) -> tuple[Any, ...]:
    fields = ("parent-snapshot-id", "sequence-number", "timestamp-ms", "schema-id")
    summary = snapshot.get("summary")
    # The operation is filled in where a client leaves it out.
    items = summary.items() if isinstance(summary, dict) else ()
    properties = {name: value for name, value in items if name != "operation"}
    return (*(snapshot.get(field) for field in fields), properties)


def _added_snapshot(update: Mapping[str, Any]) -> Mapping[str, Any] | None:
    snapshot = update.get("snapshot")
    return snapshot if update.get("action") == "add-snapshot" and isinstance(snapshot, dict) else None


def prepare_commit(
    context: RegionContext,
    reserved: ReservedPlaces,
    table: MainTable,
    shown: Content,
    commit: TableCommit,
    rights: Rights,
) -> Content | None:
    """Take a commit back and apply it; everything that it needs is written, and nothing is committed.

    Args:
        reserved: places of the region.
        table: as `main` has it.
        shown: this region's own entry of it, which the client has loaded.
        rights: the client's.

    Returns:
        The entry to put, with the table's id; None where the commit changes nothing.

    Raises:
        RequirementFailed: the table isn't what the commit was made for.
        BadUpdate, ForeignFile, Forbidden: the commit can't or mustn't be taken.
        StoreError: a store can't be used.
    """
    reject_moved_table(context.mapping, table.uri, table.metadata)
    near_roots = reserved.near_roots
    near_root = near_roots[0]
    places = region_places(context.mapping, near_root, table.metadata)
    reject_forbidden_updates(commit.updates, rights, places)
    reject_protected_updates(commit.updates, table.metadata.get("properties") or {})
    check_requirements(table.metadata, commit.requirements)
    _require_new_numbers(commit, table.metadata)
    near = _near_places(context, near_roots, commit.key, table.metadata, is_own=places is None)
    updates = strip_overlay(commit.updates, places, table.metadata, near)
    if not updates:
        return None
    _require_own_locations(context, reserved, commit.key, updates, places, table.metadata)
    now_ms = _now_ms(table.metadata)
    frame = apply_table_updates(table.metadata, [update for update in updates if not _is_of_snapshots(update)], now_ms)
    folder = main_metadata.address_folder(near_root, table.metadata)
    version = context.mapping.metadata_version(shown.metadata_location or "")
    near_folders = accepted_folders(context.mapping, near_roots, table.metadata, key_name(commit.key)) if near else ()
    roots = write_roots(table.metadata, places, near_folders)
    own_updates = _take_back(context, updates, frame, roots, folder, version)
    reject_replica_uris(context.mapping, own_updates)
    metadata = apply_table_updates(table.metadata, own_updates, now_ms)
    metadata = main_metadata.with_log_entry(metadata, table.metadata, table.uri)
    uri = main_metadata.write_metadata(context.objects, folder, metadata, table.uri)
    return main_metadata.table_content(metadata, uri).with_id(table.content.id)


def _near_places(
    context: RegionContext, near_roots: Sequence[str], key: Key, metadata: Mapping[str, Any], *, is_own: bool
) -> Sequence[Places]:
    """Return where this region's clients may have a table's files near them, the present place first; (): nowhere.

    Args:
        near_roots: the region's own locations, the present one first.
        is_own: the table was born in this region, and has places of its own, too.

    Raises:
        Forbidden: a residency rule keeps what they write there from a region that has the table.
    """
    near = [table_near_places(context.mapping, root, metadata) for root in near_roots]
    try:
        require_readable_everywhere(context, key, [near[0].location])
    except Forbidden:
        if is_own:
            return ()
        raise
    return near


def prepare_creation(context: RegionContext, reserved: ReservedPlaces, commit: TableCommit, rights: Rights) -> Content:
    """Prepare the commit that ends a staged creation, as `prepare_commit` does.

    Returns:
        The entry to put, without id.

    Raises:
        RequirementFailed, BadUpdate, ForeignFile, Forbidden, StoreError: as `prepare_commit`.
    """
    require_replicated(context, commit.key)
    reject_forbidden_updates(commit.updates, rights, None)
    reject_protected_updates(commit.updates, {})
    check_requirements(None, commit.requirements)
    updates, now_ms = strip_overlay(commit.updates, None, {}), _now_ms({})
    frame = new_table_metadata([update for update in updates if not _is_of_snapshots(update)], now_ms)
    location = require_own_location(context, reserved, frame.get("location"))
    require_readable_everywhere(context, commit.key, [location])
    require_own_write_paths(context, reserved, commit.key, location, frame.get("properties") or {})
    folder = main_metadata.address_folder(reserved.near_roots[0], frame)
    own_updates = _take_back(context, updates, frame, write_roots(frame, None), folder, None)
    reject_replica_uris(context.mapping, own_updates)
    metadata = new_table_metadata(own_updates, now_ms)
    return main_metadata.table_content(metadata, main_metadata.write_metadata(context.objects, folder, metadata))


def _require_own_locations(
    context: RegionContext,
    reserved: ReservedPlaces,
    key: Key,
    updates: Sequence[Mapping[str, Any]],
    places: Places | None,
    metadata: Mapping[str, Any],
) -> None:
    """See that a table moves, and has its files written, within its own region alone.

    Raises:
        BadUpdate: it would move to another place, or was born elsewhere.
        Forbidden: a residency rule keeps the place from a region that has the table.
    """
    location, current = str(metadata.get("location")), metadata.get("properties") or {}
    for update in updates:
        if update.get("action") == "set-location":
            if places is not None:
                raise BadUpdate("the location of a table that was born in another region can't be changed here")
            moved = require_own_location(context, reserved, update.get("location"))
            require_readable_everywhere(context, key, [moved])
        elif update.get("action") == "set-properties" and isinstance(properties := update.get("updates"), dict):
            require_own_write_paths(context, reserved, key, location, properties, current)


def _is_of_snapshots(update: Mapping[str, Any]) -> bool:
    return update.get("action") in _OF_SNAPSHOTS


def _now_ms(metadata: Mapping[str, Any]) -> int:
    return max(int(time.time() * 1000), int(metadata.get("last-updated-ms") or 0))


def _require_new_numbers(commit: TableCommit, metadata: Mapping[str, Any]) -> None:
    """See that a snapshot's numbers are ahead of the table's: requirements don't look at them.

    Raises:
        RequirementFailed: it was made for an earlier version of the table.
    """
    last_number, next_row_id = metadata.get("last-sequence-number") or 0, metadata.get("next-row-id") or 0
    for update in commit.updates:
        snapshot = _added_snapshot(update)
        if snapshot is None:
            continue
        number, first_row_id = snapshot.get("sequence-number"), snapshot.get("first-row-id")
        if type(number) is int and metadata.get("format-version") != 1:
            if number <= last_number:
                raise RequirementFailed(
                    f"the snapshot's sequence number is {number}, and the table's {last_number} already",
                    table=key_name(commit.key),
                )
            last_number = number
        if type(first_row_id) is int:
            if first_row_id < next_row_id:
                raise RequirementFailed(
                    f"the snapshot's first-row-id is {first_row_id}, and the table's next {next_row_id} already",
                    table=key_name(commit.key),
                )
            added_rows = snapshot.get("added-rows")
            next_row_id = first_row_id + (added_rows if type(added_rows) is int else 0)


def _take_back(
    context: RegionContext,
    updates: Sequence[Mapping[str, Any]],
    frame: Mapping[str, Any],
    roots: Sequence[str],
    folder: str,
    version: MetadataVersion | None,
) -> list[Mapping[str, Any]]:
    """Return updates in which everything has `main`'s own names.

    Args:
        frame: `main`'s metadata with the commit's other updates, such as a new schema.
        roots: folders below which clients write the table's files.
        folder: where the address writes.
        version: of the localized files that the client read; None: it read none.
    """
    taken: list[Mapping[str, Any]] = []
    earlier: list[TakenBack] = []
    for update in updates:
        snapshot, action = _added_snapshot(update), update.get("action")
        if snapshot is not None:
            taken_back = take_back_snapshot(
                context.objects, context.mapping, frame, snapshot, roots, folder, version=version, earlier=earlier
            )
            earlier.append(taken_back)
            taken.append({**update, "snapshot": taken_back.snapshot})
        elif action in _STATISTICS:
            field = _STATISTICS[action]
            taken.append({**update, field: _take_back_statistics(context, update.get(field), frame, roots, field)})
        else:
            taken.append(update)
    return taken


def _take_back_statistics(
    context: RegionContext, statistics: Any, frame: Mapping[str, Any], roots: Sequence[str], field: str
) -> Mapping[str, Any]:
    """Return a statistics file's entry with `main`'s own name of the file.

    Raises:
        BadUpdate: it is no such entry; or its file isn't there, or has another size.
        ForeignFile: the file is neither one of the table's nor in its places of this region.
    """
    if not isinstance(statistics, dict) or not isinstance(uri := statistics.get("statistics-path"), str):
        raise BadUpdate(f"{field} has no statistics-path")
    for entry in frame.get(field) or ():
        if _content_uri(context, entry.get("statistics-path")) == uri:
            return {**statistics, "statistics-path": entry["statistics-path"]}
    client = ClientFiles(context.objects, roots)
    client.require_place(uri)
    client.require_present({uri: statistics.get("file-size-in-bytes")})
    return statistics


def _content_uri(context: RegionContext, uri: Any) -> str | None:
    try:
        return context.mapping.content_uri(uri) if isinstance(uri, str) else None
    except TableError:
        return None
