"""The places that a region's clients write to, laid over a table's metadata when it is loaded, and never stored.

A table that was born in the region has `main`'s own places, unless another region has written to it. Any other one has
those in `near`: engines follow `write.data.path` and `write.metadata.path`, and those that know neither write below
`location`.
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
    table_near_places,
)
from sterna.errors import TableError

GC_ENABLED = "gc.enabled"
DELETE_AFTER_COMMIT = "write.metadata.delete-after-commit.enabled"
# Each would take a client's files elsewhere than the two paths say.
OTHER_PLACES = ("write.object-storage.path", "write.folder-storage.path", "write.location-provider.impl")


def overlay(metadata: Mapping[str, Any], places: Places | None) -> dict[str, Any]:
    """Return a table's metadata as clients of this region load it.

    `gc.enabled` is "false": files of a replica are deleted by its clean-up alone. Clients delete no earlier metadata
    files after their commits, either: the log that they get leaves out those that are elsewhere.

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
    if DELETE_AFTER_COMMIT in properties:
        properties[DELETE_AFTER_COMMIT] = "false"
    return {**metadata, "location": location, "properties": properties}


def with_own_places(metadata: Mapping[str, Any], mapping: RegionMapping) -> dict[str, Any]:
    """Return the localized metadata of a table that was born in this region with `main`'s own location and properties.

    Only what clients write by is taken back: what they read stays localized.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
    """
    properties = {
        name: origin_or_uri(mapping, value) if isinstance(value, str) else value
        for name, value in (metadata.get("properties") or {}).items()
    }
    location = origin_or_uri(mapping, str(metadata.get("location", "")))
    return {**metadata, "location": location, "properties": properties}


def has_localized_lists(mapping: RegionMapping, metadata: Mapping[str, Any]) -> bool:
    """Return whether some of a table's manifest lists are served by other names than `main` has for them.

    Then the table's location is no place for clients: nothing that they read names the files that `main` has there, and
    clean-up of their own would take these for garbage.

    Args:
        mapping: of this region.
        metadata: the table's, as the replica branch has it.
    """
    lists = (snapshot.get("manifest-list") for snapshot in metadata.get("snapshots") or ())
    return any(isinstance(uri, str) and mapping.below_replica_root(uri) for uri in lists)


def _may_be_everywhere(mapping: RegionMapping, uri: str) -> bool:
    """Return whether residency rules let all regions have what is written to a folder."""
    try:
        for region in mapping.registry.regions:
            RegionMapping(mapping.registry, region).require_resident(uri)
    except TableError:
        return False
    return True


def served_metadata(metadata: Mapping[str, Any], mapping: RegionMapping, near_root: str) -> dict[str, Any]:
    """Return the localized metadata of a table as clients of this region load it.

    Args:
        metadata: as the replica branch has it.
        mapping: of this region.
        near_root: the region's own location, as the section `catalog` has it.
    """
    places = region_places(mapping, near_root, metadata)
    if places is not None:
        return overlay(metadata, places)
    own, near = with_own_places(metadata, mapping), table_near_places(mapping, near_root, metadata)
    # Where a region may not have what is written near, that would hold the table there.
    is_near = has_localized_lists(mapping, metadata) and _may_be_everywhere(mapping, near.location)
    return overlay(own, near if is_near else None)


def strip_overlay(
    updates: Sequence[Mapping[str, Any]],
    places: Places | None,
    main_metadata: Mapping[str, Any],
    near: Sequence[Places] = (),
) -> list[dict[str, Any]]:
    """Return a commit's updates without what only the overlay put there: `main` keeps its own.

    `set-location` equal to what was served is dropped, since each REPLACE TABLE sends it; any other stays.

    Args:
        updates: as the client sent them.
        places: as `region_places` returned them for `main_metadata`.
        main_metadata: the table's on `main`; empty for a table that is made.
        near: as `table_near_places` returned them, by each location that the address has, or had: the table may have
            been served with them.
    """
    served = [place.location for place in (places, *near) if place is not None]
    if places is None and main_metadata:
        served.append(str(main_metadata.get("location")))
    stripped = (_strip_update(update, overlaid_properties(places), served, near) for update in updates)
    return [update for update in stripped if update is not None]


def overlaid_properties(places: Places | None) -> frozenset[str]:
    """Return the names of the properties whose served values aren't `main`'s.

    Args:
        places: as `region_places` returned them.
    """
    return frozenset({GC_ENABLED} if places is None else {GC_ENABLED, DATA_PATH, METADATA_PATH})


def _strip_update(
    update: Mapping[str, Any], overlaid: frozenset[str], locations: Sequence[str], near: Sequence[Places]
) -> dict[str, Any] | None:
    """Return an update without overlaid parts, None where nothing is left of it."""
    match update.get("action"):
        case "set-location" if any(_same_folder(update.get("location"), location) for location in locations):
            return None
        case "set-properties" if isinstance(update.get("updates"), dict):
            own = {name: value for name, value in update["updates"].items() if name not in overlaid}
            properties = {name: value for name, value in own.items() if not _is_near_path(name, value, near)}
            return {**update, "updates": properties} if properties or not update["updates"] else None
        case "remove-properties" if isinstance(update.get("removals"), list):
            removals = [name for name in update["removals"] if not isinstance(name, str) or name not in overlaid]
            return {**update, "removals": removals} if removals or not update["removals"] else None
    return dict(update)


def _is_near_path(name: str, value: object, near: Sequence[Places]) -> bool:
    """Return whether a property is a write path as it was served."""
    return any((name, value) in ((DATA_PATH, one.data_path), (METADATA_PATH, one.metadata_path)) for one in near)


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
