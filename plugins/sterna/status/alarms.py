"""What somebody has to be told of a region: pure, from its status and the limits that an operator has set."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from sterna.errors import printable
from sterna.registry.policy import matching
from sterna.replica.held import Held
from sterna.replica.lag import Lags, held_lag
from sterna.status.model import HeldNow, InTransitNow, RegionStatus

_NAMED = 5  # tables in one alarm
_SLOT_SOUND = ("reserved", "extended")  # of any other word of Postgres' nobody knows whether the log is kept


@dataclass(frozen=True)
class AlarmLimits:
    """From where on something is an alarm.

    Args:
        lag: seconds that a region, or a table that it holds, may be behind.
        allow_held: patterns, as in policies, of tables that an operator accepts to be held.
        gc: seconds that evidence of a run may stay, which a clean-up deletes when it is older than its `--keep`; None
            where no clean-up is run.
        slot: the share of what the primary keeps of its log at most, that a region may need.
    """

    lag: float
    allow_held: tuple[str, ...] = ()
    gc: float | None = None
    slot: float = 0.8


@dataclass(frozen=True)
class Alarm:
    """One thing that somebody has to be told.

    Args:
        kind: `branch`, `lag`, `transit`, `held`, `cut off`, `gc`, `slot`, `upkeep` or `unseen`; the run book
            has an entry for each.
        text: what is wrong, for people, in one line.
    """

    kind: str
    text: str


def alarms(status: RegionStatus, limits: AlarmLimits) -> tuple[Alarm, ...]:
    """Return what is wrong with a region; empty when it needs nobody.

    What is unknown is never taken for good: a branch that can't be used, a table of which nobody knows since when it
    is held, and what could not be looked at are alarms.

    Args:
        status: the region's state.
        limits: from where on something is an alarm.
    """
    found = {
        "branch": status.problem,
        "lag": _lag(status, limits),
        "transit": _transit(status, limits),
        "held": _held(status, limits),
        "cut off": f"{status.region} is {status.cut_off.line}" if status.cut_off else "",
        "gc": _gc(status, limits),
        "slot": _slots(status, limits),
        "upkeep": "; ".join(item.line for item in status.silent or ()),
        "unseen": _unseen(status),
    }
    return tuple(Alarm(kind, printable(text)) for kind, text in found.items() if text)


def counted_lag(status: RegionStatus, limits: AlarmLimits) -> float | None:
    """Return a region's lag without the held tables that an operator accepts; None when it is unknown."""
    if status.watermark_lag_seconds is None:
        return None
    held = held_lag(not_allowed([item.held for item in status.held], limits.allow_held))
    if status.unread_held:
        held = status.held_lag_seconds  # which of them are accepted, nobody knows
    return Lags(status.watermark_lag_seconds, held, status.transit_lag_seconds).oldest


def not_allowed(held: Iterable[Held], allowed: Sequence[str]) -> list[Held]:
    """Return the held keys that no pattern of an operator accepts to be held.

    One that waits for an accepted one is not accepted by that.
    """
    return [item for item in held if matching(list(allowed), item.key) is None]


def oldest_first(held: Iterable[HeldNow]) -> list[HeldNow]:
    """Return held keys, first those that nobody knows since when, then by their lag."""
    return sorted(held, key=lambda item: (item.lag_seconds is not None, -(item.lag_seconds or 0.0), item.held.key))


def evidence_age(status: RegionStatus) -> float | None:
    """Return how many seconds old the oldest evidence of a run is, None when there is none or nobody looked."""
    if not status.oldest_evidence:
        return None
    return (datetime.now(UTC) - datetime.fromisoformat(status.oldest_evidence)).total_seconds()


def _lag(status: RegionStatus, limits: AlarmLimits) -> str:
    lag = status.watermark_lag_seconds
    if status.problem or (lag is not None and lag <= limits.lag):
        return ""
    bound = "at most " if status.cut_off else ""
    far = "an unknown time" if lag is None else f"{bound}{lag:.0f} s"
    return f"{status.region} lags {far} behind main: {status.branch} stands for main@{status.watermark or 'nothing'}"


def _held(status: RegionStatus, limits: AlarmLimits) -> str:
    if status.unread_held:
        return f"{status.region}: {status.unread_held.line}"
    counting = {item.key for item in not_allowed([each.held for each in status.held], limits.allow_held)}
    late = [
        item
        for item in oldest_first(status.held)
        if item.held.key in counting and (item.lag_seconds is None or item.lag_seconds > limits.lag)
    ]
    if not late:
        return ""
    more = f"; and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
    named = "; ".join(_named(item) for item in late[:_NAMED])
    return f"{status.region} holds {len(late)} tables for more than {limits.lag:.0f} s, the oldest first: {named}{more}"


def _transit(status: RegionStatus, limits: AlarmLimits) -> str:
    late = [item for item in status.transit if item.lag_seconds is None or item.lag_seconds > limits.lag]
    if not late:
        return ""
    named = "; ".join(_moving(item) for item in late[:_NAMED])
    more = f"; and {len(late) - _NAMED} more" if len(late) > _NAMED else ""
    return f"{status.region} lags behind main by more than {limits.lag:.0f} s with tables in transit: {named}{more}"


def _moving(item: InTransitNow) -> str:
    lag = "an unknown time" if item.lag_seconds is None else f"{item.lag_seconds:.0f} s"
    idle = ", and no large lane is at work" if item.under_way is False and item.bytes_left else ""
    return f"{item.held.key} by {lag}, {item.bytes_left} bytes left{idle}"


def _named(item: HeldNow) -> str:
    lag = "an unknown time" if item.lag_seconds is None else f"{item.lag_seconds:.0f} s"
    return f"{item.held.key} for {lag}: {item.held.kind}: {item.held.reason} {item.held.file}".rstrip()


def _gc(status: RegionStatus, limits: AlarmLimits) -> str:
    age = evidence_age(status)
    if limits.gc is None or age is None or age <= limits.gc:
        return ""
    return (
        f"no clean-up of {status.region} gets ahead: evidence of a run is {age:.0f} s old, and one that works deletes "
        "it when it is older than its --keep: see sterna gc"
    )


def _unseen(status: RegionStatus) -> str:
    if not status.unseen or status.cut_off:  # then that is the reason, and an alarm itself
        return ""
    return f"can't tell whether {status.region} is well; not looked at: {'; '.join(status.unseen)}"


def _slots(status: RegionStatus, limits: AlarmLimits) -> str:
    near = [
        f"{slot.name}: {slot.wal_status}, {'' if slot.active else 'NOT '}active, {slot.behind} bytes behind"
        for slot in status.slots
        if slot.wal_status not in _SLOT_SOUND or (slot.used or 0.0) >= limits.slot
    ]
    return f"replication slots near or over max_slot_wal_keep_size: {'; '.join(near)}" if near else ""
