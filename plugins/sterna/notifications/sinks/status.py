"""The status of a region's sinks, from their tags, the log and their dead letters."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.config.sections.model import Services
from sterna.errors import CatalogError
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.sinks.dead_letters import list_dead_letters
from sterna.notifications.sinks.offset import sink_positions
from sterna.notifications.sinks.service import build_table_filter, region_sinks
from sterna.replication.replica.authorization import TableAccess
from sterna.replication.replica.region import RegionContext

_MAX_COUNTED_COMMITS = 1_000  # for one sink


@dataclass(frozen=True)
class SinkStatus:
    """The status of one sink.

    Args:
        name: the sink's name.
        kind: its target: webhook, kafka or amqp; "" if the services file has no such sink.
        position: the last delivered commit; None: delivery has not begun.
        kept: whether the log reaches back to the position; if not, the sink will begin at the head.
        commits: pending commits, up to a limit.
        events: pending events in them.
        age: seconds since the oldest pending commit.
        dead: the number of dead letters.
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
class SinksStatus:
    """The status of all sinks of a region.

    Args:
        head: its replica branch's head.
        outlets: those of the services file.
        unknown: those with a position that the file has no longer.
        primary: why positions come from the region's own copy (an error class); "": they come from the primary.
    """

    region: str
    head: str
    outlets: tuple[SinkStatus, ...]
    unknown: tuple[SinkStatus, ...]
    primary: str = ""


def read_sinks(context: RegionContext, services: Services, keep: timedelta) -> SinksStatus:
    """Return how far each sink of a region is.

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
    stored_positions, log = sink_positions(region, references), EventLog(context, keep, _MAX_COUNTED_COMMITS)
    head, configured = log.head(), region_sinks(services, region)
    audience = TableAccess(context.registry, region, tuple(services.readers))
    statuses = []
    for name, sink in configured.items():
        status = SinkStatus(
            name, sink.target.kind, stored_positions.get(name), dead=len(list_dead_letters(context, name))
        )
        if status.position is not None:
            segment = log.read_first_since(status.position, head, _MAX_COUNTED_COMMITS)
            accepts = build_table_filter(sink, audience)
            events = [
                event for commit_events in segment.commits for event in commit_events.events if accepts(event.table)
            ]
            age = _age(segment.commits[0].commit.commit_time) if segment.commits else 0.0
            counts = (len(segment.commits), len(events), age)
            status = SinkStatus(name, status.kind, status.position, segment.complete, *counts, status.dead)
        statuses.append(status)
    unknown = [
        SinkStatus(name, "", hash, dead=len(list_dead_letters(context, name)))
        for name, hash in sorted(stored_positions.items())
        if name not in configured
    ]
    return SinksStatus(region, head, tuple(statuses), tuple(unknown), problem)


def _age(moment: datetime) -> float:
    return max(0.0, round((datetime.now(UTC) - moment).total_seconds(), 3))
