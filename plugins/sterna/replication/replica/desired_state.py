"""What a region's replica should hold for what `main` holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content
from sterna.catalog.tables import content_snapshot_id
from sterna.config.mapping import Mapping
from sterna.config.metadata_names import extra_snapshot_id
from sterna.config.registry.policy import Policy
from sterna.errors import BrokenMetadata, NotResident, TableError, UnregisteredUri, UnsafeUri, Unsupported
from sterna.replication.replica.metadata_version import current_metadata_version
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.iceberg.metadata.model import StatisticsFile, TableMetadata
    from sterna.storage.objects import Objects


def desired_content(
    context: RegionContext, name: str, source: Content, current: Content | None, generation: int = 0
) -> Content:
    """Return what a region's replica should hold for a content of `main`, without id.

    Whether a policy leaves out the snapshot that the catalog's entry names depends on the table's metadata, which isn't
    read here. Where the replica holds the same snapshot its entry is kept; otherwise the location is the one without
    that snapshot, and `sterna.replication.plan.changed_table` corrects it.

    Args:
        name: the key's name.
        source: the entry on `main`.
        current: the replica's content, whose metadata version it keeps.
        generation: the count of rewrites that its metadata version is to have at least.

    Raises:
        TableError: it can't be localized: a kind or URI that this version doesn't take.
    """
    mapping = context.mapping
    try:
        source.document.encode()
    except UnicodeEncodeError:
        # Half a surrogate pair: no request could carry it, and so no commit that has this key.
        raise BrokenMetadata("the catalog's entry holds text that can't be encoded") from None
    if source.kind == NAMESPACE:
        without_id = source.with_id(None)
        properties = {
            key: _map_property(mapping, value) for key, value in (without_id.payload.get("properties") or {}).items()
        }
        # A namespace without properties stays as it is: the catalog gives an empty field back as a missing one.
        return Content.of({**without_id.payload, "properties": properties}) if properties else without_id
    if source.kind not in (ICEBERG_TABLE, ICEBERG_VIEW) or not source.metadata_location:
        raise Unsupported(f"contents of type {source.kind} are not replicated")
    metadata_version = current_metadata_version(mapping, (current and current.metadata_location) or "", generation)
    policy = context.registry.policy(name)
    current_snapshot = extra_snapshot_id((current and current.metadata_location) or "")
    shown = current_snapshot if current_snapshot == content_snapshot_id(source) else None
    target = mapping.metadata_uri(
        source.metadata_location, policy, metadata_version, view=source.kind == ICEBERG_VIEW, extra_snapshot_id=shown
    )
    return source.with_id(None).with_metadata_location(target)


def _map_property(mapping: Mapping, value: str) -> str:
    """Map a namespace's property.

    What can't be mapped stays, for its tables must not wait for a text that no engine follows.
    """
    try:
        return mapping.map_property_value(value) or value
    except TableError:
        return value


def available_statistics(objects: Objects, statistics: Sequence[StatisticsFile]) -> frozenset[StatisticsFile]:
    """Return those of a table's statistics files that are here, or can be copied: of the size in their entry, and in a
    location whose files this region may have.

    Readers can do without statistics, so a table isn't held for those that its writer has lost.

    Raises:
        StoreError: a store can't be read.
    """
    targets: dict[StatisticsFile, str] = {}
    for file in statistics:
        with suppress(UnregisteredUri, UnsafeUri, Unsupported, NotResident):
            targets[file] = objects.mapping.content_uri(file.path)
    sizes = objects.sizes(set(targets.values()))
    absent = [file for file, target in targets.items() if sizes[target] != file.length]
    source_sizes = objects.source_sizes({file.path: file.length for file in absent if file.path not in sizes})
    missing = {file for file in absent if source_sizes.get(file.path) != file.length}
    return frozenset(targets.keys() - missing)


def excluded_snapshot(policy: Policy, metadata: TableMetadata, shown: int | None) -> int | None:
    """Return the snapshot that the catalog's entry names where a policy's history leaves it out, else None.

    Args:
        metadata: what the table's metadata.json on `main` says.
        shown: id of the snapshot that the catalog's entry names, None where it names none.
    """
    snapshot_ids = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    return shown if shown in snapshot_ids - retained_snapshots(policy, metadata, None) else None


def retained_snapshots(policy: Policy, metadata: TableMetadata, shown: int | None) -> frozenset[int]:
    """Return the ids of the snapshots that a replica has under a policy: the same when planning and when localizing.

    Engines differ in whether they read the snapshot that the catalog's entry names, or what metadata.json has as its
    current one: a replica has both.

    Args:
        metadata: what the table's metadata.json on `main` says.
        shown: what `excluded_snapshot` returned; the name of the replica's metadata.json has it, too
            (`sterna.config.mapping.extra_snapshot_id`).
    """
    from sterna.iceberg.metadata.history import all_snapshots, retained_snapshots

    retained = retained_snapshots(metadata, latest=policy.history.latest, since_ms=policy.history.since_ms)
    return retained if shown is None else retained | (all_snapshots(metadata) & {shown})
