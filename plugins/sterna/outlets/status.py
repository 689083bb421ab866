"""How far each outlet of a region is, seen from outside: by its tag, the log and its dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.errors import CatalogError
from sterna.feed.log import EventLog
from sterna.outlets.letters import dead_files
from sterna.outlets.position import positions
from sterna.outlets.room import outlets_of, wanted_by
from sterna.replica.readers import Audience
from sterna.replica.region import RegionContext
from sterna.services.model import Services

_COUNTED = 1_000  # commits that are looked at for one outlet


@dataclass(frozen=True)
class OutletStatus:
    """One outlet.

    Args:
        name: its name.
        kind: of its target: webhook, kafka or amqp; "" where the services file has no such outlet.
        position: the commit whose events are delivered; None: it has not begun.
        kept: whether the log still has what follows; if not, it will begin at the head.
        commits: commits after that, as many as are counted.
        events: events in them that it is to be sent.
        age: seconds since the oldest of these commits.
        dead: its dead letters.
    """

    name: str
    kind: str
    position: str | None
    kept: bool = True
    commits: int = 0
    events: int = 0
    age: float = 0.0
    dead: int = 0


@dataclass(frozen=True)
class OutletsStatus:
    """All outlets of a region.

    Args:
        region: the region.
        head: its replica branch's head.
        outlets: those of the services file.
        unknown: those that have a position there, and stand in the file no more.
        primary: why positions come from the region's own copy, as a word; "" where the primary says them.
    """

    region: str
    head: str
    outlets: tuple[OutletStatus, ...]
    unknown: tuple[OutletStatus, ...]
    primary: str = ""


def read_outlets(context: RegionContext, services: Services, keep: timedelta) -> OutletsStatus:
    """Return how far each outlet of a region is.

    Raises:
        CatalogError: the region's own catalog doesn't answer.
        StoreError: its store doesn't.
    """
    problem = ""
    try:
        references = context.primary.references()
    except CatalogError as error:
        problem, references = type(error).__name__, context.catalog.references()
    region = context.region.name
    found, log = positions(region, references), EventLog(context, keep, _COUNTED)
    head, configured = log.head(), outlets_of(services, region)
    audience = Audience(context.registry, region, tuple(services.readers))
    known = []
    for name, outlet in configured.items():
        status = OutletStatus(name, outlet.target.kind, found.get(name), dead=len(dead_files(context, name)))
        if status.position is not None:
            stretch = log.first_since(status.position, head, _COUNTED)
            wanted = wanted_by(outlet, audience)
            events = [each for told in stretch.told for each in told.events if wanted(each.table)]
            age = _age(stretch.told[0].commit.commit_time) if stretch.told else 0.0
            counts = (len(stretch.told), len(events), age)
            status = OutletStatus(name, status.kind, status.position, stretch.whole, *counts, status.dead)
        known.append(status)
    unknown = [
        OutletStatus(name, "", hash, dead=len(dead_files(context, name)))
        for name, hash in sorted(found.items())
        if name not in configured
    ]
    return OutletsStatus(region, head, tuple(known), tuple(unknown), problem)


def _age(moment: datetime) -> float:
    return max(0.0, round((datetime.now(UTC) - moment).total_seconds(), 3))
