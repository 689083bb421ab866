"""In which order a channel's batches are published, case by case."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from sterna.errors import OutOfTurn, Rewound
from sterna.pipelines.ingest.model import Batch, Destination, State
from sterna.pipelines.ingest.sequencing import MAX_NUMBERS, NumberStatus, build_step, parse_channel
from sterna.pipelines.publish.model import TableState

DESTINATION = Destination("acme", "acme.t", "eu.acme.default")
NOW = datetime(2026, 1, 1, tzinfo=UTC)
PUBLISHED = NumberStatus(is_written=True, is_rejected=False, is_settled=True)
REJECTED = NumberStatus(is_written=True, is_rejected=True, is_settled=True)
WAITS = NumberStatus(is_written=True, is_rejected=False, is_settled=False)
NOT_YET = NumberStatus(is_written=False, is_rejected=False, is_settled=False)
NEVER_WRITTEN = NumberStatus(is_written=False, is_rejected=False, is_settled=True)


def batch(number: int) -> Batch:
    return Batch(f"b{number}", DESTINATION, number, State.CLOSED, 1, 1, 1, NOW, "files", NOW)


def table(mark: str = "") -> TableState:
    return TableState((), None, {parse_channel(batch(1)).position_property: mark} if mark else {})


def after(number: int, mark: str, **statuses: NumberStatus) -> str:
    return build_step(batch(number), table(mark), lambda earlier: statuses[f"n{earlier}"]).previous


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
def test_what_a_batch_goes_after(number: int, mark: str, told: dict[str, NumberStatus], wanted: str) -> None:
    assert after(number, mark, **told) == wanted


@pytest.mark.parametrize("told", [WAITS, NOT_YET])
def test_a_batch_before_it_comes_first(told: NumberStatus) -> None:
    with pytest.raises(OutOfTurn):
        after(4, "2", n3=told)


def test_a_table_that_has_forgotten_what_was_published_stops() -> None:
    with pytest.raises(Rewound):
        after(4, "2", n3=PUBLISHED)
    with pytest.raises(Rewound):
        build_step(batch(2), None, lambda _: PUBLISHED)


def test_a_table_that_was_never_there() -> None:
    assert build_step(batch(2), None, lambda _: REJECTED).previous == ""


def test_what_waits_far_before_a_batch_is_not_passed_over() -> None:
    far = MAX_NUMBERS + 10

    def read_status(number: int) -> NumberStatus:
        return WAITS if number == 1 else NumberStatus(is_written=True, is_rejected=True, is_settled=False)

    with pytest.raises(OutOfTurn):
        build_step(batch(far), table(), read_status)
    assert build_step(batch(far), table(), lambda _: REJECTED).previous == ""
