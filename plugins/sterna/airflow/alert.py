"""What the lag alert does: it looks at a region, reports metrics, and fails when somebody has to be told."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING

from sterna.airflow.metrics import record_alarms, record_lags, record_unread
from sterna.airflow.settings import number, patterns, seconds

if TYPE_CHECKING:
    from sterna.replica.region import Progress, RegionContext
    from sterna.services.upkeep import Upkeep
    from sterna.status.alarms import AlarmLimits
    from sterna.status.model import RegionStatus

_HELD_SHOWN = 100


def read_limits(
    lag: timedelta, allow_held: Sequence[str] | None, gc: timedelta | None, slot: float | None
) -> AlarmLimits:
    """Return from where on something is an alarm: what a caller gives, else what Airflow's configuration says.

    Raises:
        UsageError: a setting is wrong.
    """
    from sterna.status.alarms import AlarmLimits

    waited = seconds("gc_limit") if gc is None else gc
    return AlarmLimits(
        lag=lag.total_seconds(),
        allow_held=patterns("allow_held") if allow_held is None else tuple(allow_held),
        gc=waited.total_seconds() or None,
        slot=number("slot_limit") if slot is None else slot,
    )


def look(region: RegionContext, limits: AlarmLimits, say: Progress, upkeep: Upkeep | None = None) -> float | None:
    """Look at a region and report metrics; return its lag in seconds, without the tables that may be held.

    Args:
        region: which.
        limits: from where on something is an alarm.
        say: called with lines for people.
        upkeep: section `upkeep` of the services file; None where there is none.

    Raises:
        AirflowFailException: there are alarms; its message has all of them, a line each.
        CatalogError: the region's own catalog does not answer.
    """
    from airflow.sdk.exceptions import AirflowFailException

    from sterna.status.alarms import alarms, counted_lag
    from sterna.status.gather import watch_status

    status = watch_status(region, evidence=limits.gc is not None, upkeep=upkeep)
    _tell(status, say)
    raised = alarms(status, limits)
    if status.unread_held:
        record_unread(status)
    else:
        behind = [*(item.held for item in status.held), *(item.held for item in status.transit)]
        left = sum(item.bytes_left for item in status.transit)
        record_lags(status.region, status.watermark_lag_seconds, behind, limits.allow_held, left)
    record_alarms(status, raised)
    if raised:
        raise AirflowFailException("\n".join(alarm.text for alarm in raised))
    return counted_lag(status, limits)


def _tell(status: RegionStatus, say: Progress) -> None:
    from sterna.errors import printable
    from sterna.render.status import transit_line
    from sterna.status.alarms import oldest_first

    if status.cut_off:
        say(printable(status.cut_off.line))
    if status.unread_held:
        say(status.unread_held.line)
    for what in status.unseen:
        say(printable(f"not looked at: {what}"))
    for moving in status.transit:
        say(printable(transit_line(moving)))
    held = oldest_first(status.held)
    for item in held[:_HELD_SHOWN]:
        say(printable(f"held: {item.held.key}: {item.held.kind}: {item.held.reason}; {item.do}"))
    if len(held) > _HELD_SHOWN:
        say(f"and {len(held) - _HELD_SHOWN} more tables held: sterna status has all of them")
