"""What one gateway serves."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.events.tail import BranchTail
from sterna.gateway.features_room import FeaturesRoom
from sterna.ingest.room import IngestRoom
from sterna.outlets.room import OutletRoom
from sterna.query.answer import QueryService


@dataclass(frozen=True)
class Rooms:
    """The rooms of a gateway; None: not served.

    Args:
        tail: follows the region's branch, for events.
        queries: answers queries that have a name.
        outlets: sends events on.
        ingest: takes rows and files.
        features: tells features.
    """

    tail: BranchTail | None = None
    queries: QueryService | None = None
    outlets: OutletRoom | None = None
    ingest: IngestRoom | None = None
    features: FeaturesRoom | None = None
