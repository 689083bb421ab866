"""What a region's replica should hold for what `main` holds."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, NAMESPACE, Content
from sterna.errors import BrokenMetadata, NotResident, TableError, UnregisteredUri, UnsafeUri, Unsupported
from sterna.registry.mapping import Mapping, shown_by
from sterna.registry.policy import Policy
from sterna.replica.editions import edition_now
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects
    from sterna.iceberg.metadata.model import StatisticsFile, TableMetadata


def wanted_here(
    context: RegionContext, name: str, source: Content, here: Content | None, generation: int = 0
) -> Content:
    """Return what a region's replica should hold for a content of `main`, without id.

    Whether a policy leaves out the snapshot that the catalog's entry names, only the table's metadata tells. That isn't
    read here: what the replica holds for the same snapshot was made by it, and is right. Else the place is the one
    without it, and `sterna.sync.plan.changed_table` sees to it.

    Args:
        context: the region.
        name: the key's name.
        source: what `main` holds.
        here: what the replica holds, whose generation it keeps.
        generation: the one that it is to have at least.

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
        plain = source.with_id(None)
        properties = {key: _known(mapping, value) for key, value in (plain.payload.get("properties") or {}).items()}
        # A namespace without properties stays as it is: the catalog gives an empty field back as a missing one.
        return Content.of({**plain.payload, "properties": properties}) if properties else plain
    if source.kind not in (ICEBERG_TABLE, ICEBERG_VIEW) or not source.metadata_location:
        raise Unsupported(f"contents of type {source.kind} are not replicated")
    edition = edition_now(mapping, (here and here.metadata_location) or "", generation)
    policy = context.registry.policy(name)
    before = shown_by((here and here.metadata_location) or "")
    shown = before if before == shown_snapshot(source) else None
    target = mapping.metadata(source.metadata_location, policy, edition, view=source.kind == ICEBERG_VIEW, shown=shown)
    return source.with_id(None).with_metadata_location(target)


def _known(mapping: Mapping, value: str) -> str:
    """Map a namespace's property.

    What can't be mapped stays, for its tables must not wait for a text that no engine follows.
    """
    try:
        return mapping.known(value) or value
    except TableError:
        return value


def present_statistics(objects: Objects, items: Sequence[StatisticsFile]) -> frozenset[StatisticsFile]:
    """Return those of a table's statistics files that are here, or can be copied: of the size that their entry says,
    and in a location whose files this region may have.

    Readers can do without statistics, so a table isn't held for those that its writer has lost.

    Raises:
        StoreError: a store can't be asked.
    """
    targets: dict[StatisticsFile, str] = {}
    for item in items:
        with suppress(UnregisteredUri, UnsafeUri, Unsupported, NotResident):
            targets[item] = objects.mapping.content(item.path)
    sizes = objects.sizes(set(targets.values()))
    absent = [item for item, target in targets.items() if sizes[target] != item.length]
    origins = objects.sizes({item.path for item in absent} - sizes.keys())
    gone = {item for item in absent if origins.get(item.path) != item.length}
    return frozenset(targets.keys() - gone)


def shown_snapshot(entry: Content) -> int | None:
    """Return the id of the snapshot that the catalog's entry of a table names, None where it names none."""
    snapshot = entry.payload.get("snapshotId")
    return snapshot if type(snapshot) is int else None


def left_out(policy: Policy, metadata: TableMetadata, shown: int | None) -> int | None:
    """Return the snapshot that the catalog's entry names where a policy's history leaves it out, else None.

    Args:
        policy: the table's.
        metadata: what the table's metadata.json on `main` says.
        shown: id of the snapshot that the catalog's entry names, None where it names none.
    """
    present = {snapshot.snapshot_id for snapshot in metadata.snapshots}
    return shown if shown in present - kept(policy, metadata, None) else None


def kept(policy: Policy, metadata: TableMetadata, shown: int | None) -> frozenset[int]:
    """Return the ids of the snapshots that a replica has under a policy: the same when planning and when localizing.

    Engines differ in whether they read the snapshot that the catalog's entry names, or what metadata.json has as its
    current one: a replica has both.

    Args:
        policy: the table's.
        metadata: what the table's metadata.json on `main` says.
        shown: what `left_out` returned; the name of the replica's metadata.json says it, too
            (`sterna.registry.mapping.shown_by`).
    """
    from sterna.iceberg.metadata.history import all_snapshots, kept_snapshots

    keep = kept_snapshots(metadata, latest=policy.history.latest, since_ms=policy.history.since_ms)
    return keep if shown is None else keep | (all_snapshots(metadata) & {shown})
