"""Finding the sizes of many keys by listing, where that takes fewer requests than a HEAD each."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator

from sterna.errors import UnsafeUri
from sterna.storage.client import PAGE_SIZE, OpenStore, call_store, list_pages

# A listing is given up when it took more requests than this share of the HEADs that it replaces.
_HEADS_PER_PAGE = 20
_MIN_RUN_KEYS = 10
_PLAIN_KEY = re.compile(r"[A-Za-z0-9_=./-]+")


def absent_keys(store: OpenStore, keys: Iterable[str]) -> list[str]:
    """Return those keys of a folder store that can't be there, for the folders that they would be in don't exist.

    A first seed asks for all files of a table: that is one system call a folder, where a client's HEAD takes some 60 µs
    of a core for each file.
    """
    if not store.location.store_type.is_folder:
        return []
    plain_keys = [key for key in keys if _PLAIN_KEY.fullmatch(key)]  # others may have another name on disk
    missing = {folder for folder in {key.rpartition("/")[0] for key in plain_keys} if _is_missing(f"/{folder}")}
    return [key for key in plain_keys if key.rpartition("/")[0] in missing]


def _is_missing(folder: str) -> bool:
    try:
        os.stat(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False  # the client says what is wrong
    return False


def key_runs(store: OpenStore, keys: list[str]) -> Iterator[list[str]]:
    """Cut a store's sorted keys into runs that are worth listing."""
    if store.location.store_type.is_folder:
        return  # a file's size is one system call
    step = PAGE_SIZE if store.location.store_type.has_seekable_listings else max(len(keys), 1)
    yield from (
        keys[start : start + step]
        for start in range(0, len(keys), step)
        if len(keys[start : start + step]) >= _MIN_RUN_KEYS
    )


def list_run(store: OpenStore, keys: list[str]) -> dict[str, int | None]:
    """Return the sizes of those keys of a run that a listing passed; None for those that it proves missing."""
    folder = os.path.commonprefix([keys[0], keys[-1]]).rpartition("/")[0]  # noqa: RUF071 - cut at the last slash right here
    # Any string just below the first key will do; obstore takes no path that ends in a "." segment.
    offset = keys[0][:-1].rstrip("./") if store.location.store_type.has_seekable_listings else ""
    pages = list_pages(store, f"{store.location.prefix}/…", folder, offset)
    sizes: dict[str, int] = {}
    last = ""
    for _ in range(max(1, len(keys) // _HEADS_PER_PAGE)):
        try:
            page = next(pages, None)
        except UnsafeUri:
            return {}  # a foreign key that is no valid path: the listing ends there, and shows nothing of ours
        names = [meta["path"] for meta in page or ()]
        if names != sorted(names) or (names and names[0] < last):
            return {}  # not in the order of keys (S3 directory buckets): absence can't be concluded
        sizes.update((meta["path"], meta["size"]) for meta in page or ())
        if len(names) < PAGE_SIZE:
            return {key: sizes.get(key) for key in keys if key in sizes or _is_between(offset, key, key)}
        last = names[-1]
        if last >= keys[-1]:
            break
    return {key: sizes.get(key) for key in keys if key in sizes or _is_between(offset, key, last)}


def _is_between(offset: str, key: str, last: str) -> bool:
    """Return whether a listing from one key to another had to show a key, in either order that stores have.

    Azure's hierarchical namespaces, and servers that walk folders, list what is in `a/` before `a-b/`.
    """
    return offset <= key <= last and offset.split("/") <= key.split("/") <= last.split("/")


def list_folders(store: OpenStore, uri: str, prefix: str) -> list[str]:
    """Return the names of the folders right below one.

    Args:
        uri: the folder, for errors.
        prefix: the prefix of its objects' keys.
    """
    import obstore

    listing = call_store(store, uri, lambda: obstore.list_with_delimiter(store.client, prefix or None))
    return sorted(name.rstrip("/").rpartition("/")[2] for name in listing["common_prefixes"])
