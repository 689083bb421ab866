"""Where writers' files may be deleted: below what the registry opts in, and never among sterna's own."""

from __future__ import annotations

from sterna.config.mapping import Mapping
from sterna.config.registry.folders import is_state_uri
from sterna.config.registry.model import Location, is_inside, prefix_spellings


def swept_locations(mapping: Mapping) -> tuple[Location, ...]:
    """Return this region's locations that are swept."""
    own = mapping.region.name
    return tuple(location for location in mapping.registry.locations if location.sweep and location.region == own)


def may_sweep(mapping: Mapping, uri: str, location: Location) -> bool:
    """Return whether a file may be deleted, by its URI.

    Args:
        location: its location: the one of the longest prefix.
    """
    if not location.sweep or location.region != mapping.region.name or is_state_uri(uri):
        return False
    roots = (root for region in mapping.registry.regions for root in prefix_spellings(region.replica_root).values())
    return not any(is_inside(uri, root) for root in roots)
