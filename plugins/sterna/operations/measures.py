"""A region's status as numbers, under the names that Airflow's statistics and a gateway's `/metrics` share: pure.

What is unknown has no number: a rule of an alert sees that it is absent, and never a good value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sterna.operations.alarms import AlarmLimits, evidence_age, find_alarms, without_allowed
from sterna.operations.objectives import BURN_RULES
from sterna.operations.status.delay_model import RegionDelays
from sterna.operations.status.model import RegionStatus
from sterna.replication.replica.held import Held
from sterna.replication.replica.lag import Lags, held_lag

_WINDOW_NAMES: Final = {
    BURN_RULES[0].short_seconds: "5m",
    BURN_RULES[1].short_seconds: "30m",
    BURN_RULES[0].long_seconds: "1h",
    BURN_RULES[1].long_seconds: "6h",
}


@dataclass(frozen=True)
class Measure:
    """One number.

    Args:
        name: without the prefix `sterna`.
        labels: beside the region's name; none names a table, for a gateway shows these numbers without a token.
    """

    name: str
    value: float
    labels: Mapping[str, str] = field(default_factory=dict)


MEASURES: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = {
    "lag_seconds": ("How far the region is behind, with all tables.", ()),
    "watermark_lag_seconds": ("Without tables held or in transit.", ()),
    "held_lag_seconds": ("Of the table that is held for longest.", ()),
    "transit_lag_seconds": ("The same of tables in transit.", ()),
    "held_tables": ("Tables that are held.", ()),
    "held_ignored_tables": ("Those of them that an operator accepts.", ()),
    "transit_tables": ("Tables in transit.", ()),
    "transit_bytes": ("Bytes that are left to be copied for these.", ()),
    "delay_seconds": ("Delays of new versions.", ("window", "quantile")),
    "delays": ("How many new versions these are.", ("window",)),
    "delays_unknown": ("Whether that is unknown.", ()),
    "objective_left": ("What is left of the week's budget.", ("policy",)),
    "objective_burn_rate": ("How fast it burns.", ("policy", "window")),
    "objective_burning": ("Whether that is too fast.", ("policy",)),
    "objective_unknown": ("Objectives of which nothing is known.", ()),
    "alarms": ("Alarms of the region.", ()),
    "unseen": ("Parts of its state that can't be read.", ()),
    "cut_off": ("Whether it is cut off from the primary.", ()),
    "gc_lag_seconds": ("Age of the oldest evidence of a run.", ()),
    "stored_bytes": ("Bytes below the replica root.", ()),
    "evidence_bytes": ("Those of plans and reports.", ()),
    "superseded_bytes": ("Those of metadata of older heads.", ()),
    "garbage_bytes": ("Those that may be deleted.", ()),
    "maintenance_waits_for": ("Regions that maintenance waits for.", ()),
    "slot_behind_bytes": ("What the primary keeps of its log.", ()),
    "slot_used": ("The share of its limit.", ()),
}
"""What each is, and its labels beside the region, in the order in which they are shown."""


def region_measures(status: RegionStatus, limits: AlarmLimits) -> list[Measure]:
    """Return the numbers of a region's status.

    Args:
        limits: of alarms. Tables that an operator accepts to be held are counted, and make no lag.
    """
    return [
        *_lags(status, limits.ignore_held),
        *(_delays(status.delays) if status.delays else ()),
        *_state(status, limits),
        *_storage(status),
    ]


def lag_measures(
    watermark: float | None,
    held: Sequence[Held],
    allowed: Sequence[str],
    transit_bytes: Sequence[int],
    transit_lag: float | None,
) -> Iterator[Measure]:
    """Yield how many tables stay behind, and the lags in seconds; an unknown lag has no number.

    Args:
        watermark: the region's lag without the tables that stay behind; None: unknown.
        held: the tables that are held.
        allowed: patterns of those that an operator accepts to be held: they are counted, and make no lag.
        transit_bytes: of each table in transit, the bytes that are left to be copied.
        transit_lag: of the table in transit for longest; None: unknown.
    """
    counted = without_allowed(held, allowed)
    yield Measure("held_tables", len(held))
    yield Measure("held_ignored_tables", len(held) - len(counted))
    yield Measure("transit_tables", len(transit_bytes))
    yield Measure("transit_bytes", sum(transit_bytes))
    yield from _lag_seconds(watermark, held_lag(counted), transit_lag)
    if transit_lag is not None:
        yield Measure("transit_lag_seconds", transit_lag)


def _lags(status: RegionStatus, allowed: Sequence[str]) -> Iterator[Measure]:
    watermark, transit_lag = status.watermark_lag_seconds, status.transit_lag_seconds
    if status.unread_held:  # which of them are accepted or in transit is unknown
        yield Measure("held_tables", status.unread_held.count)
        yield from _lag_seconds(watermark, status.held_lag_seconds, transit_lag)
    else:
        held, transit_bytes = [table.held for table in status.held], [table.bytes_left for table in status.transit]
        yield from lag_measures(watermark, held, allowed, transit_bytes, transit_lag)


def _lag_seconds(watermark: float | None, held: float | None, transit: float | None) -> Iterator[Measure]:
    oldest = None if watermark is None else Lags(watermark, held, transit).oldest
    lags = {"lag_seconds": oldest, "watermark_lag_seconds": watermark, "held_lag_seconds": held}
    yield from (Measure(name, lag) for name, lag in lags.items() if lag is not None)


def _delays(delays: RegionDelays) -> Iterator[Measure]:
    yield Measure("delays_unknown", int(bool(delays.problem)))
    for summary in delays.windows:
        labels = {"window": summary.window}
        yield Measure("delays", summary.count, labels)
        for quantile, seconds in {
            "0.5": summary.p50,
            "0.95": summary.p95,
            "0.99": summary.p99,
            "1": summary.most,
        }.items():
            if seconds is not None:
                yield Measure("delay_seconds", seconds, {**labels, "quantile": quantile})
    yield Measure("objective_unknown", sum(objective.burning is None for objective in delays.objectives))
    for objective in delays.objectives:
        labels = {"policy": str(objective.policy)}
        if objective.left is not None:
            yield Measure("objective_left", objective.left, labels)
            yield Measure("objective_burning", int(bool(objective.burning)), labels)
        for seconds, rate in objective.burn.items():
            yield Measure("objective_burn_rate", rate, {**labels, "window": _WINDOW_NAMES[seconds]})


def _state(status: RegionStatus, limits: AlarmLimits) -> Iterator[Measure]:
    yield Measure("alarms", len(find_alarms(status, limits)))
    yield Measure("unseen", len(status.unseen))
    yield Measure("cut_off", int(status.cut_off is not None))
    age = evidence_age(status)
    if age is not None:
        yield Measure("gc_lag_seconds", age)
    if status.silent is not None:
        yield Measure("maintenance_waits_for", len(status.silent))
    if status.slots:
        yield Measure("slot_behind_bytes", max(slot.behind for slot in status.slots))
    used = [slot.used for slot in status.slots if slot.used is not None]
    if used:
        yield Measure("slot_used", max(used))


def _storage(status: RegionStatus) -> Iterator[Measure]:
    if status.stored:
        yield Measure("stored_bytes", status.stored.objects.bytes)
        yield Measure("evidence_bytes", status.stored.evidence.bytes)
        yield Measure("superseded_bytes", status.stored.superseded.bytes)
        yield Measure("garbage_bytes", status.stored.garbage.bytes)
