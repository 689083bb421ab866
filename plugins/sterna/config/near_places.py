"""The places of a region's writers: where they put files of tables that were born in another region.

A table that was born in the region has `main`'s own places. Files of any other one go below a location of the region's
own, to `near/<table uuid>/`: those of engines, by the region's Iceberg REST address, and those of ingestion. The
address's own files of a table are beside it, in a folder that no client may write to.

Source: "Write properties" of Iceberg's configuration.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable
from collections.abc import Mapping as AbstractMapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from sterna.config.mapping import Mapping
from sterna.config.registry.folders import state_root
from sterna.errors import BrokenMetadata, TableError

if TYPE_CHECKING:
    from sterna.config.sections.catalog import CatalogRegion
    from sterna.config.sections.model import Services

NEAR_FOLDER: Final = "near"
_ADDRESS_FOLDER: Final = "rest"
DATA_PATH: Final = "write.data.path"
METADATA_PATH: Final = "write.metadata.path"
WRITE_PATHS: Final = (DATA_PATH, METADATA_PATH, "write.object-storage.path", "write.folder-storage.path")
"""Properties that say where engines write a table's files."""
# Folders of ingestion were once named by the table's key and the first digits of its UUID.
_EARLIER_UUID_LENGTH: Final = 8
_UUID: Final = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_EARLIER_NAME: Final = re.compile(rf"\w+(?:\.\w+)+-[0-9a-f]{{{_EARLIER_UUID_LENGTH}}}", re.ASCII)


@dataclass(frozen=True)
class Places:
    """Where a region's writers put files of one table.

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
        near_root: the region's own location, below which the folder is.
        table_uuid: the table's.

    Raises:
        BrokenMetadata: it is no UUID, and so can't be a folder's name.
    """
    try:
        folder = f"{near_folder(near_root)}/{uuid.UUID(table_uuid)}"
    except ValueError:
        raise BrokenMetadata("the UUID in the metadata is none, and would be a folder's name") from None
    return Places(folder, f"{folder}/data", f"{folder}/metadata")


def near_folder(near_root: str) -> str:
    """Return the folder below which tables that were born elsewhere have a folder each.

    Args:
        near_root: the region's own location.
    """
    return f"{near_root.rstrip('/')}/{NEAR_FOLDER}"


def address_root(near_root: str) -> str:
    """Return the folder below which the region's REST address writes, a folder for each table.

    Args:
        near_root: the region's own location.
    """
    return f"{state_root(near_root.rstrip('/'))}{_ADDRESS_FOLDER}"


def address_settings(mapping: Mapping, services: Services) -> CatalogRegion | None:
    """Return the settings of the region's REST address, None where it has none.

    Args:
        mapping: of this region.
        services: the services file.
    """
    return services.catalog.regions.get(mapping.region.name) if services.catalog is not None else None


def address_locations(mapping: Mapping, services: Services) -> tuple[str, ...]:
    """Return where the region's REST address has its folders or had them, the present location first.

    Args:
        mapping: of this region.
        services: the services file.
    """
    settings = address_settings(mapping, services)
    return (settings.location, *settings.earlier_locations) if settings is not None else ()


def near_roots(mapping: Mapping, services: Services) -> tuple[str, ...]:
    """Return the region's own locations below which `near` is or was, the one that new files go to first.

    Args:
        mapping: of this region.
        services: the services file.
    """
    roots = list(address_locations(mapping, services))
    settings = services.ingest.regions.get(mapping.region.name) if services.ingest is not None else None
    if settings is not None:
        with suppress(TableError):  # an inbox in no location is refused where it is opened
            roots.append(mapping.locate(f"{settings.inbox}/x").location.prefix)
    return tuple(dict.fromkeys(roots))


def region_places(mapping: Mapping, near_root: str, metadata: AbstractMapping[str, Any]) -> Places | None:
    """Return where this region's writers put a table's files.

    Args:
        mapping: of this region.
        near_root: the region's own location.
        metadata: the table's, as `main` or as the replica branch has it: both lead to the same places.

    Returns:
        The places; None for a table that was born in this region, with its location and all of its write paths: it has
        `main`'s own.
    """
    if all(is_own_place(mapping, place) for place in written_places(metadata)):
        return None
    return table_near_places(mapping, near_root, metadata)


def table_near_places(mapping: Mapping, near_root: str, metadata: AbstractMapping[str, Any]) -> Places:
    """Return the places in `near` that are a table's, wherever it was born.

    Args:
        mapping: of this region.
        near_root: the region's own location.
        metadata: the table's, as `main` or as the replica branch has it.
    """
    return near_places(near_root, folder_uuid(mapping, metadata, "table-uuid"))


def regional_data_path(mapping: Mapping, near_root: str, main_metadata: AbstractMapping[str, Any]) -> str:
    """Return where ingestion puts a table's data files in this region, "" where the table's own place is here.

    Args:
        mapping: of this region.
        near_root: the region's own location.
        main_metadata: the table's, as `main` has it.

    Raises:
        UnregisteredUri, UnsafeUri: the table's own place is in no location of the registry.
    """
    properties = main_metadata.get("properties") or {}
    mapping.locate(str(properties.get(DATA_PATH) or main_metadata["location"]).rstrip("/"))
    places = region_places(mapping, near_root, main_metadata)
    # After a promotion with tables the table's own place is below a replica root, where no writer puts anything.
    if places is None and any(map(mapping.below_replica_root, written_places(main_metadata))):
        places = table_near_places(mapping, near_root, main_metadata)
    return places.data_path if places is not None else ""


def accepted_folders(
    mapping: Mapping, near_roots: Collection[str], metadata: AbstractMapping[str, Any], table: str
) -> tuple[str, ...]:
    """Return all folders in which this region's writers may have put a table's files, beside its own location.

    A job writes to the places that it was started with, whatever is served by now.

    Args:
        mapping: of this region.
        near_roots: the region's own locations, earlier ones too.
        metadata: the table's.
        table: its dotted key.
    """
    folder = folder_uuid(mapping, metadata, "table-uuid")
    names = (folder, f"{table}-{folder[:_EARLIER_UUID_LENGTH]}")
    return tuple(f"{near_folder(root)}/{name}" for root in near_roots for name in names)


def is_writers_place(uri: str, near_roots: Iterable[str]) -> bool:
    """Return whether a file is in some table's folder in `near`, or in the address's own folder of a table.

    Args:
        near_roots: the region's own locations, as the URI spells them.
    """
    for root in near_roots:
        for parent, names in ((near_folder(root), (_UUID, _EARLIER_NAME)), (address_root(root), (_UUID,))):
            if uri.startswith(f"{parent}/"):
                name, slash, _ = uri[len(parent) + 1 :].partition("/")
                if slash and any(pattern.fullmatch(name) for pattern in names):
                    return True
    return False


def folder_uuid(mapping: Mapping, metadata: AbstractMapping[str, Any], field: str) -> str:
    """Return a table's or view's UUID; where it has none, as format version 1 allows, one made of its location.

    Args:
        mapping: of this region.
        field: which one has it.
    """
    try:
        return str(uuid.UUID(str(metadata.get(field))))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, origin_or_uri(mapping, str(metadata.get("location", "")))))


def is_own_place(mapping: Mapping, place: str) -> bool:
    """Return whether the origin of a place is in this region."""
    try:
        return mapping.is_local(mapping.origin_uri(place.rstrip("/")))
    except TableError:
        return False


def origin_or_uri(mapping: Mapping, uri: str) -> str:
    """Return the origin of a URI, or the text itself where it has none."""
    try:
        return mapping.origin_uri(uri)
    except TableError:
        return uri


def written_places(metadata: AbstractMapping[str, Any]) -> Iterable[str]:
    """Yield a table's location, and the other folders that its properties have engines write to."""
    properties = metadata.get("properties") or {}
    yield str(metadata.get("location", ""))
    yield from (str(properties[path]) for path in WRITE_PATHS if path in properties)
