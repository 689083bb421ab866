"""The section `ingest` of the services file: what comes in from outside, and becomes rows on `main`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field, StringConstraints, ValidationInfo, field_validator

from sterna.config.sections.readers import Pattern, Role
from sterna.config.sections.topics import SourceTopic
from sterna.config.sections.types import Duration, EmptyAs, Prefix, Size, validate_hosts
from sterna.config.yaml import StrictModel

# A dot would make the name of a channel ambiguous, and what begins with "_" below an inbox is sterna's own.
TENANT_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_MAX_COUNT = 1_000_000_000

Count = Annotated[int, Field(ge=1, le=_MAX_COUNT)]
Namespace = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128}){0,15}$")]


class TrackerDatabase(StrictModel):
    """The Postgres in which a region's tracker keeps its index.

    Args:
        credential_id: the Airflow connection with its login.
        hosts: each as `host:port`, the one that takes writes is meant; none: those of the region's `catalog.database`.
        name: the database.
        sslmode: as libpq takes it.
        timeout: seconds that one statement may take, connecting included.
    """

    credential_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")]
    hosts: Annotated[list[str], AfterValidator(validate_hosts)] = Field(default_factory=list)
    name: Annotated[str, StringConstraints(pattern=r"^[a-z_][a-z0-9_]{0,62}$")] = "sterna_ingest"
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    timeout: Annotated[float, Field(gt=0, le=600)] = 10.0


class WatchedPrefix(StrictModel):
    """A folder in which others put files for a table.

    Args:
        prefix: a URI prefix in a location of the region's own, outside of replica roots and the inbox.
        table: the table's dotted key.
        every: seconds between two listings.
    """

    prefix: Prefix
    table: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,128}(\.[A-Za-z0-9_]{1,128}){1,16}$")]
    every: Duration = 30


class IngestRegion(StrictModel):
    """Where one region keeps uploads until they are published.

    Args:
        inbox: a URI prefix in a location of the region's own, outside of replica roots.
        spark: the Spark that merges uploads, as the registry's `spark` names it; "": the region's own.
        catalog_credential_id: the connection with which workers log in at the catalog, as writers of `main`; None: the
            region's own.
        database: the tracker's.
        timeout: seconds that the inbox's store may stay silent.
        listed: folders in which others put files.
        read_memory: bytes that the process may take that reads a batch's uploads.
        read_time: seconds that it may take.
    """

    inbox: Prefix
    spark: str = ""
    catalog_credential_id: Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")] | None = None
    database: TrackerDatabase
    timeout: Annotated[float, Field(gt=0, le=600)] = 10.0
    listed: list[WatchedPrefix] = Field(default_factory=list)
    read_memory: Annotated[Size, Field(ge=256 << 20)] = 3 << 30
    read_time: Duration = 900


class TenantLimits(StrictModel):
    """What one tenant may send; whatever is over a limit is refused with a status of its own.

    Args:
        backlog: bytes that wait for being published.
        age: seconds that an upload may wait before that is an alarm.
        file: bytes of one Parquet file.
        body: bytes of rows in one request.
        line: bytes of one row as JSON.
        rows: rows of one upload.
        ratio: how many times its own size a file or stream may become.
        footer: bytes of a Parquet file's footer.
        footer_memory: bytes that the process that reads a large footer may take.
        footer_time: seconds that it may take.
        depth: how deep values may be nested.
        requests: uploads a second, in one gateway.
        max_concurrency: uploads under way, in one gateway.
        upload: seconds that one upload may take.
        bytes: bytes a day; None: no such limit.
        tables: tables that may be written to; None: no such limit.
        channels: channels that may be written to, each table's counted.
        partitions: partitions that may wait at once for being closed, each channel's counted.
        asks: limit of status requests a second, in one gateway.
    """

    backlog: Size = 10 << 30
    age: Duration = 600
    file: Size = 1 << 30
    body: Size = 64 << 20
    line: Size = 1 << 20
    rows: Count = 10_000_000
    ratio: Annotated[int, Field(ge=1, le=1_000_000)] = 200
    footer: Size = 16 << 20
    footer_memory: Annotated[Size, Field(ge=256 << 20)] = 1 << 30
    footer_time: Duration = 60
    depth: Annotated[int, Field(ge=1, le=500)] = 32
    requests: Count = 200
    max_concurrency: Annotated[int, Field(ge=1, le=10_000)] = 32
    upload: Duration = 600
    bytes: Size | None = None
    tables: Count | None = None
    channels: Count = 1_000
    partitions: Count = 10_000
    asks: Count = 100


class Tenant(StrictModel):
    """A writer.

    Args:
        namespaces: namespaces of the tables that it owns, with nested ones. No two tenants have the same.
        roles: a token with one of these is the tenant's; none: `tenant:<name>`.
        limits: on what it may send.
    """

    namespaces: list[Namespace] = Field(min_length=1)
    roles: list[Role] = Field(default_factory=list)
    limits: TenantLimits = TenantLimits()

    def owns(self, table: str) -> bool:
        """Return whether the tenant owns a table, by its dotted key."""
        return any(table.startswith(f"{namespace}.") for namespace in self.namespaces)


class CloseRules(StrictModel):
    """When uploads become a batch, for each channel and partition of a table; the first that is met closes.

    Args:
        files: number of uploads at which a batch is closed.
        bytes: bytes at which a batch is closed.
        age: seconds since the oldest.
        late_age: the same, for partitions that aren't the table's newest, by their names; None: as `age`.
    """

    files: Annotated[int, Field(ge=1, le=100_000)] = 500
    bytes: Annotated[Size, Field(ge=1)] = 128 << 20
    age: Duration = 30
    late_age: Duration | None = None


class IngestTable(StrictModel):
    """How some tables take rows; the first entry that matches a table decides.

    Args:
        match: patterns over the dotted key, as in the registry's policies; a single one needs no list.
        create: `auto`: a table that isn't there is made of the first batch's schema; `declared`: it is refused.
        evolve: what a batch may do to the schema: nothing, add columns, or also widen types.
        columns: columns that a table may get by what is sent, those in structs counted.
        rules: when uploads become a batch.
        audit: SQL conditions over a staged batch, each of which has to hold.
        max_bad: rows of a batch that may go to the dead letters before all of it is rejected; None: any number.
    """

    match: Annotated[
        list[Pattern],
        BeforeValidator(
            lambda value: [value] if isinstance(value, str) else value,
            json_schema_input_type=Pattern | Annotated[list[Pattern], Field(min_length=1)],
        ),
    ] = Field(min_length=1)
    create: Literal["auto", "declared"] = "declared"
    evolve: Literal["none", "add", "widen"] = "none"
    columns: Annotated[int, Field(ge=1, le=100_000)] = 2_000
    rules: CloseRules = CloseRules()
    audit: list[Annotated[str, StringConstraints(min_length=1, max_length=10_000)]] = Field(default_factory=list)
    max_bad: Annotated[int, Field(ge=0, le=_MAX_COUNT)] | None = None


class Ingest(StrictModel):
    """All of the section.

    Args:
        regions: those that take something in, by name.
        tenants: the writers, by name.
        tables: how tables take rows; one that none matches takes none.
        topics: topics of a Kafka that are read.
    """

    regions: dict[str, IngestRegion] = Field(min_length=1)
    tenants: dict[str, Tenant] = Field(min_length=1)
    tables: list[IngestTable] = Field(min_length=1)
    topics: list[SourceTopic] = Field(default_factory=list)

    @field_validator("topics")
    @classmethod
    def _validate_topics(cls, value: list[SourceTopic], info: ValidationInfo) -> list[SourceTopic]:
        names = [(topic.region, topic.name) for topic in value]
        if duplicate := next((name for name in names if names.count(name) > 1), None):
            raise ValueError(f"{duplicate[1]} appears twice in region {duplicate[0]}: the name makes the channels")
        regions = info.data.get("regions", {})
        if foreign := next((topic for topic in value if regions and topic.region not in regions), None):
            raise ValueError(
                f"{foreign.name} is read in {foreign.region}, which has no ingest.regions.{foreign.region}"
            )
        return value

    @field_validator("tenants")
    @classmethod
    def _validate_tenants(cls, value: dict[str, Tenant]) -> dict[str, Tenant]:
        for name in value:
            if not TENANT_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is no tenant's name: small letters, digits, _ and -")
        if overlap := next(_overlapping_namespaces(value), None):
            raise ValueError(f"{overlap}: a namespace belongs to one tenant")
        return value

    def tenant_of(self, table: str) -> str | None:
        """Return the name of the tenant that owns a table, None where there is none."""
        return next((name for name, tenant in self.tenants.items() if tenant.owns(table)), None)

    def table_rule(self, table: str, matches: Callable[[list[str], str], object]) -> IngestTable | None:
        """Return how a table takes rows, None where it takes none.

        Args:
            table: its dotted key.
            matches: whether one of some patterns matches a key, as the registry's do.
        """
        return next((rule for rule in self.tables if matches(rule.match, table)), None)

    def roles_of(self, tenant: str) -> frozenset[str]:
        """Return the roles of which a tenant's token has one."""
        return frozenset(self.tenants[tenant].roles or [f"tenant:{tenant}"])


def _overlapping_namespaces(tenants: dict[str, Tenant]) -> Iterator[str]:
    for (first_name, first), (second_name, second) in combinations(tenants.items(), 2):
        for namespace in first.namespaces:
            for other_namespace in second.namespaces:
                if f"{namespace}.".startswith(f"{other_namespace}.") or f"{other_namespace}.".startswith(
                    f"{namespace}."
                ):
                    yield f"{first_name} has {namespace}, and {second_name} has {other_namespace}"


IngestSection = Annotated[Ingest | None, EmptyAs(None)]
