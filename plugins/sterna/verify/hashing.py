"""Hashing objects of any size without having them in memory."""

from __future__ import annotations

import hashlib

from sterna.edges.stores.content import content
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
        expected, hashed, size = result.meta["size"], hashlib.sha256(), 0
        chunks = content(store, key, uri, result, _CHUNK)
        del result  # the chunks have it, and let go of it
        for chunk in chunks:
            hashed.update(chunk)
            size += len(chunk)
        if size != expected:
            raise StoreUnreachable(f"{size} of {expected} bytes came", file=uri)
        return size, hashed.hexdigest()

    return call_store(store, uri, stream)
