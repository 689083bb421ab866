"""Why a region stays behind with a table, and whether a later commit to it may succeed."""

from __future__ import annotations

from sterna.catalog.model import Content, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import OUTAGES, ReferenceNotFound, SternaError, TableUnusable
from sterna.replication.replica.head import Head, load_held_list, read_head
from sterna.replication.replica.held import Held
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.home_files import home_unavailable, naming_table


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
    elif cause is not None and cause.is_lasting and _source_at(context, head.watermark, key) == source:
        reason = f"{cause.kind}: {cause.reason}" if cause.key == name else f"{cause.key} is held: {cause.kind}"
        hint = "nothing was committed; see what keeps the table from this region"
        raise TableUnusable(f"{message}: {reason}", table=name, file=cause.file, hint=hint)
    if isinstance(failure, OUTAGES):
        with naming_table(context.mapping, name):
            raise home_unavailable(context.mapping, failure.file, failure, message) from failure


def _cause(head: Head, name: str) -> Held | None:
    """Return the held key whose fault keeps a key behind: itself, or the last of those that it waits for in turn."""
    held, passed = head.held_by_key.get(name), {name}
    while held is not None and held.waits_for in head.held_by_key and held.waits_for not in passed:
        passed.add(held.waits_for)
        held = head.held_by_key[held.waits_for]
    return held


def _source_at(context: RegionContext, watermark: str, key: Key) -> Content | None:
    """Return what `main` had of a key at the commit that this region is at; None: nothing, or that is unknown."""
    try:
        return context.primary.contents(SOURCE_BRANCH, watermark, [key]).get(key) if watermark else None
    except ReferenceNotFound:
        return None
