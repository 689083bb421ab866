"""The places that a region's clients write to, laid over a table's metadata when it is loaded, and never stored.

A table that was born in the region has `main`'s own places. Any other one has those in `near`: engines follow
`write.data.path` and `write.metadata.path`, and those that know neither write below `location`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.near_places import (
    DATA_PATH,
    METADATA_PATH,
    Places,
    folder_uuid,
    is_own_place,
    near_places,
    origin_or_uri,
    region_places,
)

GC_ENABLED = "gc.enabled"
# Each would take a client's files elsewhere than the two paths say.
OTHER_PLACES = ("write.object-storage.path", "write.folder-storage.path", "write.location-provider.impl")


def overlay(metadata: Mapping[str, Any], places: Places | None) -> dict[str, Any]:
    """Return a table's metadata as clients of this region load it.

    `gc.enabled` is "false": files of a replica are deleted by its clean-up alone.

    Args:
        metadata: the table's; one that was born here has its own places already, see `with_own_places`.
        places: as `region_places` returned them.
    """
    properties = dict(metadata.get("properties") or {})
    location = metadata.get("location")
    if places is not None:
        location = places.location
        for name in OTHER_PLACES:
            properties.pop(name, None)
        properties |= {DATA_PATH: places.data_path, METADATA_PATH: places.metadata_path}
    properties[GC_ENABLED] = "false"
    return {**metadata, "location": location, "properties": properties}


def with_own_places(metadata: Mapping[str, Any], mapping: RegionMapping, uri: str = "") -> dict[str, Any]:
    """Return the localized metadata of a table that was born in this region with `main`'s own location and properties.

    Only what clients write by is taken back: what they read stays localized. `main`'s metadata.json is named as an
    earlier one: in a folder that is served as the table's location, clients' clean-ups delete what isn't named.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
        uri: where that is; "": nowhere yet.
    """
    properties = {
        name: origin_or_uri(mapping, value) if isinstance(value, str) else value
        for name, value in (metadata.get("properties") or {}).items()
    }
    location = origin_or_uri(mapping, str(metadata.get("location", "")))
    return {**metadata, **_log(metadata, mapping, uri), "location": location, "properties": properties}


def _log(metadata: Mapping[str, Any], mapping: RegionMapping, uri: str) -> dict[str, Any]:
    """Return a metadata-log that names `main`'s metadata.json, where that is in this region."""
    if not mapping.below_replica_root(uri) or not is_own_place(mapping, uri):
        return {}
    main_uri = mapping.metadata_origin(uri)
    return {"metadata-log": [{"timestamp-ms": metadata.get("last-updated-ms", 0), "metadata-file": main_uri}]}


def served_metadata(
    metadata: Mapping[str, Any], mapping: RegionMapping, near_root: str, uri: str = ""
) -> dict[str, Any]:
    """Return the localized metadata of a table as clients of this region load it.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
        near_root: the region's own location, as the section `catalog` has it.
        uri: where the metadata is; "": nowhere yet.
    """
    places = region_places(mapping, near_root, metadata)
    return overlay(with_own_places(metadata, mapping, uri) if places is None else metadata, places)


def strip_overlay(
    updates: Sequence[Mapping[str, Any]], places: Places | None, main_metadata: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return a commit's updates without what only the overlay put there: `main` keeps its own.

    `set-location` equal to what was served is dropped, since each REPLACE TABLE sends it; any other stays.

    Args:
        updates: as the client sent them.
        places: as `region_places` returned them for `main_metadata`.
        main_metadata: the table's on `main`; empty for a table that is made.
    """
    served = places.location if places is not None else main_metadata.get("location")
    overlaid = overlaid_properties(places)
    return [stripped for update in updates if (stripped := _strip_update(update, overlaid, served)) is not None]


def overlaid_properties(places: Places | None) -> frozenset[str]:
    """Return the names of the properties whose served values aren't `main`'s.

    Args:
        places: as `region_places` returned them.
    """
    return frozenset({GC_ENABLED} if places is None else {GC_ENABLED, DATA_PATH, METADATA_PATH})


def _strip_update(
    update: Mapping[str, Any], overlaid: frozenset[str], served_location: str | None
) -> dict[str, Any] | None:
    """Return an update without overlaid parts, None where nothing is left of it."""
    match update.get("action"):
        case "set-location" if served_location is not None and _same_folder(update.get("location"), served_location):
            return None
        case "set-properties" if isinstance(update.get("updates"), dict):
            properties = {name: value for name, value in update["updates"].items() if name not in overlaid}
            return {**update, "updates": properties} if properties or not update["updates"] else None
        case "remove-properties" if isinstance(update.get("removals"), list):
            removals = [name for name in update["removals"] if name not in overlaid]
            return {**update, "removals": removals} if removals or not update["removals"] else None
    return dict(update)


def _same_folder(location: object, other: str) -> bool:
    return isinstance(location, str) and location.rstrip("/") == other.rstrip("/")


def served_view_metadata(metadata: Mapping[str, Any], mapping: RegionMapping, near_root: str) -> dict[str, Any]:
    """Return the localized metadata of a view as clients of this region load it: its location is the region's own.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
        near_root: the region's own location, as the section `catalog` has it.
    """
    location = str(metadata.get("location", ""))
    if is_own_place(mapping, location):
        return {**metadata, "location": origin_or_uri(mapping, location)}
    return {**metadata, "location": near_places(near_root, folder_uuid(mapping, metadata, "view-uuid")).location}
