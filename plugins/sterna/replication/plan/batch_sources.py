"""From which regions the batches of a plan are copied.

Another region's replica branch shows of which version of a table it has all files, without any of its lists being read.
Only this region's own copy of the catalog is asked: what it doesn't have yet costs no more than a dearer copy.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace

from sterna.catalog.model import parse_key
from sterna.catalog.tables import content_metadata_uri
from sterna.config.mapping import Mapping
from sterna.config.registry.model import Location
from sterna.errors import CatalogError, CatalogUnreachable, TableError
from sterna.replication.execution.source_regions import SourceRegions, TableReplica, first_turn
from sterna.replication.plan.branch_diff import Changes, shown_metadata_uri
from sterna.replication.plan.inventory import Inventory
from sterna.replication.replica import file_list as listing
from sterna.replication.replica.model import Action, CopyBatch
from sterna.replication.replica.region import RegionContext

_MIN_REGIONS = 3  # with two, a file's origin is the only other place


def assign_sources(
    context: RegionContext, inventory: Inventory, actions: Iterable[Action], changes: Changes
) -> tuple[CopyBatch, ...]:
    """Return a plan's batches with the regions that their files are copied from, beside the files' origins.

    Args:
        inventory: what is to be copied.
        actions: of the plan.
        changes: the plan's candidates.
    """
    batches = inventory.batches
    locations = {location.id: location for location in context.registry.locations}
    others = _other_regions(context, (locations[batch.origin] for batch in batches))
    if not others or len(context.registry.regions) < _MIN_REGIONS:
        return batches
    tables = _tables_by_batch(inventory, batches)
    copied = set[str]().union(*tables.values())
    replicas = _read_replicas(context, others, [action for action in actions if action.key in copied], changes)
    sources, here = SourceRegions(context.mapping), context.region.name
    turns: dict[str, int] = {}
    assigned = []
    for batch in batches:
        names = tables[batch.number]
        turn = turns.setdefault(batch.origin, first_turn(here, [batch.origin, changes.source_hash]))
        turns[batch.origin] += 1
        order = sources.order(
            locations[batch.origin], [replica for name in names for replica in replicas[name]], turn=turn
        )
        assigned.append(replace(batch, preferred=order.preferred, fallbacks=order.fallbacks))
    return tuple(assigned)


def egress_cost(context: RegionContext, batches: Iterable[CopyBatch], *, from_origins: bool = False) -> float:
    """Return the estimated price of copying batches.

    Args:
        from_origins: as if all files came from their origins.
    """
    locations = {location.id: location for location in context.registry.locations}
    sources, here = SourceRegions(context.mapping), context.region.name
    cost = 0.0
    for batch in batches:
        preferred = () if from_origins else batch.preferred
        location = sources.replica_location(preferred[0]) if preferred else locations[batch.origin]
        cost += batch.bytes / 1e9 * location.egress_price(here)
    return cost


def _other_regions(context: RegionContext, origins: Iterable[Location]) -> list[str]:
    """Return the regions that may be sources beside the origins: those that aren't the origin of all batches."""
    origin_regions = {location.region for location in origins}
    if not origin_regions:
        return []
    only_origin = origin_regions if len(origin_regions) == 1 else set()
    return [name for name in context.registry.region_names if name != context.region.name and name not in only_origin]


def _tables_by_batch(inventory: Inventory, batches: Sequence[CopyBatch]) -> dict[int, list[str]]:
    """Return, by the number of each batch, the key names of the tables that it has files for, sorted."""
    tables: dict[int, list[str]] = {batch.number: [batch.table] if batch.table else [] for batch in batches}
    for name, numbers in sorted(listing.batches_by_table(inventory.files).items()):
        for number in numbers:
            tables[number].append(name)
    return tables


def _read_replicas(
    context: RegionContext, regions: Iterable[str], actions: Sequence[Action], changes: Changes
) -> dict[str, list[TableReplica]]:
    """Return, by key name, the other regions that show tables, where that is a version that this region doesn't show.

    One that shows what this region shows lacks what this one lacks.
    """
    replicas: dict[str, list[TableReplica]] = defaultdict(list)
    keys, mapping = [parse_key(action.key) for action in actions], context.mapping
    for region in regions:
        try:
            _, shown = context.catalog.read_current(context.registry.region(region).replica_branch, keys)
        except CatalogUnreachable:
            break  # another branch would be waited for as long
        except CatalogError:
            continue  # not seeded yet, or this region may not read it: the origins have all files
        for action, key in zip(actions, keys, strict=True):
            version = _source_version(mapping, content_metadata_uri(shown.get(key)))
            if version == mapping.origin_uri(action.source):
                replicas[action.key].append(TableReplica(region, action.key, is_current=True))
            elif version and version != _source_version(mapping, shown_metadata_uri(action, changes)):
                replicas[action.key].append(TableReplica(region, action.key, is_current=False))
    return replicas


def _source_version(mapping: Mapping, uri: str) -> str:
    """Return the metadata.json that a localized one was made of; "" where it is none."""
    with suppress(TableError):
        return mapping.metadata_origin(uri) if mapping.below_replica_root(uri) else ""
    return ""
