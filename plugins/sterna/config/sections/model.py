"""The content of sterna_services.yaml: the services around replication (docs/services.md)."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sterna.config.sections.catalog import CatalogSection
from sterna.config.sections.cdc import Cdc, CdcSection
from sterna.config.sections.features import FeaturesSection
from sterna.config.sections.ingest import IngestSection
from sterna.config.sections.maintenance import MaintenanceSection
from sterna.config.sections.queries import NamedQueries
from sterna.config.sections.readers import Readers
from sterna.config.sections.sinks import Sinks
from sterna.config.sections.transforms import Transforms
from sterna.config.sections.types import EmptyAs
from sterna.config.yaml import Faults, StrictModel, case_colliding_credentials


def _validate_version(value: Any) -> Any:
    if type(value) is not int or value != 1:
        raise ValueError("this sterna reads version 1 of the file, no other")
    return value


class Services(StrictModel):
    """The services file, shared by all regions.

    Args:
        version: of the file's format.
        readers: which tables only some roles may read.
        sinks: where events are sent.
        queries: queries that have a name.
        features: what is kept for online reads.
        ingest: what comes in from outside.
        cdc: databases whose changes become rows.
        transforms: tables made from changes of others.
        maintenance: how tables on `main` are kept in shape.
        catalog: where a region's Iceberg REST address writes.
    """

    version: Annotated[Literal[1], BeforeValidator(_validate_version)] = 1
    readers: Readers = Field(default_factory=list)
    sinks: Sinks = Field(default_factory=dict)
    queries: Annotated[NamedQueries | None, EmptyAs(None)] = None
    features: FeaturesSection = None
    ingest: IngestSection = None
    cdc: CdcSection = Field(default_factory=Cdc)
    transforms: Transforms = ()
    maintenance: MaintenanceSection = None
    catalog: CatalogSection = None

    @model_validator(mode="after")
    def _validate_credential_ids(self) -> Services:
        if faults := list(case_colliding_credentials(self)):
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _link_maintenance(self) -> Services:
        # Transforms and views determine the history that they need: maintenance keeps it.
        if self.maintenance is not None:
            time_travel = dict(self.maintenance.time_travel)
            for table, seconds in (self.features.time_travel_seconds() if self.features else {}).items():
                time_travel[table] = max(time_travel.get(table, 0), seconds)
            maintenance = self.maintenance.with_dependents(self.transforms, self.features).model_copy(
                update={"time_travel": time_travel}
            )
            object.__setattr__(self, "maintenance", maintenance)  # the model is frozen for everybody else
        return self

    @property
    def retired_regions(self) -> tuple[str, ...]:
        """The regions that `maintenance.gone` names."""
        return tuple(self.maintenance.gone) if self.maintenance else ()

    @property
    def keep_heads(self) -> timedelta | None:
        """For how long maintenance keeps what heads of replicas show; None where there is no maintenance."""
        return timedelta(seconds=self.maintenance.keep_heads) if self.maintenance else None

    @property
    def inbox_prefixes(self) -> list[str]:
        """The URI prefixes of uploads, and of files that others put there for ingestion: no file there is a
        table's.
        """
        regions = self.ingest.regions.values() if self.ingest else ()
        return [
            prefix for region in regions for prefix in (region.inbox, *(watched.prefix for watched in region.listed))
        ]

    @property
    def configured_sections(self) -> list[str]:
        """The names of the configured sections, in the order of the model."""
        return [name for name in SECTIONS if getattr(self, name)]


SECTIONS = tuple(name for name in Services.model_fields if name != "version")
