"""Hashing objects of any size without having them in memory."""

from __future__ import annotations

import hashlib

from sterna.errors import StoreUnreachable
from sterna.storage.client import call_store
from sterna.storage.content import stream_content
from sterna.storage.objects import Objects

_CHUNK_BYTES = 8 << 20


def sha256_of(objects: Objects, uri: str) -> tuple[int, str]:
    """Return an object's size and the SHA-256 of its content.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`.
    """
    import obstore

    store, key = objects._locate(uri)

    def hash_stream() -> tuple[int, str]:
        result = obstore.get(store.client, key)
        expected, hasher, size = result.meta["size"], hashlib.sha256(), 0
        chunks = stream_content(store, key, uri, result, _CHUNK_BYTES)
        del result  # the chunks have it, and let go of it
        for chunk in chunks:
            hasher.update(chunk)
            size += len(chunk)
        if size != expected:
            raise StoreUnreachable(f"{size} of {expected} bytes came", file=uri)
        return size, hasher.hexdigest()

    return call_store(store, uri, hash_stream)
