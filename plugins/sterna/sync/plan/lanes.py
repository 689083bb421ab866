"""Two lanes: tables of which much is to be copied don't hold up the others.

The small lane leaves them out, as in transit, and publishes the rest. The large lane copies what is in transit, and
publishes nothing. So there is one publisher, and when the files are here the next sync of the small lane finds them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace

from sterna.registry.mapping import Mapping
from sterna.replica import file_list as listing
from sterna.replica.head import Head
from sterna.replica.held import IN_TRANSIT, Held
from sterna.replica.records import Action
from sterna.replica.region import RegionContext
from sterna.replica.transit import Transit, read_transit
from sterna.sync.holds import Settled, groups_of
from sterna.sync.options import SyncOptions
from sterna.sync.plan.changes import Changes
from sterna.sync.plan.presence import Listed, ToBring, to_copy


def large_lane(context: RegionContext, head: Head, options: SyncOptions) -> Transit | None:
    """Return what the large lane is at, where that matters to a plan.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    matters = options.leaves_large(context.region) and any(item.bytes for item in head.held)
    return read_transit(context.objects, context.region) if matters else None


def on_the_way(transit: Transit | None, head: Head, actions: Iterable[Action]) -> tuple[Held, ...]:
    """Return the entries of tables that are being copied right now: they stay in transit, and nobody looks at them.

    A table may have a million files. For one that moves together with them there is no entry here: it waits for them.
    """
    puts = {action.key for action in actions if action.change == "put" and action.target}
    return tuple(item for item in head.held if transit and item.key in puts and item.bytes and transit.is_at(item))


def too_large(
    context: RegionContext,
    found: ToBring,
    settled: Settled,
    since: dict[str, Held],
    seen: Changes,
    large: Transit | None,
) -> tuple[Held, ...]:
    """Return the entries of tables that the large lane has to bring.

    Args:
        context: the region.
        found: what is to be brought.
        settled: what could be published.
        since: by key name, how each would be held.
        seen: what was committed together.
        large: what the large lane is at.
    """
    left = {name: size for name, (_, size) in found.copied_by_table().items()}
    entries: list[Held] = []
    for group in groups_of(seen.together, settled.actions, seen.relaxed):
        items = [replace(since[name], bytes=left[name]) for name in group if left.get(name) and name in since]
        total = sum(item.bytes for item in items)
        if total > context.region.large_copy and not _grows_as_fast(items, total, large):
            entries += [_entry(item, large) for item in items]
    return tuple(entries)


def _grows_as_fast(items: Iterable[Held], total: int, large: Transit | None) -> bool:
    """Tell whether a round of the large lane left as much as half of what it had to bring: another one would, too.

    Such a table is taken along by the small lane, or it would be in transit for ever.
    """
    if large is None or not large.round.over:
        return False
    began = [large.round.began_with(item) for item in items]
    failed = any(large.round.failure(item) for item in items)
    return not failed and None not in began and 2 * total >= sum(size or 0 for size in began)


def _entry(item: Held, large: Transit | None) -> Held:
    """Return the entry of a table that the large lane has to bring; with the reason, where it tried and could not."""
    failure = large.round.failure(item) if large else None
    if failure:
        return replace(item, kind=failure.kind, reason=failure.reason, file=failure.file)
    return replace(item, kind=IN_TRANSIT, reason="the large lane brings it")


def without(found: ToBring, tables: Collection[str], mapping: Mapping, options: SyncOptions) -> ToBring | None:
    """Return what is to be brought without some tables; None where nothing is left."""
    import pyarrow as pa
    import pyarrow.compute as pc

    names = pa.array(sorted(tables), pa.string())
    content, localized = found.listed.content, listing.without_tables(found.listed.localized, tables)
    stay = pc.invert(pc.is_in(content.column("table"), names)).combine_chunks()
    kept = content.filter(stay)
    if not kept.num_rows and not localized.num_rows:
        return None
    targets = pc.count_distinct(kept.column("target")).as_py()
    listed = Listed(localized, kept, found.listed.sizes.filter(stay), targets)
    files, batches, present = to_copy(listed, mapping, options)
    return ToBring(listed, files, batches, present, tuple(each for each in found.parts if each.table not in tables))


def is_wanted(held: Iterable[Held], head: Head, large: Transit | None) -> bool:
    """Tell whether the large lane should start: something came into transit, or is, and nobody is at work."""
    moving = {item.key for item in held if item.bytes and item.in_transit}
    news = moving - {item.key for item in head.held if item.in_transit}
    return bool(news or (moving and not (large and large.fresh)))
