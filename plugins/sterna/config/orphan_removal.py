"""Where writers' files may be deleted: what the registry opts in, and places of a REST address whose settings do.

Never among sterna's own files, but for those that the address writes for tables.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.config.mapping import Mapping
from sterna.config.near_places import (
    address_locations,
    address_root,
    address_settings,
    is_writers_place,
    near_folder,
)
from sterna.config.registry.folders import is_state_uri
from sterna.config.registry.model import Location, is_inside, prefix_spellings
from sterna.errors import TableError, UsageError

if TYPE_CHECKING:
    from sterna.config.sections.model import Services


@dataclass(frozen=True)
class SweptFolder:
    """A folder with files that may be deleted.

    Args:
        location: the one that it is in.
        uri: the folder, with the prefix as the registry spells it.
    """

    location: Location
    uri: str

    @property
    def label(self) -> str:
        """The location's id where that is swept as a whole, else the URI."""
        return self.location.id if self.uri == self.location.prefix else self.uri


def swept_roots(mapping: Mapping, services: Services) -> tuple[str, ...]:
    """Return the locations of this region's REST address, earlier ones too, as the registry spells them.

    None without its setting `sweep`: another catalog may have files in a folder of the same name.

    Raises:
        UsageError: one is in no location of the region's own.
    """
    settings = address_settings(mapping, services)
    if settings is None or not settings.sweep:
        return ()
    return tuple(dict.fromkeys(_own_folder(mapping, root).uri for root in address_locations(mapping, services)))


def swept_folders(mapping: Mapping, near_roots: Collection[str] = ()) -> tuple[SweptFolder, ...]:
    """Return this region's folders that are swept; none is in another one.

    Args:
        near_roots: as `swept_roots` returned them.

    Raises:
        UsageError: one of them is in no location of the region's own.
    """
    own = mapping.region.name
    locations = (location for location in mapping.registry.locations if location.sweep and location.region == own)
    folders = {location.prefix: SweptFolder(location, location.prefix) for location in locations}
    for root in near_roots:
        for folder in (_own_folder(mapping, near_folder(root)), _own_folder(mapping, address_root(root))):
            folders.setdefault(folder.uri, folder)
    return tuple(folder for folder in folders.values() if not _is_covered(folder, folders.values()))


def may_sweep(mapping: Mapping, uri: str, location: Location, near_roots: Collection[str] = ()) -> bool:
    """Return whether a file may be deleted, by its URI.

    Args:
        location: its location: the one of the longest prefix.
        near_roots: as `swept_roots` returned them.
    """
    if location.region != mapping.region.name:
        return False
    roots = (root for region in mapping.registry.regions for root in prefix_spellings(region.replica_root).values())
    if any(is_inside(uri, root) for root in roots):
        return False
    return is_writers_place(uri, near_roots) or (location.sweep and not is_state_uri(uri))


def _is_covered(folder: SweptFolder, others: Iterable[SweptFolder]) -> bool:
    """Return whether a folder is in another one of the same location, and its files are listed there."""
    return any(
        other.uri != folder.uri and other.location.id == folder.location.id and is_inside(folder.uri, other.uri)
        for other in others
    )


def _own_folder(mapping: Mapping, uri: str) -> SweptFolder:
    try:
        place = mapping.locate(uri)
    except TableError as error:
        raise UsageError(f"the catalog location {uri}: {error.message}", hint=error.hint) from None
    if place.location.region != mapping.region.name:
        raise UsageError(f"the catalog location {uri} is in {place.location.region}: nothing is deleted there")
    return SweptFolder(place.location, f"{place.location.prefix}/{place.path}".rstrip("/"))
