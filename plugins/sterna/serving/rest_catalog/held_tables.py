"""Why a region stays behind with a table, and whether a later commit to it may succeed."""

from __future__ import annotations

from sterna.catalog.model import Content, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound, Remedy, SternaError, TableUnusable, remedy_of
from sterna.replication.replica.head import Head, load_held_list, read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.home_files import OUTAGES, home_unavailable, naming_table


def raise_for_held(
    context: RegionContext, key: Key, source: Content, failure: SternaError | None, message: str
) -> None:
    """Raise that a region stays behind with a table, where the reason is another region's store, or the table.

    Args:
        source: the entry on `main`.
        failure: of the last sync; None: it didn't fail.
        message: what the region lacks.

    Raises:
        HomeUnavailable: another region's store can't be used.
        TableUnusable: the table is held as `main` has it, or moves together with one that is.
    """
    name = key_name(key)
    head = load_held_list(context.objects, read_head(context.primary, context.region.replica_branch))
    cause = _cause(head, name)
    outages = {error.__name__: error for error in OUTAGES}
    if cause is not None and cause.kind in outages:
        failure = outages[cause.kind](cause.reason, file=cause.file)
    elif cause is not None and _is_lasting(cause) and _source_at(context, head.watermark, key) == source:
        reason = f"{cause.kind}: {cause.reason}" if cause.key == name else f"{cause.key} is held: {cause.kind}"
        hint = "nothing was committed; see what keeps the table from this region"
        raise TableUnusable(f"{message}: {reason}", table=name, file=cause.file, hint=hint)
    if isinstance(failure, OUTAGES):
        with naming_table(context.mapping, name):
            raise home_unavailable(context.mapping, failure.file, failure, message) from failure


def _cause(head: Head, name: str) -> Held | None:
    """Return the held key whose fault keeps a key behind: the key itself, or one that it moves together with."""
    held = head.held_by_key.get(name)
    return held and head.held_by_key.get(held.waits_for, held)


def _is_lasting(held: Held) -> bool:
    """Return whether a key is held by a fault that no later sync gets over by itself."""
    return not held.in_transit and remedy_of(held.kind) is Remedy.HOLD


def _source_at(context: RegionContext, watermark: str, key: Key) -> Content | None:
    """Return what `main` had of a key at the commit that this region is at; None: nothing, or that is unknown."""
    try:
        return context.primary.contents(SOURCE_BRANCH, watermark, [key]).get(key) if watermark else None
    except ReferenceNotFound:
        return None
