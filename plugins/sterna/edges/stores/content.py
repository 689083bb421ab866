"""The whole content of one object, asked for again where an answer breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from sterna.edges.stores.open_store import LATER, OpenStore
from sterna.edges.stores.pace import CHUNK
from sterna.edges.stores.parts import Parts
from sterna.errors import StoreUnreachable
from sterna.registry.credential import address_of

_BODIES = 3  # times that an object, or a part of it, is asked for whose content breaks off


def read_whole(store: OpenStore, key: str, uri: str, timeout: float, refuse: Callable[[int], None]) -> bytes:
    """Return an object's content, every byte of it.

    The client repeats a request that failed; an answer that breaks off only where it has an ETag and was not reset.

    Args:
        store: where it is.
        key: what it is called there.
        uri: what messages call it.
        timeout: seconds after which it is not asked for again.
        refuse: called with its size before it is read; raises when it is not to be read.

    Raises:
        StoreUnreachable: less than the whole came, each time.
        BaseError: of the client; see `call_store`.
    """
    import obstore
    from obstore.exceptions import BaseError

    end = time.monotonic() + timeout
    for left in reversed(range(_BODIES)):
        result = obstore.get(store.client, key)
        size = result.meta["size"]
        refuse(size)
        try:
            if store.pace is None:
                data = bytes(result.bytes())
            else:
                parts = content(store, key, uri, result)
                del result  # the parts have it, and let go of it
                data = b"".join(parts)
        except BaseError:
            if not left or time.monotonic() > end:
                raise
            continue
        if len(data) == size:
            return data
        if time.monotonic() > end:
            break
    raise StoreUnreachable(f"{address_of(store.location)} sent {len(data)} of {size} bytes; {LATER}", file=uri)


def content(store: OpenStore, key: str, uri: str, result: Any, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield an object's content in parts, as fast as the store's location may be read.

    A request that waited for its turn, or one for much, would be over before its content is there.

    Args:
        store: where it is.
        key: what it is called there.
        uri: what messages call it.
        result: the store's answer, of which nothing was read.
        chunk: bytes of a part, at least.

    Raises:
        StoreUnreachable, StoreDenied, ObjectMissing, CredentialError: a part can't be read.
        BaseError: of the client; see `call_store`.
    """
    size, opened = result.meta["size"], time.monotonic()
    at_once = size <= (store.limits.at_once_bytes if store.pace is None else CHUNK)
    if at_once and store.pace is not None:
        store.pace(size)
    if at_once and time.monotonic() - opened <= store.limits.open_seconds:
        yield from map(bytes, result.stream(min_chunk_size=chunk))
        return
    parts = Parts(store, key, uri, result.meta["e_tag"])
    del result  # its connection, that is
    most = store.limits.part_bytes if store.pace is None else CHUNK
    for start in range(0, size, most):
        yield _part(parts, start, min(most, size - start), at_once)


def _part(parts: Parts, start: int, length: int, paid: bool) -> bytes:
    for left in reversed(range(_BODIES)):
        try:
            data = parts.read(start, length, paid=paid)
        except StoreUnreachable:
            if not left:
                raise
            continue
        if len(data) == length:
            break
    return data  # too short: whoever asked sees that by the whole
