"""Objects that are made once, and files that are too large for memory."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.errors import ObjectMissing, StoreUnreachable
from sterna.storage.client import OpenStore, call_store, head_size, put_new, validate_key
from sterna.storage.objects import Objects

if TYPE_CHECKING:
    from obstore import UpdateVersion

_PART_BYTES = 8 << 20
_MAX_ATTEMPTS = 20


def create(objects: Objects, uri: str, data: bytes, *, assume_absent: bool = False) -> bool:
    """Write an object unless one is there already; return whether it is this one.

    Args:
        assume_absent: there is no other writer there.

    Raises:
        StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`.
    """
    store, key = _locate(objects, uri)
    # Checked first, since some stores (`rclone serve s3`) treat a conditional request as a plain one.
    return (assume_absent or head_size(store, key, uri) is None) and put_new(store, key, uri, data)


def update(objects: Objects, uri: str, change: Callable[[bytes | None], bytes | None]) -> bool:
    """Write an object based on its present content, by compare-and-swap; return whether it was written.

    A store without conditional requests has the comparison alone.

    Args:
        uri: the object, a small one.
        change: returns its new content by the present one, which is None where it is absent; None: it stays.

    Raises:
        StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`; others were first each time.
    """
    store, key = _locate(objects, uri)
    for _ in range(_MAX_ATTEMPTS):
        current, version = _read_versioned(store, key, uri)
        body = change(current)
        if body is None:
            return False
        if create(objects, uri, body) if current is None else _compare_and_swap(store, key, uri, body, version):
            return True
    raise StoreUnreachable("the object was changed by others each time", file=uri)


def _read_versioned(store: OpenStore, key: str, uri: str) -> tuple[bytes | None, UpdateVersion]:
    """Return an object, and what names its version: Google's stores compare the version, the others the ETag."""
    import obstore

    def get() -> tuple[bytes, UpdateVersion]:
        response = obstore.get(store.client, key)
        version: UpdateVersion = {}
        if (tag := response.meta.get("e_tag")) is not None:
            version["e_tag"] = tag
        if (version_id := response.meta.get("version")) is not None:
            version["version"] = version_id
        return bytes(response.bytes()), version

    try:
        return call_store(store, uri, get)
    except ObjectMissing:
        return None, {}


def _compare_and_swap(store: OpenStore, key: str, uri: str, data: bytes, version: UpdateVersion) -> bool:
    import obstore
    from obstore.exceptions import AlreadyExistsError, NotSupportedError, PreconditionError

    def put() -> bool:
        try:
            if version:
                obstore.put(store.client, key, data, mode=version, use_multipart=False)
                return True
        except (PreconditionError, AlreadyExistsError, FileNotFoundError):
            return False
        except (NotSupportedError, NotImplementedError):
            pass  # a disk
        obstore.put(store.client, key, data, use_multipart=False)
        return True

    return call_store(store, uri, put)


def write_file(objects: Objects, uri: str, path: Path) -> None:
    """Write a file as an object, in parts where it is large; over what is there.

    The caller ensures that any object at the URI is the same.

    Raises:
        StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`.
    """
    import obstore

    store, key = _locate(objects, uri)
    if path.stat().st_size <= _PART_BYTES:
        data = path.read_bytes()
        call_store(store, uri, lambda: obstore.put(store.client, key, data, use_multipart=False))
    else:
        call_store(store, uri, lambda: obstore.put(store.client, key, path, chunk_size=_PART_BYTES))


def read_file(objects: Objects, uri: str, path: Path, expected: tuple[int, datetime] | None = None) -> str:
    """Read an object into a file, in parts; return its SHA-256, in hex, or "" where it isn't the one that was listed.

    Args:
        path: the file, which is overwritten.
        expected: the size and time of the object that is meant; None: any object.

    Raises:
        ObjectMissing, StoreUnreachable, StoreDenied, UnregisteredUri, UnsafeUri: as `Objects.read`.
    """
    import obstore

    store, key = _locate(objects, uri)

    def get() -> str:
        digest, response = hashlib.sha256(), obstore.get(store.client, key)
        if expected is not None and _differs(response.meta["size"], response.meta["last_modified"], *expected):
            return ""
        with path.open("wb") as file:
            for part in response.stream(min_chunk_size=_PART_BYTES):
                file.write(part)
                digest.update(part)
        if path.stat().st_size != response.meta["size"]:
            raise OSError(f"{path.stat().st_size} of {response.meta['size']} bytes came")
        return digest.hexdigest()

    return call_store(store, uri, get)


def _differs(size: int, changed: datetime, listed_size: int, listed_time: datetime) -> bool:
    # A listing may have a time more exact than a response's header.
    return size != listed_size or abs(changed - listed_time) > timedelta(seconds=1)


def _locate(objects: Objects, uri: str) -> tuple[OpenStore, str]:
    place = objects.mapping.locate(uri)
    validate_key(place, uri)
    store = objects.open(place.location)
    return store, store.key(place.path)
