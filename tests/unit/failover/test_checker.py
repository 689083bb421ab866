"""The checker of histories finds what it is there for."""

from __future__ import annotations

import pytest

from tests.support.ha.checker import AcceptedCommit, History

MAIN = ("m4", "m3", "m2", "m1")
LOST = ("l4", "l3", "m2", "m1")
EPOCHS = [(1, "us", "m0"), (2, "eu", "m2")]


def seen(*heads: str) -> History:
    return History(seen={"us": list(heads)})


@pytest.mark.parametrize("heads", [("m1", "m2", "m4"), ("m2", "l3", "l4", "m2", "m4"), ("m1",)])
def test_reads_that_go_forward(heads: tuple[str, ...]) -> None:
    seen(*heads).assert_forward("us", MAIN, LOST)


@pytest.mark.parametrize(
    "heads", [("m3", "m1"), ("m4", "l4"), ("l4", "l3"), ("l4", "m4", "l4"), ("l3", "m3", "l4", "m4"), ("m1", "x")]
)
def test_reads_that_go_backwards(heads: tuple[str, ...]) -> None:
    with pytest.raises(AssertionError):
        seen(*heads).assert_forward("us", MAIN, LOST)


def test_a_lost_commit() -> None:
    History([AcceptedCommit("m1", "us"), AcceptedCommit("m4", "eu")]).assert_nothing_lost(MAIN)
    with pytest.raises(AssertionError):
        History([AcceptedCommit("m1", "us"), AcceptedCommit("l3", "us")]).assert_nothing_lost(MAIN)


def test_two_primaries_in_one_epoch() -> None:
    History(
        [AcceptedCommit("m2", "us"), AcceptedCommit("m3", "eu"), AcceptedCommit("l3", "us")]
    ).assert_one_primary_per_term(MAIN, EPOCHS)
    for accepted in (AcceptedCommit("m3", "us"), AcceptedCommit("m2", "eu")):
        with pytest.raises(AssertionError):
            History([accepted]).assert_one_primary_per_term(MAIN, EPOCHS)
