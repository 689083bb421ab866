"""The sources of a region, each with its database, its journal and its tables on `main`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sterna.catalog.model import ICEBERG_TABLE, parse_key
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.secrets import Secrets
from sterna.config.sections.cdc import CdcSource
from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.pipelines.cdc.apply import Target
from sterna.pipelines.cdc.database import SourceDatabase
from sterna.pipelines.cdc.journal import Journal
from sterna.pipelines.cdc.mysql import MysqlDatabase
from sterna.pipelines.cdc.plan import channel
from sterna.pipelines.cdc.postgres import PostgresDatabase
from sterna.pipelines.ingest.region import RegionIngest, open_ingest
from sterna.pipelines.publish.model import TableState
from sterna.pipelines.publish.table_state import read_state
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class SourceContext:
    """A source with all that is needed of its region.

    Args:
        context: the region.
        ingest: its inbox.
        source: the source's settings.
        journal: what was read of it.
    """

    context: RegionContext
    ingest: RegionIngest
    source: CdcSource
    journal: Journal

    def database(self) -> SourceDatabase:
        """Return the source itself; whoever takes it closes it."""
        return open_database(self.source, self.context.secrets)

    def target(self, name: str, key: Sequence[str]) -> Target:
        """Return a table of the source as it is on `main`."""
        table_key = f"{self.source.into}.{name.partition('.')[2]}"
        root = self.context.mapping.locate(f"{self.ingest.region_settings.inbox}/x").location.prefix
        location = f"{root}/tables/{table_key.replace('.', '/')}"
        return Target(name, table_key, tuple(key), self.source.deletes == "soft", location)

    def read_table_state(self, target: Target) -> TableState | None:
        """Return what `main` says of a table; None: it isn't there."""
        primary, key = self.context.primary, parse_key(target.key)
        content = primary.contents(SOURCE_BRANCH, primary.reference(SOURCE_BRANCH).hash, [key]).get(key)
        if content is None or content.kind != ICEBERG_TABLE or not content.metadata_location:
            return None
        return read_state(self.context, target.key, content.metadata_location)

    def applied_position(self, state: TableState | None) -> str:
        """Return how far a table is."""
        return (
            state.properties.get(channel(self.source.region, self.source.name).position_property, "") if state else ""
        )


def open_sources(context: RegionContext, services: Services, names: Sequence[str] = ()) -> list[SourceContext]:
    """Return a region's sources.

    Args:
        context: the region.
        services: the services file.
        names: which; all without any.

    Raises:
        UsageError: there is none, or no inbox for what is read.
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
    """Return a source's database.

    Args:
        source: its settings.
        secrets: finds its credential.
    """
    return PostgresDatabase(source, secrets) if source.kind == "postgres" else MysqlDatabase(source, secrets)
