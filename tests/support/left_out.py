"""What a run of the tests left out, in words: what was skipped, and which option runs what wasn't asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

SERVERS = "they start servers, or take long: leave --quick out"
RARE = "they are a second kind of what every run has: --long"
RARE_REGIONS = "rare ways in which regions die: --regions, or --long"
EVERY_RUN = "every run has them: leave --long out"
ENGINES = "they start engines such as Trino and Flink: --engines"
NO_ENGINES = "they start no such engine: leave --engines out"
_QUICK = "not looked at: all that starts servers; leave --quick out"
_FEW = "only a little was played of what is random: --long"
_OTHER = "not looked at: tests/compose, which needs a container engine: python -m tests.compose --help"


def why_not(marks: Collection[str], *, quick: bool, long: bool, engines: bool) -> str:
    """Return why a test was left out, and which option runs it.

    Args:
        marks: the test's.
        quick: `--quick` was asked for.
        long: `--long` was asked for.
        engines: `--engines` was asked for.
    """
    if engines:
        return NO_ENGINES
    if "engines" in marks:
        return ENGINES
    if quick and "slow" in marks:
        return SERVERS
    if long:
        return EVERY_RUN
    return RARE_REGIONS if "regions" in marks else RARE


def lines(
    skipped: Iterable[str], left_out: Mapping[str, int], *, whole: bool, quick: bool, long: bool, engines: bool
) -> list[str]:
    """Return what to say at the end of a run; nothing where everything that was asked for ran.

    Args:
        skipped: the reasons of tests that skipped themselves.
        left_out: how many tests were left out, by the reason.
        whole: all tests were asked for, and not some of them by name.
        quick: `--quick` was asked for.
        long: `--long` was asked for.
        engines: `--engines` was asked for.
    """
    summary = [f"{number} skipped: {reason}" for reason, number in Counter(skipped).most_common()]
    summary += [f"{number} left out: {reason}" for reason, number in Counter(left_out).most_common()]
    if whole:
        summary += [*([_QUICK] if quick else []), *([] if long or engines else [_FEW]), _OTHER]
    return summary
