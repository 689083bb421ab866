"""Whether this region serves what `main` has of a table: a commit is taken on no other base.

A sync is waited for where it does not. A client that comes again has to see what came first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sterna.catalog.model import Content, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import StaleBase, TableUnusable
from sterna.replication.replica.pauses import read_pauses
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.address import Address
from sterna.serving.rest_catalog.answer import stands_for
from sterna.serving.rest_catalog.held_tables import raise_for_held

SYNC_SECONDS = 15.0
"""That a commit waits for a sync to bring a table up."""


def require_served_base(address: Address, key: Key, source: Content) -> Content:
    """See that this region serves what `main` has of a table, and return the region's own entry.

    A sync is waited for where it is behind.

    Args:
        source: the entry on `main`.

    Raises:
        StaleBase: this region is behind.
        HomeUnavailable: it is, and stays so while the store of another region can't be used.
        TableUnusable: it is, and stays so while the table is held.
    """
    context, shown = address.region(), address.shown([key])[key]
    if shown is None or not stands_for(context, key, shown, source):
        address.sync.wait(address.sync.request(), SYNC_SECONDS)
        shown = address.shown([key])[key]
    if shown is None or not stands_for(context, key, shown, source):
        address.renew()  # what was read as `main` may be an old primary's
        message = f"{context.region.name} doesn't serve the table as {SOURCE_BRANCH} has it"
        raise_for_held(address.region(), key, source, address.sync.failure, message)
        raise StaleBase(message, table=key_name(key))
    return shown


def require_unpaused(context: RegionContext, keys: Iterable[Key]) -> None:
    """See that no key that is to be changed is paused in this region: it would not show the change.

    Raises:
        TableUnusable: one is.
        StoreError, CredentialError: what is paused is unknown.
    """
    for paused in read_pauses(context, [key_name(key) for key in keys]):
        hint = "nothing was committed; resume the table, or commit on main or in another region"
        raise TableUnusable(f"{context.region.name} keeps it as it is: {paused.line}", table=paused.key, hint=hint)


def bring_up(address: Address, contents: Mapping[Key, Content | None]) -> None:
    """Wait until this region shows what `main` has under some keys, where that takes a moment."""
    context, shown = address.region(), address.shown(contents)
    behind = [
        key
        for key, source in contents.items()
        if (shown[key] is not None if source is None else not stands_for(context, key, shown[key], source))
    ]
    if behind:
        address.sync.wait(address.sync.request(), SYNC_SECONDS)
