from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

import pytest
from airflow.sdk import RetryAction

from sterna.airflow.retry import RemedyRetryPolicy
from sterna.errors import CatalogUnreachable, Remedy, SternaError, UnregisteredUri
from sterna.operations.run_book import error_card

POLICY = RemedyRetryPolicy(delay=timedelta(seconds=5), max_delay=timedelta(minutes=5))


def _classes(root: type[SternaError] = SternaError) -> Iterator[type[SternaError]]:
    yield root
    for child in root.__subclasses__():
        yield from _classes(child)


@pytest.mark.parametrize(
    "kind", sorted(set(_classes()), key=lambda kind: kind.__name__), ids=lambda kind: kind.__name__
)
def test_an_error_is_repeated_exactly_when_it_says_so(kind: type[SternaError]) -> None:
    decision = POLICY.evaluate(kind("it broke"), 1, 3)
    assert decision.action is (RetryAction.RETRY if kind.remedy is Remedy.RETRY else RetryAction.FAIL)
    card = error_card(kind("it broke"))
    assert decision.reason == f"{kind.__name__}: it broke{f', see {card}' if card else ''}"


def test_pauses_double_up_to_a_bound() -> None:
    pauses = [POLICY.evaluate(CatalogUnreachable("no answer"), number, 9).retry_delay for number in (1, 2, 3, 7, 1000)]
    assert pauses == [timedelta(seconds=seconds) for seconds in (5, 10, 20, 300, 300)]


def test_the_reason_names_table_and_file() -> None:
    error = UnregisteredUri("outside every prefix", table="shop.orders", file="s3://stray/x")
    assert (
        POLICY.evaluate(error, 1, 3).reason
        == "UnregisteredUri: outside every prefix [table shop.orders] [file s3://stray/x], "
        "see docs/operations.md#unregistereduri-on-a-table"
    )


def test_a_foreign_error_is_left_to_airflow() -> None:
    assert POLICY.evaluate(TimeoutError(), 1, 3).action is RetryAction.DEFAULT
