"""What of each channel is on `main`, or on a replica, by the tables' own properties."""

from __future__ import annotations

from sterna.catalog.model import parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.pipelines.ingest.model import split_channel
from sterna.pipelines.publish.model import Channel, TableState, position_number
from sterna.pipelines.publish.table_state import read_state
from sterna.replication.replica.region import RegionContext


class AppliedPositions:
    """The applied positions of tables at one commit of a branch; each table is read once, and needs no Spark.

    Args:
        branch: `main`, a region's replica branch, or another one.
        head: the commit; "": the branch's head.
    """

    def __init__(self, context: RegionContext, branch: str = "main", head: str = "") -> None:
        self._context, self._branch = context, branch
        self.head = head or context.primary.reference(branch).hash
        self._states: dict[str, TableState | None] = {}

    def __call__(self, table: str, channel: str) -> int:
        """Return the number of a channel's last batch that is on `main`; 0: none, or no such table.

        Raises:
            CatalogUnreachable, StoreUnreachable, StoreDenied: it can't be determined now.
            BrokenMetadata: the table's metadata can't be read.
        """
        parts, state = split_channel(channel), self.state(table)
        if parts is None or state is None:
            return 0
        return position_number(state.position(Channel(*parts)))

    def state(self, table: str) -> TableState | None:
        """Return a table as far as publishing goes; None: there is no such table.

        Raises:
            SternaError: as above.
        """
        if table not in self._states:
            self._states[table] = self._read_state(table)
        return self._states[table]

    def _read_state(self, table: str) -> TableState | None:
        uri = table_metadata_uri(self._context.primary, self._branch, parse_key(table), self.head)
        return read_state(self._context, table, uri) if uri else None
