"""What a rewrite costs: the bytes that other regions copy again, at the prices of the registry."""

from __future__ import annotations

from sterna.config.mapping import Mapping
from sterna.config.registry.model import Registry
from sterna.errors import TableError


class Prices:
    """The regions that have a replica of a table, and what they pay for a file."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._mappings = {region.name: Mapping(registry, region) for region in registry.regions}

    def shipped_bytes(self, table: str, target_uri: str, size: int) -> dict[str, int]:
        """Return, by region, the bytes that it copies of a rewritten file.

        Args:
            table: key name.
            target_uri: a URI of where the file is written.
            size: in bytes.
        """
        home = self._mappings[self._registry.regions[0].name].locate(target_uri).location.region
        return {
            name: size
            for name, mapping in self._mappings.items()
            if name != home and not self._registry.exclusion_reason(table, name) and _is_admitted(mapping, target_uri)
        }

    def price(self, target_uri: str, shipped: dict[str, int]) -> float:
        """Return what it costs to copy bytes to other regions from a URI's location."""
        location = self._mappings[self._registry.regions[0].name].locate(target_uri).location
        return sum(size / 1e9 * location.egress_price(region) for region, size in shipped.items())


def _is_admitted(mapping: Mapping, target_uri: str) -> bool:
    try:
        if mapping.excluded_places:
            mapping.require_resident(target_uri)
    except TableError:
        return False
    return True
