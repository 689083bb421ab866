"""One region's ingestion: its settings, its inbox and its tracker, opened."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from sterna.edges.postgres.pool import PostgresPool, ServiceDatabase
from sterna.edges.stores.objects import Objects
from sterna.errors import UsageError
from sterna.ingest.inbox import Inbox
from sterna.ingest.places import check_inbox, overlap
from sterna.ingest.schema import is_begun, prepare
from sterna.ingest.tracker import Tracker
from sterna.ingest.work_queue import PostgresQueue
from sterna.registry.model import Registry
from sterna.registry.policy import matching
from sterna.replica.region import RegionContext
from sterna.services.ingest import CloseRules, Ingest, IngestRegion, IngestTable
from sterna.services.model import Services
from sterna.services.topics import Topic


@dataclass(frozen=True)
class RegionIngest:
    """What a region takes in.

    Args:
        name: the region.
        settings: the section of the services file.
        own: what it says of this region.
        registry: says which tables may not be in the region.
        objects: the stores.
        pool: the tracker's database.
        context: the region itself, for who looks at catalogs or at brokers.
    """

    name: str
    settings: Ingest
    own: IngestRegion
    registry: Registry = field(repr=False)
    objects: Objects = field(repr=False)
    pool: PostgresPool = field(repr=False)
    context: RegionContext | None = field(default=None, repr=False)

    @cached_property
    def tracker(self) -> Tracker:
        """The tracker, as those see it who take drops in and who ask."""
        return Tracker(self.pool)

    @cached_property
    def queue(self) -> PostgresQueue:
        """The tracker, as workers see it."""
        return PostgresQueue(self.pool)

    @cached_property
    def inbox(self) -> Inbox:
        """Where drops become durable."""
        return Inbox(self.objects, self.tracker, self.name, self.own.inbox)

    def table(self, table: str) -> IngestTable | None:
        """Return how a table takes rows, None where it takes none."""
        return self.settings.table(table, matching)

    def refusal(self, table: str) -> str:
        """Return which residency rule keeps a table's rows out of the region, "" where none does."""
        return _refusal(self.registry, self.name, table)

    def rules(self, table: str) -> CloseRules:
        """Return when a table's drops become a batch; one that takes no rows any more closes what it has by default."""
        found = self.table(table)
        return found.rules if found is not None else CloseRules()

    @property
    def topics(self) -> list[Topic]:
        """The topics that are read in this region."""
        return [topic for topic in self.settings.topics if topic.region == self.name]

    def prepare(self) -> None:
        """See that the tracker is there and is the inbox's; made at first use.

        Raises:
            TrackerLost, TrackerTooNew: it isn't.
            DatabaseUnreachable, DatabaseRefused, StoreUnreachable, StoreDenied, CredentialError: not now.
        """
        prepare(self.pool, self.objects, self.own.inbox)

    def is_begun(self) -> bool:
        """Tell whether anything came in yet; changes nothing.

        Raises:
            SternaError: as `prepare`.
        """
        return is_begun(self.pool, self.objects, self.own.inbox)

    def close(self) -> None:
        """Close the connections to the tracker."""
        self.pool.close()


def open_ingest(context: RegionContext, services: Services) -> RegionIngest:
    """Return a region's ingestion; nothing is asked yet.

    Args:
        context: the region.
        services: the services file.

    Raises:
        UsageError: it configures none for this region, or an inbox where none may be.
    """
    region, settings = context.region, services.ingest
    own = settings.regions.get(region.name) if settings is not None else None
    if settings is None or own is None:
        raise UsageError(
            f"the services file has no ingest.regions.{region.name}", hint="name another file with --services"
        )
    check_inbox(context.mapping, own.inbox)
    _check_listed(context, settings, own)
    _check_topics(context, settings)
    hosts = own.database.hosts or (region.catalog.database.hosts if region.catalog.database else [])
    if not hosts:
        raise UsageError(
            f"ingest.regions.{region.name}.database.hosts is missing: the region has no catalog.database, either"
        )
    database = ServiceDatabase(
        f"the ingest tracker of {region.name}",
        tuple(hosts),
        own.database.name,
        own.database.credential_id,
        own.database.sslmode,
        own.database.timeout,
    )
    objects = Objects(context.mapping, context.secrets, timeout=own.timeout)
    pool = PostgresPool(database, context.secrets)
    return RegionIngest(region.name, settings, own, context.registry, objects, pool, context)


def _check_topics(context: RegionContext, settings: Ingest) -> None:
    for topic in settings.topics:
        if topic.region != context.region.name:
            continue
        if settings.tenant_of(topic.into) is None or settings.table(topic.into, matching) is None:
            raise UsageError(f"the topic {topic.name} is for {topic.into}, which takes no rows")
        if refused := _refusal(context.registry, context.region.name, topic.into):
            raise UsageError(f"the topic {topic.name} is for {topic.into}: {refused}")


def _check_listed(context: RegionContext, settings: Ingest, own: IngestRegion) -> None:
    for each in own.listed:
        check_inbox(context.mapping, each.prefix, "listed prefix")
        if overlap(each.prefix, own.inbox):
            raise UsageError(f"the listed prefix {each.prefix} and the inbox {own.inbox} overlap")
        if settings.tenant_of(each.table) is None or settings.table(each.table, matching) is None:
            raise UsageError(f"the listed prefix {each.prefix} is for {each.table}, which takes no rows")
        if refused := _refusal(context.registry, context.region.name, each.table):
            raise UsageError(f"the listed prefix {each.prefix} is for {each.table}: {refused}")


def _refusal(registry: Registry, region: str, table: str) -> str:
    return next((found for rule in registry.residency if (found := rule.refusal(table, region))), "")
