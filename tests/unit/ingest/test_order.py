"""In which order a channel's batches are published, case by case."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sterna.errors import OutOfTurn, Rewound
from sterna.ingest.model import Batch, Lane, State
from sterna.ingest.order import MOST, Told, channel_of, step_of
from sterna.wap.model import TableState

LANE = Lane("acme", "acme.t", "eu.acme.default")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PUBLISHED = Told(written=True, rejected=False, settled=True)
REJECTED = Told(written=True, rejected=True, settled=True)
WAITS = Told(written=True, rejected=False, settled=False)
NOT_YET = Told(written=False, rejected=False, settled=False)
NEVER_WRITTEN = Told(written=False, rejected=False, settled=True)


def batch(number: int) -> Batch:
    return Batch(f"b{number}", LANE, number, State.CLOSED, 1, 1, 1, NOW, "files", NOW)


def table(mark: str = "") -> TableState:
    return TableState((), None, {channel_of(batch(1)).mark: mark} if mark else {})


def after(number: int, mark: str, **told: Told) -> str:
    return step_of(batch(number), table(mark), lambda each: told[f"n{each}"]).after


@pytest.mark.parametrize(
    ("number", "mark", "told", "wanted"),
    [
        (1, "", {}, ""),
        (3, "2", {}, "2"),
        (4, "2", {"n3": REJECTED}, "2"),
        (5, "2", {"n3": REJECTED, "n4": NEVER_WRITTEN}, "2"),
        (3, "", {"n1": REJECTED, "n2": REJECTED}, ""),
        # It is published by now, and `decide` says so.
        (2, "7", {}, ""),
    ],
)
def test_what_a_batch_goes_after(number: int, mark: str, told: dict[str, Told], wanted: str) -> None:
    assert after(number, mark, **told) == wanted


@pytest.mark.parametrize("told", [WAITS, NOT_YET])
def test_a_batch_before_it_comes_first(told: Told) -> None:
    with pytest.raises(OutOfTurn):
        after(4, "2", n3=told)


def test_a_table_that_has_forgotten_what_was_published_stops() -> None:
    with pytest.raises(Rewound):
        after(4, "2", n3=PUBLISHED)
    with pytest.raises(Rewound):
        step_of(batch(2), None, lambda _: PUBLISHED)


def test_a_table_that_was_never_there() -> None:
    assert step_of(batch(2), None, lambda _: REJECTED).after == ""


def test_what_waits_far_before_a_batch_is_not_passed_over() -> None:
    far = MOST + 10

    def told(number: int) -> Told:
        return WAITS if number == 1 else Told(written=True, rejected=True, settled=False)

    with pytest.raises(OutOfTurn):
        step_of(batch(far), table(), told)
    assert step_of(batch(far), table(), lambda _: REJECTED).after == ""
