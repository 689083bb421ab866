"""What the requests to one address share, and what they read: of `main`, and of what this region shows."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from sterna.catalog.model import Content, Key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogError, CommitOutcomeUnknown, ReferenceNotFound
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog import main_metadata
from sterna.serving.rest_catalog.background_sync import BackgroundSync
from sterna.serving.rest_catalog.byte_cache import ByteCache
from sterna.serving.rest_catalog.recent_changes import RecentChanges
from sterna.serving.rest_catalog.replays import IdempotencyKeys
from sterna.serving.rest_catalog.rules import ReservedPlaces
from sterna.serving.rest_catalog.turns import Turns


@dataclass
class Address:
    """What the requests to one address share.

    Args:
        region: returns the region, whose connections live as long as the process.
        near_root: the region's own location, as the section `catalog` has it.
        recent: what this process has changed.
        sync: brings the region up to `main`.
        turns: the order of the commits to each table.
        keys: the idempotency keys of commits.
        writing: returns the region as it logs in at the catalog to write `main`; None: as it does otherwise.
        earlier_roots: other locations in which `near` was before, or is for ingestion.
        inboxes: prefixes of ingestion.
        renew: has `region` and `writing` look up again which catalog takes commits.
        cache: metadata files of `main`, which never change; None: each is read every time.
    """

    region: Callable[[], RegionContext]
    near_root: str
    recent: RecentChanges
    sync: BackgroundSync
    turns: Turns = field(default_factory=Turns)
    keys: IdempotencyKeys = field(default_factory=IdempotencyKeys)
    writing: Callable[[], RegionContext] | None = None
    earlier_roots: Sequence[str] = ()
    inboxes: Sequence[str] = ()
    renew: Callable[[], None] = lambda: None
    cache: ByteCache | None = None

    @property
    def reserved(self) -> ReservedPlaces:
        """Where no table may be made here."""
        replica_roots = [region.replica_root for region in self.region().registry.regions]
        return ReservedPlaces((self.near_root, *self.earlier_roots), self.inboxes, replica_roots)

    def read_metadata(self, uri: str) -> dict[str, Any]:
        """Return the JSON of a metadata.json on `main`; errors as `main_metadata.read_metadata` has them."""
        return main_metadata.read_metadata(self.region(), uri, self.cache)

    def shown(self, keys: Collection[Key]) -> dict[Key, Content | None]:
        """Return what clients of this address see under some keys; None: nothing."""
        context = self.region()
        catalog, branch = context.catalog, context.region.replica_branch

        def look() -> dict[Key, Content | None]:
            try:
                _, contents = catalog.read_current(branch, keys)
            except ReferenceNotFound:  # the region's first sync makes it
                contents = {}
            return {key: self.recent.content(key, contents.get(key)) for key in keys}

        return self.recent.with_branch(look)


@dataclass(frozen=True)
class MainState:
    """Some keys on `main`, at one commit.

    Args:
        head: the commit's hash.
        contents: by key; None: nothing.
        replayed: a commit with the request's idempotency key is there already.
    """

    head: str
    contents: Mapping[Key, Content | None]
    replayed: bool = False


def read_main(address: Address, keys: Collection[Key], idempotency_key: str = "") -> MainState:
    """Read some keys on `main`, from the catalog that takes commits.

    Args:
        idempotency_key: the request's; "" for none.

    Raises:
        BadUpdate: that is no such key.
        CatalogError: the catalog can't be read.
    """
    with renewing(address):
        catalog = address.region().primary
        head, contents = catalog.read_current(SOURCE_BRANCH, keys)
        replayed = bool(idempotency_key) and address.keys.has(catalog, head, idempotency_key)
    return MainState(head, {key: contents.get(key) for key in keys}, replayed)


@contextmanager
def renewing(address: Address) -> Iterator[None]:
    """Look the primary up again after a failure: it may have been one of the catalog that was the primary before."""
    try:
        yield
    except (CatalogError, CommitOutcomeUnknown):
        address.renew()
        raise
