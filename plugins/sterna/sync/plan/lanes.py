"""Two lanes: tables of which much is to be copied don't hold up the others.

The small lane leaves them out, as in transit, and publishes the rest. The large lane copies what is in transit, and
publishes nothing. So there is one publisher, and when the files are here the next sync of the small lane finds them.

To find them again may take as long as it took to list them. So a version that the large lane has brought whole counts
as one that readers see: its lists prove what is here. The small lane lists a very large table itself where another
round would not help: where it changes as fast as it is brought, or clean-ups delete again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from uuid import uuid4

from sterna.errors import Busy, StoreUnreachable
from sterna.registry.mapping import Mapping
from sterna.replica import file_list as listing
from sterna.replica.catalog_copy import epoch_of
from sterna.replica.head import Head, replaced_since
from sterna.replica.held import IN_TRANSIT, Held
from sterna.replica.records import Action
from sterna.replica.region import RegionContext
from sterna.replica.transit import Moving, Transit, read_transit
from sterna.sync.holds import Settled, groups_of
from sterna.sync.options import SyncOptions
from sterna.sync.plan.changes import Changes
from sterna.sync.plan.presence import Listed, ToBring, to_copy


def large_lane(context: RegionContext, head: Head, options: SyncOptions) -> Transit | None:
    """Return what the large lane is at, where that matters to a plan.

    Raises:
        StoreUnreachable, StoreDenied: the region's store doesn't answer.
    """
    matters = context.region.large_copy > 0 and options.lane != "all" and any(item.bytes for item in head.held)
    return read_transit(context.objects, context.region) if matters else None


def on_the_way(transit: Transit | None, head: Head, actions: Iterable[Action]) -> tuple[Held, ...]:
    """Return the entries of tables that are being copied right now: they stay in transit, and nobody looks at them.

    A table may have a million files. For one that moves together with them there is no entry here: it waits for them.
    """
    puts = {action.key for action in actions if action.change == "put" and action.target}
    return tuple(item for item in head.held if transit and item.key in puts and item.bytes and transit.is_at(item))


def reign(context: RegionContext) -> str:
    """Return the primary's epoch; where another region becomes the primary just now, what is no epoch."""
    try:
        return epoch_of(context)
    except Busy:
        return uuid4().hex


@dataclass(frozen=True)
class Brought:
    """A version of a table in transit that the large lane has brought whole.

    Args:
        moving: the table, as that round copied it.
        proves: all of its files are here still: it proves them, as does a version that readers see.
        over: so is the round, and the large lane has time.
    """

    moving: Moving
    proves: bool
    over: bool


def brought_whole(context: RegionContext, transit: Transit | None, head: Head, digest: str) -> dict[str, Brought]:
    """Return, by key name, the versions of tables in transit that the large lane has brought whole.

    All of their files were here as it looked, or came then, under the same registry. What was deleted or written anew
    since, the replica branch tells (`sterna.replica.head.replaced_since`), but for what a promotion left behind.

    Args:
        context: the region.
        transit: what the large lane is at.
        head: of the replica branch.
        digest: of now (`sterna.sync.plan.make.sync_digest`).

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    if transit is None:
        return {}
    last = transit.round
    tables = ((item.key, last.moving(item)) for item in head.held if item.bytes and transit.is_here(item.key))
    found = {key: moving for key, moving in tables if moving}
    made_for = (last.digest, last.registry, last.epoch)
    if not found or made_for != (digest, context.registry.fingerprint(), reign(context)):
        return {}
    replaced = replaced_since(context.primary, context.region.replica_branch, last.replica_hash, head.hash)
    return {key: Brought(moving, not replaced, last.over or not transit.fresh) for key, moving in found.items()}


def leaves_listing(brought: Brought | None, manifests: int) -> bool:
    """Tell whether the small lane leaves it to the large one to list a very large table's new files.

    Not where a round left as many as half of them: another one would, too, and the table would be in transit for ever.
    Nor where a clean-up deleted and the large lane has no time, or did so the second time.

    Args:
        brought: the table's version that the large lane has brought whole, None where there is none.
        manifests: how many of them are new, beyond what that proves.
    """
    if brought is None:
        return True
    if not brought.proves:
        return brought.over and not brought.moving.voided
    return not brought.over or brought.moving.manifests == 0 or 2 * manifests < brought.moving.manifests


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
    limit = context.region.large_copy
    left = {name: size for name, (_, size) in found.copied_by_table().items()}
    entries: list[Held] = []
    for group in groups_of(seen.together, settled.actions, seen.relaxed):
        items = [replace(since[name], bytes=left[name]) for name in group if left.get(name) and name in since]
        total = sum(item.bytes for item in items)
        if total > limit and not _grows_as_fast(items, left, large, limit):
            entries += [left_to(large, item, "the large lane brings it") for item in items]
    return tuple(entries)


def _grows_as_fast(items: Sequence[Held], left: dict[str, int], large: Transit | None, limit: int) -> bool:
    """Tell whether a round of the large lane left as much as half of what it had to bring: another one would, too.

    Such a table is taken along by the small lane, or it would be in transit for ever. A round that had little to bring,
    after all, tells nothing of the next one. Nor does one that brought others for most of its time: the next one will
    be shorter by them.

    Args:
        items: that are to be published together.
        left: by key name, how many bytes are to be copied now.
        large: what the large lane is at.
        limit: bytes that are little.
    """
    if large is None or not large.round.over:
        return False
    began = [large.round.began_with(item) for item in items]
    failed = any(large.round.failure(item) for item in items)
    brought, total = sum(size or 0 for size in began), sum(item.bytes for item in items)
    tables = large.round.tables
    shorter = 2 * sum(left.get(each.key, 0) for each in tables) < sum(each.bytes for each in tables)
    return not failed and not shorter and None not in began and 2 * total >= brought > limit


def left_to(large: Transit | None, item: Held, reason: str) -> Held:
    """Return the entry of a table that the large lane has to bring; with its reason, where it tried and could not."""
    failure = large.round.failure(item) if large else None
    if large and failure and failure.kind == StoreUnreachable.__name__ and not large.round.moving(item):
        # The store may answer by now: what is in transit is tried again at once.
        return replace(item, kind=IN_TRANSIT, reason=f"{reason}; the last time: {failure.reason}", file=failure.file)
    if failure:
        return replace(item, kind=failure.kind, reason=failure.reason, file=failure.file)
    return replace(item, kind=IN_TRANSIT, reason=reason)


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
    moving = [item for item in held if item.bytes and item.in_transit]
    if not (large and large.fresh):
        return bool(moving)
    before = {item.key for item in head.held if item.in_transit}
    return any(item.key not in before and not large.round.moving(item) for item in moving)
