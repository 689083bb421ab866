"""The files that a client wrote for its commit: they lie in the table's places of this region, and are read once."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from sterna.config.near_places import WRITE_PATHS, Places
from sterna.config.registry.folders import is_state_uri
from sterna.errors import BadUpdate, ForeignFile, ObjectMissing, TableError
from sterna.storage.objects import Objects

_KEPT_BYTES: Final = 32 << 20


@contextmanager
def client_fault(uri: str) -> Iterator[None]:
    """Turn faults of a client's file into a refusal of its commit that names the file.

    Raises:
        BadUpdate: the file is missing, broken, too large, or of a kind that isn't taken.
    """
    try:
        yield
    except ObjectMissing:
        raise BadUpdate("the commit names a file that isn't there", file=uri) from None
    except TableError as error:
        raise BadUpdate(error.message, file=error.file or uri, hint=error.hint) from error


def write_roots(
    metadata: Mapping[str, Any], places: Places | None, near_folders: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the folders below which a client may have written files of a table.

    Args:
        metadata: the table's on `main`, without what a commit changes in it: else a client could name any folder.
        places: as they are served; None: `main`'s own.
        near_folders: in which the region's writers put the table's files, or did: as `accepted_folders` returned them.
    """
    if places is not None:
        roots: list[Any] = [places.location, places.data_path, places.metadata_path]
    else:
        properties = metadata.get("properties") or {}
        roots = [metadata.get("location"), *(properties.get(name) for name in WRITE_PATHS)]
    roots += near_folders
    return tuple(dict.fromkeys(root.rstrip("/") for root in roots if isinstance(root, str) and root.rstrip("/")))


class ClientFiles:
    """Reads a client's files, from the table's places alone.

    A file is the same whenever it is read: what changes in between is refused.

    Args:
        roots: folders below which the client may have written.
    """

    def __init__(self, objects: Objects, roots: Iterable[str]) -> None:
        self._objects = objects
        self._roots = tuple(root.rstrip("/") for root in roots)
        self._kept: dict[str, bytes] = {}
        self._kept_bytes = 0
        self._digests: dict[str, bytes] = {}

    def require_place(self, uri: str) -> None:
        """Require that a file lies where the table's clients write.

        Raises:
            ForeignFile: it doesn't, or its name is spelled so that it could be another file.
        """
        mapping = self._objects.mapping
        if mapping.below_replica_root(uri):
            # Where DuckDB's deletes are: beside the data file, wherever the table's files are to be written.
            raise ForeignFile(
                "new files below a replica root are no client's",
                file=uri,
                hint="an engine that writes deletes beside data files changes rows in the region that wrote them",
            )
        reason = "neither a file of the table's on `main` nor one in the table's places of this region"
        if not any(uri.startswith(f"{root}/") for root in self._roots):
            raise ForeignFile(reason, file=uri)
        try:
            place = mapping.locate(uri)
        except TableError as error:
            raise ForeignFile(error.message, file=uri) from error
        if place.alias or not place.path or place.location.region != mapping.region.name:
            raise ForeignFile(reason, file=uri)
        if is_state_uri(uri):
            raise ForeignFile("files in sterna's own folder are no client's", file=uri)

    def read(self, uri: str) -> bytes:
        """Return a file's content.

        Raises:
            BadUpdate: it isn't there, is larger than the region's limit, or changed since it was read first.
            StoreUnreachable, StoreDenied: it can't be read.
        """
        if uri in self._kept:
            return self._kept[uri]
        with client_fault(uri):
            data = self._objects.read(uri)
        digest = hashlib.sha256(data).digest()
        if self._digests.setdefault(uri, digest) != digest:
            raise BadUpdate("a file of the commit changes while it is committed", file=uri)
        if self._kept_bytes + len(data) <= _KEPT_BYTES:
            self._kept[uri] = data
            self._kept_bytes += len(data)
        return data

    def require_present(self, sizes: Mapping[str, Any]) -> None:
        """Require that files are there with their sizes.

        Args:
            sizes: by URI, what the client says of a file.

        Raises:
            BadUpdate: one isn't there, or has another size.
            StoreUnreachable, StoreDenied: that can't be found out.
        """
        present = self._objects.sizes(sizes)
        for uri, size in sizes.items():
            if present[uri] is None:
                raise BadUpdate("the commit adds a file that isn't there", file=uri)
            if present[uri] != size:
                raise BadUpdate(f"the file has {present[uri]} bytes, the commit says {size}", file=uri)
