"""Which places are kept out of a region, whatever key names a file in them: residency rules by location and prefix."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from sterna.registry.model import Location, Registry, inside, respell


@dataclass(frozen=True)
class KeptOut:
    """A place whose files one region may not have.

    Args:
        prefix: its URI prefix, in one of its spellings.
        location: id of the location that it stands for, "" where the rule names a prefix. A location of its own
            inside that one's prefix is another place.
        rule: the rule in words.
    """

    prefix: str
    location: str
    rule: str

    def has(self, uri: str, location: Location) -> bool:
        """Tell whether a URI, which lies in a location, lies in this place."""
        return location.id == self.location if self.location else inside(uri, self.prefix)


def kept_out(registry: Registry, region: str) -> tuple[KeptOut, ...]:
    """Return the places whose files a region may not have."""
    return tuple(dict.fromkeys(_places(registry, region)))


def _places(registry: Registry, region: str) -> Iterator[KeptOut]:
    prefixes = {location.id: location.prefix for location in registry.locations}
    for rule in registry.residency:
        if rule.allows(region):
            continue
        for id in rule.locations:
            yield KeptOut(prefixes[id], id, f"residency of location {id!r}: {rule.says}")
        for prefix in rule.prefixes:
            for spelled in respell(prefix).values():
                yield KeptOut(spelled, "", f"residency of {prefix}: {rule.says}")
