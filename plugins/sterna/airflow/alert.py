"""The lag alert: reads a region's state, reports metrics, and fails when there are alarms."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from sterna.airflow.base import SternaServicesOperator, fail_with
from sterna.airflow.metrics import record_status
from sterna.airflow.settings import get_float, get_patterns, get_timedelta

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.config.sections.maintenance import Maintenance
    from sterna.operations.alarms import AlarmLimits
    from sterna.operations.status.model import RegionStatus
    from sterna.replication.replica.region import Progress, RegionContext

_MAX_SHOWN_HELD = 100


class SternaLagOperator(SternaServicesOperator):
    """Fail when a region needs somebody, so that Airflow's own alerts tell them.

    It does so on each alarm of `ALARM_CHECKS` in `sterna.operations.alarms`, and reports metrics of what they go by.

    Args:
        limit: the lag from which on the task fails.
        ignore_held: patterns of tables that may be held without an alarm; None for `[sterna] ignore_held`.
        gc_limit: how long evidence of a run may stay, which a clean-up deletes; 0 where no clean-up is run; None for
            `[sterna] gc_limit`.
        slot_limit: the share of `max_slot_wal_keep_size` that a slot may need; None for `[sterna] slot_limit`.
        kwargs: see `SternaServicesOperator`; of the services file section `maintenance` counts.
    """

    def __init__(
        self,
        *,
        limit: timedelta,
        ignore_held: Sequence[str] | None = None,
        gc_limit: timedelta | None = None,
        slot_limit: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.limit = limit
        self.ignore_held = ignore_held
        self.gc_limit = gc_limit
        self.slot_limit = slot_limit

    def execute(self, context: TaskContext) -> float | None:
        """Look, report metrics, and return the lag in seconds, without the tables that may be held."""
        from sterna.errors import ServicesError

        limits = read_limits(self.limit, self.ignore_held, self.gc_limit, self.slot_limit)
        maintenance, services_error = None, None
        try:
            maintenance = self.read_services().maintenance
        except ServicesError as error:  # told in the end: it hides nothing else
            services_error = error
        lag = check_region(self.open(), limits, self.log_progress, maintenance)
        if services_error:
            raise services_error
        return lag


def read_limits(
    lag: timedelta, ignore_held: Sequence[str] | None, gc: timedelta | None, slot: float | None
) -> AlarmLimits:
    """Return the limits of alarms: the caller's values, else those of Airflow's configuration.

    Raises:
        UsageError: a setting is wrong.
    """
    from sterna.operations.alarms import AlarmLimits

    evidence_limit = get_timedelta("gc_limit") if gc is None else gc
    return AlarmLimits(
        lag=lag.total_seconds(),
        ignore_held=get_patterns("ignore_held") if ignore_held is None else tuple(ignore_held),
        gc=evidence_limit.total_seconds() or None,
        slot=get_float("slot_limit") if slot is None else slot,
    )


def check_region(
    region: RegionContext, limits: AlarmLimits, progress: Progress, maintenance: Maintenance | None = None
) -> float | None:
    """Read a region's state and report metrics; return its lag in seconds, without the tables that may be held.

    Args:
        limits: the thresholds of alarms.
        progress: called with lines for people.
        maintenance: section `maintenance` of the services file; None where there is none.

    Raises:
        AirflowFailException: there are alarms; its message has all of them, a line each.
        CatalogError: the region's own catalog does not answer.
    """
    from sterna.operations.alarms import alarm_lag, find_alarms
    from sterna.operations.status.read import read_alarm_status

    status = read_alarm_status(region, evidence=limits.gc is not None, maintenance=maintenance)
    _log_status(status, progress)
    raised = find_alarms(status, limits)
    record_status(status, limits)
    fail_with([alarm.message for alarm in raised])
    return alarm_lag(status, limits)


def _log_status(status: RegionStatus, progress: Progress) -> None:
    from sterna.errors import printable
    from sterna.operations.alarms import oldest_first
    from sterna.text.status import transit_line

    if status.cut_off:
        progress(printable(status.cut_off.line))
    if status.unread_held:
        progress(status.unread_held.line)
    for check in status.unseen:
        progress(printable(f"not read: {check}"))
    for table in status.transit:
        progress(printable(transit_line(table)))
    held = oldest_first(status.held)
    for held_table in held[:_MAX_SHOWN_HELD]:
        progress(
            printable(
                f"held: {held_table.held.key}: {held_table.held.kind}: {held_table.held.reason}; {held_table.do}"
                f"{f', see {held_table.card}' if held_table.card else ''}"
            )
        )
    if len(held) > _MAX_SHOWN_HELD:
        progress(f"and {len(held) - _MAX_SHOWN_HELD} more tables held: sterna status has all of them")
