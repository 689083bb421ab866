"""What of each channel is on `main`, or on a replica, by the tables' own properties."""

from __future__ import annotations

from collections.abc import Mapping

from sterna.catalog.model import parse_key
from sterna.ingest.model import split_channel
from sterna.replica.region import RegionContext
from sterna.wap.model import Channel
from sterna.wap.state import read_state


class TableMarks:
    """The marks of tables at one commit of a branch; each table is read once, and needs no Spark.

    Args:
        context: the region.
        branch: `main`, or a region's replica branch.
    """

    def __init__(self, context: RegionContext, branch: str = "main") -> None:
        self._context, self._branch = context, branch
        self.head = context.primary.reference(branch).hash
        self._known: dict[str, Mapping[str, str]] = {}

    def __call__(self, table: str, channel: str) -> int:
        """Return the number of a channel's last batch that is on `main`; 0: none, or no such table.

        Raises:
            CatalogUnreachable, StoreUnreachable, StoreDenied: it can't be told now.
            BrokenMetadata: the table's metadata can't be read.
        """
        parts = split_channel(channel)
        if parts is None:
            return 0
        mark = str(self._properties(table).get(Channel(*parts).mark, ""))
        return int(mark) if mark.isdigit() else 0

    def _properties(self, table: str) -> Mapping[str, str]:
        if table not in self._known:
            self._known[table] = self._read(table)
        return self._known[table]

    def _read(self, table: str) -> Mapping[str, str]:
        key = parse_key(table)
        found = self._context.primary.contents(self._branch, self.head, [key]).get(key)
        if found is None or found.metadata_location is None:
            return {}
        return read_state(self._context, table, found.metadata_location).properties
