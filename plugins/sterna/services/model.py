"""What stands in sterna_services.yaml: what the rooms around replication do (docs/services.md).

A room that is built replaces its section's `NotYet` by a model of its own.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from sterna.services.ingest import IngestSection
from sterna.services.outlets import Outlets
from sterna.services.queries import NamedQueries, section
from sterna.services.readers import Readers
from sterna.services.upkeep import UpkeepSection
from sterna.strict_yaml import StrictModel


def _version(value: Any) -> Any:
    if type(value) is not int or value != 1:
        raise ValueError("this sterna reads version 1 of the file, no other")
    return value


def _nothing(value: Any) -> None:
    if value is not None and value != [] and value != {}:
        raise ValueError("this version of sterna has no settings there yet: leave the section empty or out")


NotYet = Annotated[None, BeforeValidator(_nothing)]


class Services(StrictModel):
    """The whole services file, shared by all regions.

    Args:
        version: of the file's format.
        readers: which tables only some roles may be told of.
        outlets: where events are sent.
        queries: queries that have a name.
        features: what is kept for online reads.
        ingest: what comes in from outside.
        flows: tables made from changes of others.
        upkeep: how tables on `main` are kept in shape.
    """

    version: Annotated[Literal[1], BeforeValidator(_version)] = 1
    readers: Readers = Field(default_factory=list)
    outlets: Outlets = Field(default_factory=dict)
    queries: Annotated[NamedQueries | None, BeforeValidator(section)] = None
    features: NotYet = None
    ingest: IngestSection = None
    flows: NotYet = None
    upkeep: UpkeepSection = None

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
