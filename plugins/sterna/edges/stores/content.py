"""The whole content of one object, asked for again where an answer breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable

from sterna.edges.stores.open_store import LATER, OpenStore
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
            data = bytes(result.bytes())
        except BaseError:
            if not left or time.monotonic() > end:
                raise
            continue
        if len(data) == size:
            return data
        if time.monotonic() > end:
            break
    raise StoreUnreachable(f"{address_of(store.location)} sent {len(data)} of {size} bytes; {LATER}", file=uri)
