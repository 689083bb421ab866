"""A table's earlier metadata.json as clients of a region may know them: those that lie in the region.

A localized metadata.json has an empty log. Clients that clean up orphan files by themselves take what neither the
metadata nor its log names for garbage: they must not take what `main` names for that.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.folders import is_state_uri
from sterna.errors import BadUpdate, ObjectMissing, TableError
from sterna.serving.rest_catalog.main_metadata import uri_on_main


def with_served_log(
    metadata: Mapping[str, Any], mapping: RegionMapping, uri: str, read_json: Callable[[str], Mapping[str, Any]]
) -> dict[str, Any]:
    """Return a table's metadata with the log of `main`'s metadata.json, where that is in this region.

    Args:
        metadata: as clients of this region load it.
        mapping: of this region.
        uri: of the metadata.json in the replica.
        read_json: returns the content of a metadata.json.

    Raises:
        StoreUnreachable, StoreDenied: the region's own store can't be used.
    """
    try:
        main_uri = uri_on_main(mapping, uri)
        if main_uri == uri or not _is_here(mapping, main_uri):
            return dict(metadata)
        log = _served_log(mapping, main_uri, read_json(main_uri))
    except (BadUpdate, ObjectMissing, TableError):  # nothing of the table's rows depends on it
        return dict(metadata)
    return {**metadata, "metadata-log": log} if log else dict(metadata)


def _served_log(mapping: RegionMapping, main_uri: str, main_metadata: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the entries that are in this region.

    The last one is the metadata.json itself, unless the address wrote it: no client deletes in its folder.
    """
    entries = [entry for entry in main_metadata.get("metadata-log") or () if isinstance(entry, dict)]
    log = [dict(entry) for entry in entries if _is_here(mapping, str(entry.get("metadata-file")))]
    if not is_state_uri(main_uri):
        log.append({"timestamp-ms": main_metadata.get("last-updated-ms", 0), "metadata-file": main_uri})
    return log


def _is_here(mapping: RegionMapping, uri: str) -> bool:
    """Return whether a metadata.json that `main` names, or named, is in this region, outside of its replica."""
    try:
        return mapping.is_local(uri) and not mapping.below_replica_root(uri)
    except TableError:
        return False
