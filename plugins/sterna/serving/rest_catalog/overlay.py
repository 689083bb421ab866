"""The places that a region's clients write to, laid over a table's metadata when it is loaded, and never stored.

A table that was born in the region has `main`'s own places. Files of any other one go below the region's own location,
to `near/<table uuid>/`: engines follow `write.data.path` and `write.metadata.path`, and those that know neither write
below `location`. See "Write properties" of Iceberg's configuration.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sterna.config.mapping import Mapping as RegionMapping
from sterna.errors import BrokenMetadata, TableError

DATA_PATH = "write.data.path"
METADATA_PATH = "write.metadata.path"
GC_ENABLED = "gc.enabled"
NEAR_FOLDER = "near"
# Each would take a client's files elsewhere than the two paths say.
OTHER_PLACES = ("write.object-storage.path", "write.folder-storage.path", "write.location-provider.impl")
WRITE_PATHS = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
"""Properties that say where engines write a table's files."""


@dataclass(frozen=True)
class Places:
    """Where a region's clients write files of one table.

    Args:
        location: served as the table's own.
        data_path: served as `write.data.path`.
        metadata_path: served as `write.metadata.path`.
    """

    location: str
    data_path: str
    metadata_path: str


def near_places(near_root: str, table_uuid: str) -> Places:
    """Return the places of a table that was born elsewhere.

    Args:
        near_root: the region's own location, as the section `catalog` has it.
        table_uuid: the table's.

    Raises:
        BrokenMetadata: it is no UUID, and so can't be a folder's name.
    """
    try:
        folder = f"{near_root.rstrip('/')}/{NEAR_FOLDER}/{uuid.UUID(table_uuid)}"
    except ValueError:
        raise BrokenMetadata("the UUID in the metadata is none, and would be a folder's name") from None
    return Places(folder, f"{folder}/data", f"{folder}/metadata")


def region_places(mapping: RegionMapping, near_root: str, metadata: Mapping[str, Any]) -> Places | None:
    """Return where this region's clients write a table's files.

    Args:
        mapping: of this region.
        near_root: the region's own location, as the section `catalog` has it.
        metadata: the table's, as `main` or as the replica branch has it: both lead to the same places.

    Returns:
        The places; None for a table that was born in this region, with its location and all of its write paths: it has
        `main`'s own.
    """
    if all(_is_own(mapping, place) for place in _written_places(metadata)):
        return None
    return near_places(near_root, _folder_uuid(mapping, metadata, "table-uuid"))


def _folder_uuid(mapping: RegionMapping, metadata: Mapping[str, Any], field: str) -> str:
    """Return a table's or view's UUID; where it has none, as format version 1 allows, one made of its location."""
    try:
        return str(uuid.UUID(str(metadata.get(field))))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, _origin(mapping, str(metadata.get("location", "")))))


def _written_places(metadata: Mapping[str, Any]) -> Iterable[str]:
    properties = metadata.get("properties") or {}
    yield str(metadata.get("location", ""))
    yield from (str(properties[path]) for path in WRITE_PATHS if path in properties)


def _is_own(mapping: RegionMapping, place: str) -> bool:
    """Return whether the origin of a place is in this region."""
    try:
        return mapping.is_local(mapping.origin_uri(place.rstrip("/")))
    except TableError:
        return False


def _origin(mapping: RegionMapping, uri: str) -> str:
    """Return the origin of a URI, or the text itself where it has none."""
    try:
        return mapping.origin_uri(uri)
    except TableError:
        return uri


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


def with_own_places(metadata: Mapping[str, Any], mapping: RegionMapping) -> dict[str, Any]:
    """Return the localized metadata of a table that was born in this region with `main`'s own location and properties.

    Only what clients write by is taken back: what they read stays localized.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
    """
    properties = {
        name: _origin(mapping, value) if isinstance(value, str) else value
        for name, value in (metadata.get("properties") or {}).items()
    }
    return {**metadata, "location": _origin(mapping, str(metadata.get("location", ""))), "properties": properties}


def served_metadata(metadata: Mapping[str, Any], mapping: RegionMapping, near_root: str) -> dict[str, Any]:
    """Return the localized metadata of a table as clients of this region load it.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
        near_root: the region's own location, as the section `catalog` has it.
    """
    places = region_places(mapping, near_root, metadata)
    return overlay(with_own_places(metadata, mapping) if places is None else metadata, places)


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
    if _is_own(mapping, location):
        return {**metadata, "location": _origin(mapping, location)}
    return {**metadata, "location": near_places(near_root, _folder_uuid(mapping, metadata, "view-uuid")).location}
