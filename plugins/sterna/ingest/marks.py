"""What of each channel is on `main`, by the tables' own properties: for whoever makes the tracker anew."""

from __future__ import annotations

import json
from collections.abc import Mapping

from sterna.catalog.model import parse_key
from sterna.errors import BrokenMetadata
from sterna.iceberg.json_text import read_document
from sterna.ingest.model import split_channel
from sterna.replica.region import RegionContext
from sterna.wap.model import Channel


class TableMarks:
    """The marks of tables at one commit of `main`; each table is read once, and needs no Spark.

    Args:
        context: the region.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._head = context.primary.reference("main").hash
        self._known: dict[str, Mapping[str, object]] = {}

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

    def _properties(self, table: str) -> Mapping[str, object]:
        if table not in self._known:
            self._known[table] = self._read(table)
        return self._known[table]

    def _read(self, table: str) -> Mapping[str, object]:
        key = parse_key(table)
        found = self._context.primary.contents("main", self._head, [key]).get(key)
        if found is None or found.metadata_location is None:
            return {}
        uri = found.metadata_location
        document = read_document(self._context.objects.read(uri), uri, self._context.region.limits)
        try:
            properties = json.loads(document.text).get("properties") or {}
        except (ValueError, AttributeError):
            raise BrokenMetadata("the table's metadata doesn't parse", table=table, file=uri) from None
        return properties if isinstance(properties, dict) else {}
