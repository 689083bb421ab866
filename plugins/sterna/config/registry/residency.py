"""Which places are kept out of a region, whatever key names a file in them: residency rules by location and prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sterna.config.registry.model import Location, Registry, is_inside, prefix_spellings


@dataclass(frozen=True)
class ExcludedPlace:
    """A place whose files one region may not have.

    Args:
        prefix: its URI prefix, in one of its spellings.
        location: id of its location, "" where the rule names a prefix. A location of its own
            inside that one's prefix is another place.
        rule: the rule in words.
    """

    prefix: str
    location: str
    rule: str

    def contains(self, uri: str, location: Location) -> bool:
        """Return whether a URI, which is in a location, is in this place."""
        return location.id == self.location if self.location else is_inside(uri, self.prefix)


def excluded_places(registry: Registry, region: str) -> tuple[ExcludedPlace, ...]:
    """Return the places whose files a region may not have."""
    return tuple(dict.fromkeys(_list_places(registry, region)))


def _list_places(registry: Registry, region: str) -> Iterator[ExcludedPlace]:
    prefixes = {location.id: location.prefix for location in registry.locations}
    for rule in registry.residency:
        if rule.allows(region):
            continue
        for id in rule.locations:
            yield ExcludedPlace(prefixes[id], id, f"residency of location {id!r}: {rule.description}")
        for prefix in rule.prefixes:
            for spelled in prefix_spellings(prefix).values():
                yield ExcludedPlace(spelled, "", f"residency of {prefix}: {rule.description}")
