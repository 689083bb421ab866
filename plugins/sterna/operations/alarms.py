"""The alarms of a region: pure, from its status and the limits that an operator has set."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from sterna.config.registry.policy import matching_pattern
from sterna.errors import ExitCode, list_some, printable
from sterna.runtime.status import Condition, blocked, is_overdue

if TYPE_CHECKING:
    from sterna.operations.objectives import ObjectiveStatus
    from sterna.operations.status.model import HeldStatus, InTransitStatus, RegionStatus
    from sterna.replication.replica.held import Held

_MAX_NAMED_TABLES = 5  # tables in one alarm
_HEALTHY_WAL_STATUSES = ("reserved", "extended")  # with any other status Postgres may drop the log


@dataclass(frozen=True)
class AlarmLimits:
    """The limits beyond which something is an alarm.

    Args:
        lag: seconds that a region, or a table that it holds, may be behind.
        ignore_held: patterns, as in policies, of tables that an operator accepts to be held.
        gc: seconds that evidence of a run may stay, which a clean-up deletes when it is older than its `--keep`; None
            where no clean-up is run.
        slot: the share of what the primary keeps of its log at most, that a region may need.
    """

    lag: float
    ignore_held: tuple[str, ...] = ()
    gc: float | None = None
    slot: float = 0.8


@dataclass(frozen=True)
class AlarmCheck:
    """One kind of alarm.

    Args:
        kind: its name, in the pages' JSON as well; the run book has an entry for each.
        condition: when it is raised, for people; Airflow shows it beside the DAG of the alert.
        text: returns what is wrong with a region, in one line, or "".
        entry: anchor of its entry in the run book; "" where the text names an error's card.
        exit_code: of `sterna status`.
    """

    kind: str
    condition: str
    text: Callable[[RegionStatus, AlarmLimits], str]
    entry: str
    exit_code: ExitCode = ExitCode.SUCCESS


def find_alarms(status: RegionStatus, limits: AlarmLimits) -> tuple[Condition, ...]:
    """Return what is wrong with a region, as conditions by their kinds; empty when it needs no operator.

    What is unknown is an alarm: a branch that can't be used, a table that is held since an unknown time, and what could
    not be read.
    """
    texts = ((check, printable(check.text(status, limits))) for check in ALARM_CHECKS)
    return tuple(
        blocked(check.kind, _with_entry(check, text), exit_code=check.exit_code) for check, text in texts if text
    )


def _with_entry(check: AlarmCheck, text: str) -> str:
    from sterna.operations.run_book import entry_link  # Airflow parses what this module imports

    return f"{text}: see {entry_link(check.entry)}" if check.entry else text


def alarm_lag(status: RegionStatus, limits: AlarmLimits) -> float | None:
    """Return a region's lag without the held tables that an operator accepts; None when it is unknown."""
    from sterna.replication.replica.lag import Lags, held_lag  # Airflow parses what this module imports

    if status.watermark_lag_seconds is None:
        return None
    held = held_lag(without_allowed([table.held for table in status.held], limits.ignore_held))
    if status.unread_held:
        held = status.held_lag_seconds  # which of them are accepted is unknown
    return Lags(status.watermark_lag_seconds, held, status.transit_lag_seconds).oldest


def without_allowed(held: Iterable[Held], allowed: Sequence[str]) -> list[Held]:
    """Return the held keys that no pattern of an operator accepts to be held.

    One that waits for an accepted one is not accepted by that.
    """
    return [table for table in held if matching_pattern(list(allowed), table.key) is None]


def oldest_first(held: Iterable[HeldStatus]) -> list[HeldStatus]:
    """Return held keys, first those of unknown lag, then by their lag."""
    return sorted(held, key=lambda table: (table.lag_seconds is not None, -(table.lag_seconds or 0.0), table.held.key))


def evidence_age(status: RegionStatus) -> float | None:
    """Return the age of the oldest evidence of a run in seconds; None when there is none or it was not read."""
    if not status.oldest_evidence:
        return None
    return (datetime.now(UTC) - datetime.fromisoformat(status.oldest_evidence)).total_seconds()


def budget_text(objective: ObjectiveStatus) -> str:
    """Return what is left of a week's budget, in words."""
    if objective.left is None:
        return "what is left of its budget is unknown"
    if objective.left < 0:
        return f"its budget is exceeded {1 - objective.left:.3g} times"
    return f"{100 * objective.left:.3g} % of its budget is left"


def _branch_text(status: RegionStatus, _: AlarmLimits) -> str:
    if not status.problem_kind:
        return status.problem
    return f"{status.problem_kind}: {status.problem}: see {status.problem_card}"


def _cut_off_text(status: RegionStatus, _: AlarmLimits) -> str:
    return f"{status.region} is {status.cut_off.line}" if status.cut_off else ""


def _upkeep_text(status: RegionStatus, _: AlarmLimits) -> str:
    return "; ".join(region.line for region in status.silent or ())


def _lag_text(status: RegionStatus, limits: AlarmLimits) -> str:
    lag = status.watermark_lag_seconds
    if status.problem or not is_overdue(lag, limits.lag):
        return ""
    bound = "at most " if status.cut_off else ""
    distance = "an unknown time" if lag is None else f"{bound}{lag:.0f} s"
    return f"{status.region} lags {distance} behind main: {status.branch} is at main@{status.watermark or 'nothing'}"


def _unread_held_text(status: RegionStatus, _: AlarmLimits) -> str:
    return f"{status.region}: {status.unread_held.line}" if status.unread_held else ""


def _held_text(status: RegionStatus, limits: AlarmLimits) -> str:
    counted_keys = {
        counted.key for counted in without_allowed([table.held for table in status.held], limits.ignore_held)
    }
    overdue = [
        held_table
        for held_table in oldest_first(status.held)
        if held_table.held.key in counted_keys and is_overdue(held_table.lag_seconds, limits.lag)
    ]
    if not overdue:
        return ""
    details = list_some([_held_table_text(held_table) for held_table in overdue], _MAX_NAMED_TABLES, "; ")
    return f"{status.region} holds {len(overdue)} tables for more than {limits.lag:.0f} s, the oldest first: {details}"


def _transit_text(status: RegionStatus, limits: AlarmLimits) -> str:
    overdue = [table for table in status.transit if is_overdue(table.lag_seconds, limits.lag)]
    if not overdue:
        return ""
    details = list_some([_transit_table_text(table) for table in overdue], _MAX_NAMED_TABLES, "; ")
    return f"{status.region} lags behind main by more than {limits.lag:.0f} s with tables in transit: {details}"


def _objective_text(status: RegionStatus, _: AlarmLimits) -> str:
    burning = [_burning_text(objective) for objective in _objectives(status) if objective.burning]
    return f"{status.region} misses an objective: {'; '.join(burning)}" if burning else ""


def _burning_text(objective: ObjectiveStatus) -> str:
    rate = max(objective.burn.values())
    return (
        f"{objective.name}: {objective.late} of {objective.count} versions of a week are late, "
        f"{budget_text(objective)}, burning at up to {rate:.3g} times what it allows"
    )


def _unknown_objective_text(status: RegionStatus, _: AlarmLimits) -> str:
    unknown = [objective.name for objective in _objectives(status) if objective.burning is None]
    if not unknown or status.problem or status.cut_off:  # then that is the reason, and an alarm itself
        return ""
    return f"{status.region}: whether objectives are met is unknown: {status.delays.problem if status.delays else ''}"


def _objectives(status: RegionStatus) -> tuple[ObjectiveStatus, ...]:
    return status.delays.objectives if status.delays else ()


def _transit_table_text(table: InTransitStatus) -> str:
    lag = "an unknown time" if table.lag_seconds is None else f"{table.lag_seconds:.0f} s"
    idle = ", and no bulk run is copying it" if table.under_way is False and table.bytes_left else ""
    return f"{table.held.key} by {lag}, {table.bytes_left} bytes left{idle}"


def _held_table_text(table: HeldStatus) -> str:
    lag = "an unknown time" if table.lag_seconds is None else f"{table.lag_seconds:.0f} s"
    return f"{table.held.key} for {lag}: {table.held.kind}: {table.held.reason} {table.held.file}".rstrip()


def _gc_text(status: RegionStatus, limits: AlarmLimits) -> str:
    age = evidence_age(status)
    if limits.gc is None or age is None or not is_overdue(age, limits.gc):
        return ""
    return (
        f"no clean-up of {status.region} gets ahead: evidence of a run is {age:.0f} s old, and one that works deletes "
        "it when it is older than its --keep: see sterna gc"
    )


def _unseen_text(status: RegionStatus, _: AlarmLimits) -> str:
    if not status.unseen or status.cut_off:  # then that is the reason, and an alarm itself
        return ""
    return f"the state of {status.region} is incomplete; not read: {'; '.join(status.unseen)}"


def _slots_text(status: RegionStatus, limits: AlarmLimits) -> str:
    critical = [
        f"{slot.name}: {slot.wal_status}, {'' if slot.active else 'NOT '}active, {slot.behind} bytes behind"
        for slot in status.slots
        if slot.wal_status not in _HEALTHY_WAL_STATUSES or (slot.used or 0.0) >= limits.slot
    ]
    return f"replication slots near or over max_slot_wal_keep_size: {'; '.join(critical)}" if critical else ""


ALARM_CHECKS: Final = (
    AlarmCheck("branch", "the replica branch can't be used", _branch_text, "", ExitCode.CHANGED),
    AlarmCheck(
        "lag",
        "the oldest commit on `main` that this region does not serve yet is older than `[sterna] lag_limit`",
        _lag_text,
        "r-lags--s-behind-main",
    ),
    AlarmCheck(
        "transit",
        "a table is in transit for as long",
        _transit_text,
        "r-lags-behind-main-by-more-than--s-with-tables-in-transit",
    ),
    AlarmCheck(
        "held",
        "a table is held for as long, unless `[sterna] ignore_held` names it",
        _held_text,
        "r-holds--tables-for-more-than--s",
    ),
    AlarmCheck(
        "held",
        "the list of held tables can't be read",
        _unread_held_text,
        "r--tables-are-held-among-them--the-list-of-held-tables-cant-be-read",
        ExitCode.RETRY_LATER,
    ),
    AlarmCheck(
        "objective", "an `objective` of a policy burns its budget too fast", _objective_text, "r-misses-an-objective-"
    ),
    AlarmCheck(
        "objective",
        "whether an `objective` is met can't be said",
        _unknown_objective_text,
        "r-whether-objectives-are-met-is-unknown-",
        ExitCode.RETRY_LATER,
    ),
    AlarmCheck(
        "cut off",
        "the region is cut off from the primary's catalog",
        _cut_off_text,
        "r-is-cut-off-primary--does-not-answer",
        ExitCode.RETRY_LATER,
    ),
    AlarmCheck("gc", "no clean-up has made progress for `[sterna] gc_limit`", _gc_text, "no-clean-up-of-r-gets-ahead"),
    AlarmCheck(
        "slot",
        "a replication slot is near its limit (`[sterna] slot_limit`)",
        _slots_text,
        "replication-slots-near-or-over-max_slot_wal_keep_size",
    ),
    AlarmCheck(
        "upkeep",
        "maintenance is configured, and waits for a silent region",
        _upkeep_text,
        "maintenance-of-main-waits-for-r",
    ),
    AlarmCheck(
        "unseen",
        "a part of the region's state can't be read",
        _unseen_text,
        "the-state-of-r-is-incomplete-not-read-",
        ExitCode.RETRY_LATER,
    ),
)
"""All alarms, in the order in which they are shown."""
