"""Files that are here with a wrong size: left by a killed copy and sent again, or damage, which holds the table."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from sterna.config.registry.model import is_inside
from sterna.errors import Damaged, SternaError, TableError
from sterna.libraries import pa, pc
from sterna.replication.execution.copy_file import original_mismatch
from sterna.replication.execution.fault_attribution import attribute_fault
from sterna.replication.execution.source_sizes import Outages, source_sizes
from sterna.replication.plan.branch_diff import Changes, shown_metadata_uri
from sterna.replication.plan.dependencies import Resolution
from sterna.replication.plan.inventory import Inventory
from sterna.replication.plan.metadata_reader import parse_avro, read_files, read_lists, read_replica_metadata
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Action
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.iceberg.metadata.table import TableMetadata


def hold_size_mismatches(
    context: RegionContext,
    resolution: Resolution,
    inventory: Inventory,
    held_if_failed: dict[str, Held],
    changes: Changes,
    outages: Outages,
) -> list[Held]:
    """Hold tables whose published version has a file of a wrong size: readers see it, so that an alarm is needed.

    A wrong size that no published version reaches was left by a killed copy, and is copied again. But nothing outside
    the replica root is ever overwritten.
    """
    mismatched, root = inventory.size_mismatches, context.region.replica_root
    original_faults = {file.table: original_mismatch(file) for file in mismatched if not is_inside(file.target, root)}
    copied_files = [file for file in mismatched if is_inside(file.target, root)]
    # Where the source differs from main's size, too, main is wrong: the copy reports that.
    sources, errors = source_sizes(
        context.objects, [(file.table, file.source) for file in copied_files], outages.unavailable
    )
    faults: dict[str, SternaError] = {**original_faults}
    for (table, _), error in errors.items():
        outages.record_error(error)
        faults.setdefault(table, error)
    damaged_targets: dict[str, set[str]] = defaultdict(set)
    for file in copied_files:
        if file.table not in faults and sources[file.source] in (None, file.size):
            damaged_targets[file.table].add(file.target)
    for action in resolution.actions:
        targets = damaged_targets.get(action.key)
        if targets and (damage := _published_damage(context, action, targets, changes)):
            faults[action.key] = damage
    return [held_with_error(held_if_failed[name], error) for name, error in faults.items()]


def _published_damage(
    context: RegionContext, action: Action, targets: set[str], changes: Changes
) -> SternaError | None:
    """Return the damage where the version of a table that the replica shows has some files of a wrong size."""
    try:
        replica_metadata = read_replica_metadata(context, shown_metadata_uri(action, changes))
        reached = _reached_content(context, replica_metadata, targets) if replica_metadata else set()
    except Exception as error:  # noqa: BLE001 - judged by `attribute_fault`
        return attribute_fault(
            error, context.mapping, "reading what the replica shows of it", action.target, action.key
        )
    if not reached:
        return None
    return Damaged(f"{len(reached)} files that the replica's readers use have a wrong size", file=min(reached))


def _reached_content(context: RegionContext, replica_metadata: TableMetadata, targets: set[str]) -> set[str]:
    """Return those of some content files that the replica's version reaches; all of them where its files can't be
    read.

    Args:
        replica_metadata: the replica's metadata.
        targets: URIs below the replica root.
    """
    from sterna.iceberg.manifests.manifest import live_entries, read_entries

    reached = targets & {statistics_file.path for statistics_file in replica_metadata.statistics}
    target_array = pa.array(sorted(targets), pa.string())
    try:
        lists = {snapshot.manifest_list for snapshot in replica_metadata.snapshots if snapshot.manifest_list}
        manifests = {path for snapshot in replica_metadata.snapshots for path in snapshot.manifests}
        manifests |= {manifest.path for manifest in read_lists(context, sorted(lists))}
        for uri, data in read_files(context, dict.fromkeys(sorted(manifests), -1)):
            live = live_entries(parse_avro(context, uri, data, read_entries)).column("file_path")
            reached |= set(live.filter(pc.is_in(live, target_array)).to_pylist())
    except TableError:
        return targets
    return reached


def held_with_error(held: Held, error: SternaError) -> Held:
    """Return the entry of a held key with an error as its reason."""
    return replace(held, kind=type(error).__name__, reason=error.message, file=error.file)
