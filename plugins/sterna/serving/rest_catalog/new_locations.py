"""Where a new table or view is whose client doesn't say so: below the region's own location, by its name."""

from __future__ import annotations

import re

from sterna.catalog.model import Key
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.near_places import NEAR_FOLDER
from sterna.serving.rest_catalog.rules import ReservedPlaces, is_own_location

_UNUSUAL_CHARACTERS = re.compile(r"[^A-Za-z0-9_.-]+")
_MAX_UNDERSCORES = 8


def new_location_prefix(mapping: RegionMapping, reserved: ReservedPlaces, key: Key) -> str:
    """Return how the location of a new table or view begins: a UUID follows.

    Where no table may be made in a namespace's folder, since a replica root, an inbox or another region's location is
    there, the namespace has another folder.

    Args:
        mapping: of this region.
        reserved: places of the region.
        key: the table's or view's.
    """
    folder = reserved.near_roots[0].rstrip("/")
    *namespace, name = [_UNUSUAL_CHARACTERS.sub("_", part).lstrip("._") or "_" for part in key]
    for part in namespace:
        plain = f"{folder}/{part}_" if part == NEAR_FOLDER else f"{folder}/{part}"
        candidates = (plain + "_" * count for count in range(_MAX_UNDERSCORES))
        folder = next((uri for uri in candidates if is_own_location(mapping, reserved, f"{uri}/{name}-")), plain)
    return f"{folder}/{name}-"
