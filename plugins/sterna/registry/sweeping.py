"""Where writers' files may be deleted: below what the registry opts in, and never where sterna's own lie."""

from __future__ import annotations

from sterna.registry.folders import is_own
from sterna.registry.mapping import Mapping
from sterna.registry.model import Location, inside, respell


def swept_locations(mapping: Mapping) -> tuple[Location, ...]:
    """Return this region's locations that are swept."""
    own = mapping.region.name
    return tuple(each for each in mapping.registry.locations if each.sweep and each.region == own)


def may_sweep(mapping: Mapping, uri: str, location: Location) -> bool:
    """Tell whether a file may be deleted by its place.

    Args:
        mapping: the region's mapping.
        uri: the file.
        location: the location that it lies in: the one of the longest prefix.
    """
    if not location.sweep or location.region != mapping.region.name or is_own(uri):
        return False
    roots = (root for region in mapping.registry.regions for root in respell(region.replica_root).values())
    return not any(inside(uri, root) for root in roots)
