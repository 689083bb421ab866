"""What stands in sterna_services.yaml: what the rooms around replication do (docs/services.md)."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from sterna.services.cdc import Cdc, CdcSection
from sterna.services.features import FeaturesSection
from sterna.services.flows import Flows
from sterna.services.ingest import IngestSection
from sterna.services.outlets import Outlets
from sterna.services.queries import NamedQueries, section
from sterna.services.readers import Readers
from sterna.services.upkeep import UpkeepSection
from sterna.strict_yaml import Faults, StrictModel, folded_credentials


def _version(value: Any) -> Any:
    if type(value) is not int or value != 1:
        raise ValueError("this sterna reads version 1 of the file, no other")
    return value


class Services(StrictModel):
    """The whole services file, shared by all regions.

    Args:
        version: of the file's format.
        readers: which tables only some roles may be told of.
        outlets: where events are sent.
        queries: queries that have a name.
        features: what is kept for online reads.
        ingest: what comes in from outside.
        cdc: databases whose changes become rows.
        flows: tables made from changes of others.
        upkeep: how tables on `main` are kept in shape.
    """

    version: Annotated[Literal[1], BeforeValidator(_version)] = 1
    readers: Readers = Field(default_factory=list)
    outlets: Outlets = Field(default_factory=dict)
    queries: Annotated[NamedQueries | None, BeforeValidator(section)] = None
    features: FeaturesSection = None
    ingest: IngestSection = None
    cdc: CdcSection = Field(default_factory=Cdc)
    flows: Flows = ()
    upkeep: UpkeepSection = None

    @model_validator(mode="after")
    def _one_credential_an_id(self) -> Services:
        if faults := list(folded_credentials(self)):
            raise Faults(faults)
        return self

    @model_validator(mode="after")
    def _upkeep_knows_the_others(self) -> Services:
        # What flows and views go on from, and what views reproduce, is theirs to say and upkeep's to keep.
        if self.upkeep is not None:
            kept = dict(self.upkeep.reproduce)
            for table, seconds in (self.features.reproduced() if self.features else {}).items():
                kept[table] = max(kept.get(table, 0), seconds)
            upkeep = self.upkeep.beside(self.flows, self.features).model_copy(update={"reproduce": kept})
            object.__setattr__(self, "upkeep", upkeep)  # the model is frozen for everybody else
        return self

    @property
    def gone(self) -> tuple[str, ...]:
        """The regions that `upkeep.gone` names."""
        return tuple(self.upkeep.gone) if self.upkeep else ()

    @property
    def inboxes(self) -> list[str]:
        """The URI prefixes below which stands what came in, and what others put there for ingestion: no file there is a
        table's.
        """
        regions = self.ingest.regions.values() if self.ingest else ()
        return [prefix for region in regions for prefix in (region.inbox, *(each.prefix for each in region.listed))]

    @property
    def configured(self) -> list[str]:
        """The names of the sections that say something, in the order of the model."""
        return [name for name in SECTIONS if getattr(self, name)]


SECTIONS = tuple(name for name in Services.model_fields if name != "version")
