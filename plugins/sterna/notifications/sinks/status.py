"""The status of a region's sinks, from their tags, the log and their dead letters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from sterna.config.sections.model import Services
from sterna.errors import CatalogError, ExitCode
from sterna.notifications.change_log.log import EventLog, LogSegment
from sterna.notifications.sinks.dead_letters import list_dead_letters
from sterna.notifications.sinks.offset import sink_positions
from sterna.notifications.sinks.service import build_table_filter, region_sinks
from sterna.replication.replica.authorization import TableAccess
from sterna.replication.replica.region import RegionContext
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked

_MAX_COUNTED_COMMITS = 1_000  # for one sink


@dataclass(frozen=True)
class SinksStatus:
    """The status of all sinks of a region.

    Args:
        head: its replica branch's head.
        sinks: those of the services file, then those with a position that the file has no longer.
        primary: why positions come from the region's own copy (an error class); "": they come from the primary.
    """

    region: str
    head: str
    sinks: tuple[ReconcilerStatus, ...]
    primary: str = ""

    def fields(self) -> dict[str, Any]:
        """Return the status for JSON."""
        return {**vars(self), "sinks": [sink.fields() for sink in self.sinks]}


def read_sinks(context: RegionContext, services: Services, keep: timedelta) -> SinksStatus:
    """Return how far each sink of a region is.

    A position is the last delivered commit, and a lag the number of seconds since the oldest pending one. The details
    have the numbers of pending commits and events, up to a limit, and of dead letters.

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
    positions, log = sink_positions(region, references), EventLog(context, keep, _MAX_COUNTED_COMMITS)
    head, configured = log.head(), region_sinks(services, region)
    audience = TableAccess(context.registry, region, tuple(services.readers))
    statuses = []
    for name, sink in configured.items():
        status = _new_status(context, name, sink.target.kind, positions.get(name, ""))
        segment = log.read_first_since(status.position, head, _MAX_COUNTED_COMMITS) if status.position else None
        statuses.append(_add_pending(status, segment, build_table_filter(sink, audience)))
    unknown = [
        _add_removal(_new_status(context, name, "", position))
        for name, position in sorted(positions.items())
        if name not in configured
    ]
    return SinksStatus(region, head, (*statuses, *unknown), problem)


def _new_status(context: RegionContext, name: str, target: str, position: str) -> ReconcilerStatus:
    dead = len(list_dead_letters(context, name))
    details = {"target": target, "kept": True, "commits": 0, "events": 0, "dead": dead}
    letters = (Condition(ConditionType.READY, "DeadLetters", f"{dead} dead letters"),) if dead else ()
    subject = f"{context.region.name} → {target or 'no sink'}"
    return ReconcilerStatus("sink", name, subject, position, None, "s", letters, details)


def _add_pending(
    status: ReconcilerStatus, segment: LogSegment | None, accepts: Callable[[str], bool]
) -> ReconcilerStatus:
    """Return a sink's status with the events that wait; a segment of None: its delivery has not begun."""
    if segment is None:
        begin = Condition(ConditionType.PROGRESSING, "NotBegun", "not begun")
        return replace(status, conditions=(begin, *status.conditions))
    commits = len(segment.commits)
    events = sum(accepts(event.table) for commit_events in segment.commits for event in commit_events.events)
    if not segment.complete:
        message = f"the log has no {status.position[:12]} any more: it will begin where that forked, or with the oldest"
        progress = Condition(ConditionType.PROGRESSING, "PositionGone", message)
    elif commits:
        progress = Condition(ConditionType.PROGRESSING, "Delivering", f"{events} events in {commits} commits wait")
    else:
        progress = Condition(ConditionType.READY, "Idle", "all is delivered")
    return replace(
        status,
        lag=_age(segment.commits[0].commit.commit_time) if commits else 0.0,
        conditions=(progress, *status.conditions),
        details={**status.details, "kept": segment.complete, "commits": commits, "events": events},
    )


def _add_removal(status: ReconcilerStatus) -> ReconcilerStatus:
    """Return the status of a sink that the services file has no longer, with the alarm about its position."""
    reason = f"a position at {status.position[:12]} and no such sink in the services file"
    message = f"{reason}; sterna events forget {status.name} --yes removes it"
    alarm = blocked("NoSink", message, exit_code=ExitCode.FAULTS)
    return replace(status, conditions=(alarm, *status.conditions))


def _age(moment: datetime) -> float:
    return max(0.0, round((datetime.now(UTC) - moment).total_seconds(), 3))
