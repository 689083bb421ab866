"""Leases of a region's processes on a location's bandwidth, beside the replica: `<folder>/<lease>.json`.

All processes of a region, on whichever host, write to its replica root: so that is where they see one another. A lease
is overwritten while its holder lives. Ages are measured by the store's own clock, against the reader's own lease.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from sterna.codec import INTEGER, Field, Record, UnknownFields
from sterna.errors import ObjectMissing, SternaError, StoreUnreachable
from sterna.storage.client import OpenStore, call_store, list_pages

EXPIRY_SECONDS: Final = 20.0


@dataclass(frozen=True)
class Lease:
    """What a process may send or read.

    Args:
        rate: bytes a second, at most; what it is about to take counts as taken.
    """

    rate: int


LEASE: Final = Record(Lease, (Field("rate", INTEGER),), UnknownFields.IGNORE)


@dataclass
class Leases:
    """One process's lease, and those beside it.

    Args:
        store: returns the region's store; called for each read.
        folder: where the leases on one location are: a path below the store's prefix.
        name: of this process's lease.
    """

    store: Callable[[], OpenStore]
    folder: str
    name: str = field(default_factory=lambda: f"{secrets.token_hex(8)}.json")
    _rates: dict[tuple[str, Any], int | None] = field(default_factory=dict)
    _released: bool = False

    def write(self, rate: int) -> None:
        """Write the lease, which shows that its holder lives.

        Raises:
            StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
        """
        import obstore

        if self._released:
            return  # by a read that was under way
        store, body = self.store(), LEASE.dumps(Lease(rate)).encode()
        key = store.key(f"{self.folder}/{self.name}")
        call_store(store, self._uri(store), lambda: obstore.put(store.client, key, body, use_multipart=False))

    def other_rates(self) -> list[int | None]:
        """Return the rates of all other living leases; None for one that can't be understood.

        Raises:
            StoreUnreachable, StoreDenied, CredentialError: the store can't be used, or hides the lease just written.
        """
        store = self.store()
        listed = {
            meta["path"].rpartition("/")[2]: meta
            for page in list_pages(store, self._uri(store), store.key(self.folder))
            for meta in page
        }
        own = listed.pop(self.name, None)
        if own is None:
            raise StoreUnreachable("the lease just written isn't listed", file=self._uri(store))
        living = [
            meta
            for meta in listed.values()
            if (own["last_modified"] - meta["last_modified"]).total_seconds() <= EXPIRY_SECONDS
        ]
        self._rates = {tag: rate for meta in living for tag, rate in self._read_rate(store, meta).items()}
        return list(self._rates.values())

    def release(self) -> None:
        """Take the lease away; where that fails it runs out."""
        import obstore

        self._released = True
        with suppress(SternaError):
            store = self.store()
            key = store.key(f"{self.folder}/{self.name}")
            call_store(store, self._uri(store), lambda: obstore.delete(store.client, key))

    def _read_rate(self, store: OpenStore, meta: dict[str, Any]) -> dict[tuple[str, Any], int | None]:
        """Return a lease's record, read again only where it changed; nothing where it is gone by now."""
        import obstore

        tag = (meta["path"], meta.get("e_tag"))
        if tag[1] is not None and tag in self._rates:
            return {tag: self._rates[tag]}
        try:
            body = call_store(store, self._uri(store), lambda: bytes(obstore.get(store.client, meta["path"]).bytes()))
            return {tag: LEASE.loads(body).rate}
        except ObjectMissing:
            return {}
        except ValueError:
            return {tag: None}

    def _uri(self, store: OpenStore) -> str:
        return f"{store.location.prefix}/{self.folder}/{self.name}"
