"""The settings of one region's address, and whether what engines write may be where they say."""

from __future__ import annotations

from collections.abc import Collection

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.near_places import address_locations, address_root, address_settings, near_folder
from sterna.config.sections.catalog import CatalogRegion
from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.pipelines.ingest.layout import check_inbox, prefixes_overlap


def region_settings(mapping: RegionMapping, services: Services) -> CatalogRegion:
    """Return the settings of a region's address.

    Args:
        mapping: of the region.
        services: the services file.

    Raises:
        UsageError: it configures none for this region, or a location where none may be.
    """
    settings = address_settings(mapping, services)
    if settings is None:
        raise UsageError(
            f"the services file has no catalog.regions.{mapping.region.name}", hint="name another file with --services"
        )
    for location in address_locations(mapping, services):
        validate_own_folders(mapping, location, services.inbox_prefixes)
    return settings


def validate_own_folders(mapping: RegionMapping, location: str, inboxes: Collection[str] = ()) -> None:
    """See that what engines write is in the region's own storage, in no replica root, and in no inbox.

    Args:
        mapping: of the region.
        location: the region's, in the section `catalog`.
        inboxes: prefixes of uploads, in which no file is a table's.

    Raises:
        UsageError: it isn't.
    """
    for folder in (near_folder(location), address_root(location)):
        check_inbox(mapping, folder, "catalog location")
        if mapping.locate(folder).alias:
            raise UsageError(f"the catalog location {folder} has another scheme than in the registry")
        if inbox := next((inbox for inbox in inboxes if prefixes_overlap(inbox, folder)), None):
            raise UsageError(f"the catalog location {folder} and the inbox {inbox} overlap")
