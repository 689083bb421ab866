"""From which regions a copy batch is sent: the cheapest ones first, and the origins of its files among them.

A region has copies of the files of each table that its replica branch shows, at places that its mapping gives. Its
lists aren't read: whether a copy is there is looked up when it is to be sent, and its size has to be right.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property

from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.model import Location, is_inside
from sterna.config.verbatim_copies import content_copy


@dataclass(frozen=True)
class TableReplica:
    """A region whose replica branch shows a table.

    Args:
        region: its name.
        table: key name.
        is_current: it shows the version that is planned, so that all files of it are there; else most of them may be.
    """

    region: str
    table: str
    is_current: bool


@dataclass(frozen=True)
class SourceOrder:
    """The regions whose copies are tried beside the origins of files.

    Args:
        preferred: names of those that are tried before the origins, in this order.
        fallbacks: of those that are tried after them, for files that couldn't be copied from their origins.
    """

    preferred: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()


class _Preference(IntEnum):
    """The order of regions of one price: an origin has its writers to serve, and an older version may lack files."""

    CURRENT = 0
    ORIGIN = 1
    OLDER = 2


_Rank = tuple[float, _Preference]


@dataclass(frozen=True)
class SourceRegions:
    """All regions as sources of what one of them copies.

    Args:
        mapping: of the region that copies.
    """

    mapping: RegionMapping

    @cached_property
    def _mappings(self) -> dict[str, RegionMapping]:
        registry = self.mapping.registry
        return {region.name: RegionMapping(registry, region) for region in registry.regions}

    def order(self, origin: Location, replicas: Iterable[TableReplica], *, turn: int = 0) -> SourceOrder:
        """Return from which regions files are copied: by price, and at one price from current versions first.

        Args:
            origin: the location that `main` names the files in.
            replicas: the regions that show tables with some of these files.
            turn: the number of the batch: equal regions take turns.
        """
        here = self.mapping.region.name
        own_rank = origin.egress_price(here), _Preference.ORIGIN
        ranks: dict[str, _Rank] = {}
        for replica in replicas:
            if replica.region in (here, origin.region) or not self.may_have(replica, origin):
                continue
            preference = _Preference.CURRENT if replica.is_current else _Preference.OLDER
            rank = self.replica_location(replica.region).egress_price(here), preference
            ranks[replica.region] = min(rank, ranks.get(replica.region, rank))
        preferred = {name: rank for name, rank in ranks.items() if rank < own_rank}
        fallbacks = {name: rank for name, rank in ranks.items() if rank > own_rank}
        return SourceOrder(take_turns(preferred, turn), take_turns(fallbacks, turn))

    def replica_location(self, region: str) -> Location:
        """Return the location in which a region keeps its copies."""
        return self.mapping.locate(self.mapping.registry.region(region).replica_root).location

    def copy_uri(self, region: str, table: str, uri: str) -> str:
        """Return where a region has its copy of a table's content file; "" where that is the file, or it may have none.

        Args:
            region: its name.
            table: key name.
            uri: as `main` names the file.
        """
        if self.mapping.registry.exclusion_reason(table, region):
            return ""  # what is there has yet to be evicted
        return content_copy(self._mappings[region], uri)

    def may_have(self, replica: TableReplica, origin: Location) -> bool:
        """Return whether no rule keeps a table, or all of a location, out of a region."""
        if self.mapping.registry.exclusion_reason(replica.table, replica.region):
            return False
        return not any(
            place.location == origin.id if place.location else is_inside(origin.prefix, place.prefix)
            for place in self._mappings[replica.region].excluded_places
        )


def first_turn(region: str, names: Sequence[str]) -> int:
    """Return the turn that a region's batches begin with: the same one each time, and another one for other names."""
    return zlib.crc32("\n".join((region, *names)).encode())


def take_turns(ranks: Mapping[str, _Rank], turn: int) -> tuple[str, ...]:
    """Return regions by their ranks; of equal ones another is first at each turn."""
    order: list[str] = []
    for rank in sorted(set(ranks.values())):
        equals = sorted(name for name in ranks if ranks[name] == rank)
        start = turn % len(equals)
        order += (*equals[start:], *equals[:start])
    return tuple(order)
