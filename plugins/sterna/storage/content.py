"""The content of one object, requested again where a response breaks off."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

from sterna.config.registry.credential import describe_store
from sterna.errors import StoreUnreachable
from sterna.storage.client import RESUME_HINT, OpenStore
from sterna.storage.multipart import RangeReader
from sterna.storage.throttle import CHUNK_BYTES

_MAX_ATTEMPTS = 3  # requests for an object, or a part of it, whose content breaks off


def read_object(store: OpenStore, key: str, uri: str, timeout: float, validate_size: Callable[[int], None]) -> bytes:
    """Return an object's content, every byte of it.

    The client repeats a request that failed; an answer that breaks off only where it has an ETag and was not reset.

    Args:
        key: what it is called there.
        uri: what messages call it.
        timeout: seconds after which it is not requested again.
        validate_size: called with its size before it is read; raises when it is not to be read.

    Raises:
        StoreUnreachable: the content was incomplete, each time.
        BaseError: of the client; see `call_store`.
    """
    import obstore
    from obstore.exceptions import BaseError

    deadline = time.monotonic() + timeout
    for attempts_left in reversed(range(_MAX_ATTEMPTS)):
        response = obstore.get(store.client, key)
        size = response.meta["size"]
        validate_size(size)
        try:
            if store.throttle is None:
                body = bytes(response.bytes())
            else:
                parts = stream_content(store, key, uri, response)
                del response  # the parts have it, and let go of it
                body = b"".join(parts)
        except BaseError:
            if not attempts_left or time.monotonic() > deadline:
                raise
            continue
        if len(body) == size:
            return body
        if time.monotonic() > deadline:
            break
    raise StoreUnreachable(
        f"{describe_store(store.location)} sent {len(body)} of {size} bytes; {RESUME_HINT}", file=uri
    )


def stream_content(
    store: OpenStore, key: str, uri: str, response: Any, chunk_bytes: int = CHUNK_BYTES
) -> Iterator[bytes]:
    """Yield an object's content in parts, as fast as the store's location may be read.

    A request that waited for its turn, or one for much, would be over before its content is there.

    Args:
        key: what it is called there.
        uri: what messages call it.
        response: the store's answer, of which nothing was read.
        chunk_bytes: bytes of a part, at least.

    Raises:
        StoreUnreachable, StoreDenied, ObjectMissing, CredentialError: a part can't be read.
        BaseError: of the client; see `call_store`.
    """
    size, opened = response.meta["size"], time.monotonic()
    single_request = size <= (store.limits.single_request_bytes if store.throttle is None else CHUNK_BYTES)
    if single_request and store.throttle is not None:
        store.throttle(size)
    if single_request and time.monotonic() - opened <= store.limits.open_seconds:
        yield from map(bytes, response.stream(min_chunk_size=chunk_bytes))
        return
    parts = RangeReader(store, key, uri, response.meta["e_tag"])
    del response  # its connection, that is
    part_bytes = store.limits.part_bytes if store.throttle is None else CHUNK_BYTES
    for start in range(0, size, part_bytes):
        yield _read_part(parts, start, min(part_bytes, size - start), single_request)


def _read_part(parts: RangeReader, start: int, length: int, throttled: bool) -> bytes:
    for attempts_left in reversed(range(_MAX_ATTEMPTS)):
        try:
            body = parts.read(start, length, throttled=throttled)
        except StoreUnreachable:
            if not attempts_left:
                raise
            continue
        if len(body) == length:
            break
    return body  # too short: the caller compares it with the total
