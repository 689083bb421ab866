"""Objectives of lag: what is left of a week's budget, and how fast it burns. Pure.

An objective allows a share of a week's new versions to be late: that is its budget. The burn rate says how many times
faster than that versions are late: with 1 the week ends with nothing left. Two windows decide, as is usual: the longer
one says that it is more than a moment, the shorter one that it goes on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sterna.replication.replica.delays import HOUR_SECONDS, Histogram, late_count

PERIOD_SECONDS: Final = 7 * 24 * HOUR_SECONDS
"""What a budget is for."""
_DIGITS = 12  # of a share, so that 1 - 0.99 is 0.01


@dataclass(frozen=True)
class BurnRule:
    """When a budget burns too fast: both windows have at least the rate.

    Args:
        long_seconds, short_seconds: the windows.
        rate: the burn rate.
    """

    long_seconds: int
    short_seconds: int
    rate: float


BURN_RULES: Final = (BurnRule(HOUR_SECONDS, 300, 14.4), BurnRule(6 * HOUR_SECONDS, 1_800, 6.0))
"""The rates and windows of Google's SRE workbook for alerts that can't wait."""
WINDOWS: Final = tuple(sorted({seconds for rule in BURN_RULES for seconds in (rule.long_seconds, rule.short_seconds)}))
_REACHABLE_SHARE = 0.5  # an objective that allows much can't burn at such rates: half of all counts there
_ALLOWED_RATE = 1.0  # a budget that lasts for the week doesn't burn too fast


@dataclass(frozen=True)
class ObjectiveStatus:
    """An objective of a policy, and how it is met.

    Args:
        policy: the policy's number in the registry, from 1.
        tables: its patterns.
        lag: seconds within which new versions are to be visible.
        share: of all, how many are to be.
        count, late: of the week's versions, open ones among them: how many there are, and how many were or are late.
        left: what is left of the week's budget: 1 is all of it, 0 nothing, below 0 it is exceeded. None: unknown.
        burn: the burn rate, by the seconds of its window; empty where unknown.
        burning: it burns too fast, by one of `BURN_RULES`; None: unknown.
    """

    policy: int
    tables: tuple[str, ...]
    lag: int
    share: float
    count: int = 0
    late: int = 0
    left: float | None = None
    burn: Mapping[int, float] = field(default_factory=dict)
    burning: bool | None = None

    @property
    def name(self) -> str:
        """What it is called in lines for people."""
        return f"{100 * self.share:.6g} % of {', '.join(self.tables)} within {self.lag} s"


def budget_left(count: int, late: int, share: float) -> float:
    """Return what is left of a budget; all of it where there was nothing to be late.

    Args:
        count: of versions.
        late: how many of them were late.
        share: how many of all are to be in time.
    """
    return 1.0 - burn_rate(count, late, share)


def burn_rate(count: int, late: int, share: float) -> float:
    """Return how many times faster than allowed versions are late."""
    return late / count / round(1.0 - share, _DIGITS) if count else 0.0


def is_burning(burn: Mapping[int, float], share: float) -> bool:
    """Return whether some rule has its rate in both of its windows.

    Args:
        burn: the burn rates, by the seconds of their window: of all `WINDOWS`.
        share: of all versions, how many are to be in time.
    """
    return any(
        min(burn[rule.long_seconds], burn[rule.short_seconds]) >= effective_rate(rule, share) for rule in BURN_RULES
    )


def effective_rate(rule: BurnRule, share: float) -> float:
    """Return the rate of a rule for an objective: no more than what half of all versions being late makes.

    Where an objective allows more than that, it is the rate that it allows.
    """
    return min(rule.rate, max(_ALLOWED_RATE, _REACHABLE_SHARE / round(1.0 - share, _DIGITS)))


def measure_objective(
    policy: int,
    tables: tuple[str, ...],
    lag: int,
    share: float,
    histograms: Mapping[int, Histogram],
) -> ObjectiveStatus:
    """Return how an objective is met.

    Args:
        policy, tables, lag, share: as in `ObjectiveStatus`.
        histograms: the delays of its tables, by the seconds of the window up to now: of `WINDOWS`, and of the week.
    """
    counts = {
        seconds: (sum(histogram.values()), late_count(histogram, lag)) for seconds, histogram in histograms.items()
    }
    count, late = counts[PERIOD_SECONDS]
    burn = {seconds: burn_rate(*counts[seconds], share) for seconds in WINDOWS}
    return ObjectiveStatus(
        policy,
        tables,
        lag,
        share,
        count,
        late,
        budget_left(count, late, share),
        burn,
        is_burning(burn, share),
    )
