"""The section `cdc` of the services file: databases whose changes become rows on `main` (docs/cdc.md)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from sterna.config.sections.ingest import Namespace
from sterna.config.sections.types import Duration, EmptyAs, Size, validate_hosts
from sterna.config.yaml import StrictModel

Credential = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{1,250}$")]
# Of a publication and of a slot, too: short enough for "sterna_" and a capture id around it.
SourceName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,39}$")]
TablePattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]{1,63}\.([A-Za-z0-9_]{1,63}|\*)$")]


class CdcSource(StrictModel):
    """A database that is followed, in one region.

    Args:
        name: names its slot, its publication, its journal and its channel.
        region: where its changes are read, and kept until they are on `main`.
        kind: what it is.
        hosts: each as `host:port`; the one that takes writes is meant. A MariaDB or MySQL has one.
        database: its name there; a MariaDB or MySQL has it in `tables`.
        credential_id: the Airflow connection with the login that reads changes.
        sslmode: as libpq takes it.
        tables: which, as `schema.table` or `schema.*` (a MariaDB or MySQL: `database.table`); those that match when the
            source is read for the first time.
        into: the namespace on `main` that gets a table of the same name for each.
        deletes: `hard`: a row that is deleted there goes here; `soft`: it stays, with `is_deleted` true.
        every: seconds after which what was read becomes durable, and the source may forget it.
        log_alarm: bytes of log that the source keeps for this reader, from where on that is an alarm.
        read_alarm: seconds without a reader from which on that is an alarm.
        purge_alarm: seconds before a MariaDB or MySQL purges log that was not read, from where on that is an alarm.
    """

    name: SourceName
    region: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")]
    kind: Literal["postgres", "mariadb", "mysql"] = "postgres"
    hosts: Annotated[list[str], Field(min_length=1), AfterValidator(validate_hosts)]
    database: Annotated[str, StringConstraints(pattern=r"^[^\s\x00-\x1f]{1,63}$")] = ""
    credential_id: Credential
    sslmode: Literal["disable", "prefer", "require", "verify-ca", "verify-full"] = "prefer"
    tables: Annotated[list[TablePattern], Field(min_length=1)]
    into: Namespace
    deletes: Literal["hard", "soft"] = "hard"
    every: Duration = 5
    log_alarm: Size = 2 << 30
    read_alarm: Duration = 3_600
    purge_alarm: Duration = 86_400

    @property
    def can_reload_single_table(self) -> bool:
        """Whether one table can be read again while the others continue: only Postgres has snapshots that allow it."""
        return self.kind == "postgres"

    @model_validator(mode="after")
    def _validate_kind(self) -> CdcSource:
        if self.kind == "postgres":
            if not self.database:
                raise ValueError("a source of kind postgres needs a database")
            return self
        if self.database:
            raise ValueError(f"a source of kind {self.kind} has no `database`: name it in tables, such as shop.*")
        if len(self.hosts) > 1:
            raise ValueError(f"a source of kind {self.kind} has one host: each server has positions of its own")
        return self


def _validate_unique_names(value: list[CdcSource]) -> list[CdcSource]:
    for field_name, names in (("name", [source.name for source in value]), ("into", [source.into for source in value])):
        if duplicates := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"{field_name} {duplicates[0]} occurs twice: a source has its own name and its own namespace"
            )
    return value


class Cdc(StrictModel):
    """Databases that are followed.

    Args:
        sources: each of them.
    """

    sources: Annotated[list[CdcSource], AfterValidator(_validate_unique_names)] = Field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.sources)


CdcSection = Annotated[Cdc, EmptyAs({})]
