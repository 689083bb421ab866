"""The sources of a region, each with its database, its journal and its tables on `main`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.catalog.model import parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.secrets import Secrets
from sterna.config.sections.cdc import CdcSource
from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.pipelines.cdc.database import SourceDatabase
from sterna.pipelines.cdc.journal import Journal
from sterna.pipelines.cdc.mysql import MysqlDatabase
from sterna.pipelines.cdc.plan import Target, channel, parse_position
from sterna.pipelines.cdc.postgres import PostgresDatabase
from sterna.pipelines.ingest.region import RegionIngest, open_ingest
from sterna.pipelines.publish.model import Channel, TableState
from sterna.pipelines.publish.table_state import read_state
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class SourceContext:
    """A source and what it uses of its region.

    Args:
        ingest: the region's inbox and its settings.
        journal: of the source.
    """

    context: RegionContext
    ingest: RegionIngest
    source: CdcSource
    journal: Journal

    @property
    def channel(self) -> Channel:
        """The source's channel, which is the same on each of its tables."""
        return channel(self.source.region, self.source.name)

    def database(self) -> SourceDatabase:
        """Connect to the source; the caller closes it."""
        return open_database(self.source, self.context.secrets)

    def target(self, name: str, key: Sequence[str]) -> Target:
        """Return the table on `main` that a table of the source is applied to."""
        table_key = f"{self.source.into}.{name.partition('.')[2]}"
        root = self.context.mapping.locate(f"{self.ingest.region_settings.inbox}/x").location.prefix
        location = f"{root}/tables/{table_key.replace('.', '/')}"
        return Target(name, table_key, tuple(key), self.source.deletes == "soft", location)

    def read_table_state(self, target: Target) -> TableState | None:
        """Return a table's state on `main`; None: it doesn't exist."""
        uri = table_metadata_uri(self.context.primary, SOURCE_BRANCH, parse_key(target.key))
        return read_state(self.context, target.key, uri) if uri else None

    def applied_position(self, state: TableState | None) -> str:
        """Return the source's position in a table; "": none."""
        return state.position(self.channel) if state else ""

    def applied_segment(self, state: TableState | None) -> tuple[int, int]:
        """Return the capture id and the segment's number of the source's position in a table; zeros for none.

        Raises:
            UnfitSource: it isn't a position of the source.
        """
        return parse_position(self.applied_position(state), self.source.name)


def open_sources(context: RegionContext, services: Services, names: Sequence[str] = ()) -> list[SourceContext]:
    """Return a region's sources.

    Args:
        services: the services file.
        names: those to return; all by default.

    Raises:
        UsageError: the region has no such source.
    """
    sources = [source for source in services.cdc.sources if source.region == context.region.name]
    if not sources:
        raise UsageError(f"the services file has no source in cdc.sources for {context.region.name}")
    if unknown := sorted(set(names) - {source.name for source in sources}):
        raise UsageError(
            f"no source {unknown[0]} in {context.region.name}: {', '.join(source.name for source in sources)}"
        )
    ingest = open_ingest(context, services)
    selected = [source for source in sources if not names or source.name in names]
    return [
        SourceContext(context, ingest, source, Journal(ingest.objects, ingest.region_settings.inbox, source.name))
        for source in selected
    ]


def open_database(source: CdcSource, secrets: Secrets) -> SourceDatabase:
    """Return the adapter for a source's kind of database."""
    return PostgresDatabase(source, secrets) if source.kind == "postgres" else MysqlDatabase(source, secrets)
