"""Objectives: what is left of a budget, and when it burns too fast."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from sterna.config.registry.policy import Objective
from sterna.operations.objectives import (
    BURN_RULES,
    PERIOD_SECONDS,
    WINDOWS,
    budget_left,
    burn_rate,
    effective_rate,
    is_burning,
    measure_objective,
)

SHARES = st.floats(min_value=0.01, max_value=0.9999)
ALL_SHARES = st.floats(min_value=1e-12, max_value=0.999999)


def test_a_budget_is_the_share_that_may_be_late() -> None:
    assert budget_left(1000, 0, 0.99) == 1.0
    assert budget_left(1000, 5, 0.99) == pytest.approx(0.5)
    assert budget_left(1000, 10, 0.99) == pytest.approx(0.0)
    assert budget_left(1000, 20, 0.99) == pytest.approx(-1.0)
    assert budget_left(0, 0, 0.99) == 1.0


@given(st.integers(1, 10**6), st.integers(0, 10**6), SHARES)
def test_what_is_left_falls_with_what_is_late(count: int, late: int, share: float) -> None:
    late = min(count, late)
    assert budget_left(count, late, share) <= 1.0
    assert (budget_left(count, late, share) >= -1e-6) == (late <= count * (1 - share) * (1 + 1e-6))
    assert burn_rate(count, late, share) == pytest.approx(1 - budget_left(count, late, share))


@given(ALL_SHARES)
def test_whatever_an_objective_allows_all_late_burns_and_none_late_does_not(share: float) -> None:
    late, sound = (dict.fromkeys(WINDOWS, burn_rate(10, late, share)) for late in (10, 0))
    assert is_burning(late, share)
    assert not is_burning(sound, share)


@given(ALL_SHARES)
def test_what_an_objective_allows_does_not_burn(share: float) -> None:
    allowed = dict.fromkeys(WINDOWS, burn_rate(10**9, math.floor(10**9 * (1 - share) * 0.999), share))
    assert not is_burning(allowed, share)


def test_both_windows_of_a_rule_have_to_burn() -> None:
    fast, slow = BURN_RULES
    sound = dict.fromkeys(WINDOWS, 0.0)
    for rule in (fast, slow):
        both = {**sound, rule.long_seconds: rule.rate, rule.short_seconds: rule.rate}
        assert is_burning(both, 0.99)
        assert not is_burning({**both, rule.short_seconds: 0.0}, 0.99), "it is over"
        assert not is_burning({**both, rule.long_seconds: 0.0}, 0.99), "it was a moment"
    assert effective_rate(fast, 0.99) == fast.rate
    assert effective_rate(fast, 0.5) == 1.0
    assert effective_rate(fast, 0.3) == 1.0


def test_a_share_of_which_no_budget_is_left_is_none() -> None:
    assert Objective(lag="60s", share=0.999999).share == 0.999999
    for share in (0.0, 0.9999999999, 1.0):
        with pytest.raises(ValidationError, match="share"):
            Objective(lag="60s", share=share)


def test_words_as_those_of_s3_rtc_can_be_held() -> None:
    week = {**{seconds: {} for seconds in WINDOWS}, PERIOD_SECONDS: {60: 9_990, 900: 9, 912: 1}}
    status = measure_objective(1, ("**",), 900, 0.999, week)
    assert (status.count, status.late, status.burning) == (10_000, 1, False)
    assert status.left == pytest.approx(0.9)
