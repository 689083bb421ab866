"""One region's ingestion: its settings, its inbox and its tracker, opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sterna.config.near_places import near_roots
from sterna.config.registry.model import Registry
from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.ingest import CloseRules, Ingest, IngestRegion, IngestTable
from sterna.config.sections.model import Services
from sterna.config.sections.topics import SourceTopic
from sterna.errors import UsageError
from sterna.pipelines.ingest.inbox import Inbox
from sterna.pipelines.ingest.layout import check_inbox, prefixes_overlap
from sterna.pipelines.ingest.tracker import Tracker
from sterna.pipelines.ingest.tracker_schema import is_initialized, prepare
from sterna.pipelines.ingest.work_queue import PostgresQueue
from sterna.postgres.pool import PostgresPool, ServiceDatabase
from sterna.replication.replica.region import RegionContext
from sterna.storage.objects import Objects


@dataclass(frozen=True)
class RegionIngest:
    """What a region takes in.

    Args:
        name: the region.
        settings: the section of the services file.
        region_settings: this region's part of them.
        registry: has which tables may not be in the region.
        pool: the tracker's database.
        context: the region itself, where catalogs or brokers are needed.
        near_root: the region's own location, below which files of other regions' tables go; "": the one of the inbox.
    """

    name: str
    settings: Ingest
    region_settings: IngestRegion
    registry: Registry = field(repr=False)
    objects: Objects = field(repr=False)
    pool: PostgresPool = field(repr=False)
    context: RegionContext | None = field(default=None, repr=False)
    near_root: str = ""

    @cached_property
    def tracker(self) -> Tracker:
        """The tracker, for taking uploads and for queries."""
        return Tracker(self.pool)

    @cached_property
    def queue(self) -> PostgresQueue:
        """The tracker, as workers see it."""
        return PostgresQueue(self.pool)

    @cached_property
    def inbox(self) -> Inbox:
        """Where uploads become durable."""
        return Inbox(self.objects, self.tracker, self.name, self.region_settings.inbox)

    def table(self, table: str) -> IngestTable | None:
        """Return how a table takes rows, None where it takes none."""
        return self.settings.table_rule(table, matching_pattern)

    def refusal(self, table: str) -> str:
        """Return which residency rule keeps a table's rows out of the region, "" where none does."""
        return _refusal(self.registry, self.name, table)

    def rules(self, table: str) -> CloseRules:
        """Return when a table's uploads become a batch; one that takes no rows any more closes what it has by
        default."""
        table_settings = self.table(table)
        return table_settings.rules if table_settings is not None else CloseRules()

    @property
    def topics(self) -> list[SourceTopic]:
        """The topics that are read in this region."""
        return [topic for topic in self.settings.topics if topic.region == self.name]

    @property
    def buffered_topics(self) -> list[SourceTopic]:
        """Those of them that gateways read into the inbox; workers read the others."""
        return [topic for topic in self.topics if topic.mode == "buffered"]

    def prepare(self) -> None:
        """See that the tracker is there and is the inbox's; made at first use.

        Raises:
            TrackerLost, TrackerTooNew: it isn't.
            DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied, CredentialError: not now.
        """
        prepare(self.pool, self.objects, self.region_settings.inbox)

    def is_initialized(self) -> bool:
        """Return whether any upload was accepted yet; changes nothing.

        Raises:
            SternaError: as `prepare`.
        """
        return is_initialized(self.pool, self.objects, self.region_settings.inbox)

    def close(self) -> None:
        """Close the connections to the tracker."""
        self.pool.close()


def open_ingest(context: RegionContext, services: Services) -> RegionIngest:
    """Return a region's ingestion; no server is called yet.

    Args:
        services: the services file.

    Raises:
        UsageError: it configures none for this region, or an inbox where none may be.
    """
    region, settings = context.region, services.ingest
    region_settings = settings.regions.get(region.name) if settings is not None else None
    if settings is None or region_settings is None:
        raise UsageError(
            f"the services file has no ingest.regions.{region.name}", hint="name another file with --services"
        )
    check_inbox(context.mapping, region_settings.inbox)
    _check_listed(context, settings, region_settings)
    _check_topics(context, settings)
    hosts = region_settings.database.hosts or (region.catalog.database.hosts if region.catalog.database else [])
    if not hosts:
        raise UsageError(
            f"ingest.regions.{region.name}.database.hosts is missing: the region has no catalog.database, either"
        )
    database = ServiceDatabase(
        f"the ingest tracker of {region.name}",
        tuple(hosts),
        region_settings.database.name,
        region_settings.database.credential_id,
        region_settings.database.sslmode,
        region_settings.database.timeout,
    )
    objects = Objects(context.mapping, context.secrets, timeout=region_settings.timeout)
    pool = PostgresPool(database, context.secrets)
    near_root = near_roots(context.mapping, services)[0]
    return RegionIngest(region.name, settings, region_settings, context.registry, objects, pool, context, near_root)


def _check_topics(context: RegionContext, settings: Ingest) -> None:
    for topic in settings.topics:
        if topic.region == context.region.name:
            _check_table(context, settings, f"the topic {topic.name}", topic.into)


def _check_listed(context: RegionContext, settings: Ingest, region_settings: IngestRegion) -> None:
    for listed_prefix in region_settings.listed:
        label = f"the listed prefix {listed_prefix.prefix}"
        check_inbox(context.mapping, listed_prefix.prefix, "listed prefix")
        if prefixes_overlap(listed_prefix.prefix, region_settings.inbox):
            raise UsageError(f"{label} and the inbox {region_settings.inbox} overlap")
        _check_table(context, settings, label, listed_prefix.table)


def _check_table(context: RegionContext, settings: Ingest, label: str, table: str) -> None:
    if settings.tenant_of(table) is None or settings.table_rule(table, matching_pattern) is None:
        raise UsageError(f"{label} is for {table}, which takes no rows")
    if refusal := _refusal(context.registry, context.region.name, table):
        raise UsageError(f"{label} is for {table}: {refusal}")


def _refusal(registry: Registry, region: str, table: str) -> str:
    return next((reason for rule in registry.residency if (reason := rule.exclusion_reason(table, region))), "")
