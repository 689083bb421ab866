"""Delays: how long after its commit on `main` a region's catalog showed a table's new version, as histograms.

A bucket is named by its upper end in whole seconds. Up to 128 s each second has one. Above that a bucket is as wide as
a 64th of its delays at most. So a histogram says a little too much at times, and never too little.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Final

Histogram = Mapping[int, int]
"""Counts by the upper ends of their buckets, in seconds."""

HOUR_SECONDS: Final = 3_600
SLOT_SECONDS: Final = 300
"""The part of an hour whose delays are counted together."""
SLOTS: Final = HOUR_SECONDS // SLOT_SECONDS
_EXACT_SECONDS = 128
_EXACT_BITS = 7


def bucket_of(seconds: float) -> int:
    """Return the bucket of a delay; one below zero, of clocks that differ, counts as none.

    Args:
        seconds: the delay.
    """
    whole = max(0, math.ceil(seconds))
    if whole <= _EXACT_SECONDS:
        return whole
    width = 1 << ((whole - 1).bit_length() - _EXACT_BITS)
    return -(-whole // width) * width


def histogram_of(delays: Iterable[tuple[float, int]]) -> dict[int, int]:
    """Return the histogram of delays in seconds, each with how often it occurred."""
    counts: Counter[int] = Counter()
    for seconds, count in delays:
        counts[bucket_of(seconds)] += count
    return dict(counts)


def merge_histograms(histograms: Iterable[Histogram]) -> dict[int, int]:
    """Return one histogram of all delays of some."""
    total: Counter[int] = Counter()
    for histogram in histograms:
        total.update(histogram)
    return dict(total)


def percentile(histogram: Histogram, share: float) -> int | None:
    """Return the delay within which a share of a histogram's delays is; None where it is empty.

    Args:
        share: from 0 to 1; 1: all of them, so the longest one.
    """
    total = sum(histogram.values())
    if not total:
        return None
    # A share such as 0.99 of 100 is 99 delays, though its binary form is a little more.
    needed = max(1, math.ceil(round(share * total, 6)))
    counted = 0
    for bucket in sorted(histogram):
        counted += histogram[bucket]
        if counted >= needed:
            return bucket
    return max(histogram)


def late_count(histogram: Histogram, limit_seconds: float) -> int:
    """Return how many delays are longer than a limit; one that only may be longer counts."""
    return sum(count for bucket, count in histogram.items() if bucket > limit_seconds)
