"""Histograms of delays: never too little, exact where they are short, and the same in any order."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from sterna.replication.replica.delays import bucket_of, histogram_of, late_count, merge_histograms, percentile

DELAYS = st.lists(st.floats(min_value=0, max_value=1e7), max_size=50)


@given(st.floats(min_value=-100, max_value=1e8))
def test_a_bucket_says_a_64th_too_much_at_most_and_never_too_little(delay: float) -> None:
    bucket = bucket_of(delay)
    assert bucket >= delay
    assert bucket <= max(128, math.ceil(delay) * (1 + 1 / 64))
    assert bucket_of(bucket) == bucket
    if delay <= 128:
        assert bucket == max(0, math.ceil(delay))


@given(st.floats(min_value=0, max_value=1e8), st.floats(min_value=0, max_value=1e8))
def test_a_longer_delay_has_no_smaller_bucket(one: float, other: float) -> None:
    assert bucket_of(min(one, other)) <= bucket_of(max(one, other))


@given(DELAYS, DELAYS, DELAYS)
def test_histograms_are_merged_in_any_order(one: list[float], other: list[float], third: list[float]) -> None:
    parts = [histogram_of((delay, 1) for delay in delays) for delays in (one, other, third)]
    whole = histogram_of((delay, 1) for delay in [*one, *other, *third])
    assert merge_histograms(parts) == merge_histograms([merge_histograms(parts[:2]), parts[2]]) == whole
    assert merge_histograms(reversed(parts)) == whole


@given(DELAYS, st.floats(min_value=0, max_value=1))
def test_a_percentile_is_that_of_the_sorted_delays(delays: list[float], share: float) -> None:
    found = percentile(histogram_of((delay, 1) for delay in delays), share)
    if not delays:
        assert found is None
        return
    needed = max(1, math.ceil(round(share * len(delays), 6)))
    assert found == bucket_of(sorted(delays)[needed - 1])


def test_99_of_100_are_99() -> None:
    histogram = histogram_of([(1.0, 99), (50.0, 1)])
    assert (percentile(histogram, 0.99), percentile(histogram, 1.0)) == (1, 50)


@given(DELAYS, st.integers(min_value=1, max_value=100_000))
def test_late_is_what_is_over_the_limit_and_what_only_may_be(delays: list[float], limit: int) -> None:
    late = late_count(histogram_of((delay, 1) for delay in delays), limit)
    assert sum(delay > limit for delay in delays) <= late <= sum(delay * (1 + 1 / 64) + 1 > limit for delay in delays)
    if limit <= 128:
        assert late == sum(delay > limit for delay in delays)
