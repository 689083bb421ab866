"""Hashing objects of any size without having them in memory."""

from __future__ import annotations

import hashlib

from sterna.edges.stores.content import paced
from sterna.edges.stores.objects import Objects
from sterna.edges.stores.open_store import call_store
from sterna.errors import StoreUnreachable

_CHUNK = 8 << 20


def sha256_of(objects: Objects, uri: str) -> tuple[int, str]:
    """Return an object's size and the SHA-256 of its content.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`.
    """
    import obstore

    store, key = objects._find(uri)

    def stream() -> tuple[int, str]:
        result = obstore.get(store.client, key)
        hashed, size = hashlib.sha256(), 0
        for chunk in paced(store, result, _CHUNK):
            hashed.update(chunk)
            size += len(chunk)
        if size != result.meta["size"]:
            raise StoreUnreachable(f"{size} of {result.meta['size']} bytes came", file=uri)
        return size, hashed.hexdigest()

    return call_store(store, uri, stream)
