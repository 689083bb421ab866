"""The whole content of one object, asked for again where an answer breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from sterna.edges.stores.open_store import LATER, OpenStore
from sterna.edges.stores.pace import CHUNK
from sterna.errors import StoreUnreachable
from sterna.registry.credential import address_of

_BODIES = 3  # times that an object is asked for whose content breaks off


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
            data = bytes(result.bytes()) if store.pace is None else b"".join(paced(store, result))
        except BaseError:
            if not left or time.monotonic() > end:
                raise
            continue
        if len(data) == size:
            return data
        if time.monotonic() > end:
            break
    raise StoreUnreachable(f"{address_of(store.location)} sent {len(data)} of {size} bytes; {LATER}", file=uri)


def paced(store: OpenStore, result: Any, chunk: int = CHUNK) -> Iterator[bytes]:
    """Yield an answer's content in parts, as fast as the store's location may be read."""
    if store.pace is None:
        yield from map(bytes, result.stream(min_chunk_size=chunk))
        return
    ahead = min(result.meta["size"], CHUNK)
    store.pace(ahead)
    for part in result.stream(min_chunk_size=min(chunk, CHUNK)):
        yield bytes(part)
        store.pace(max(0, len(part) - ahead))
        ahead = max(0, ahead - len(part))
