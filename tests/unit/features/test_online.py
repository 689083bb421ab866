"""The replica asked in the store's place: once for all who ask the same, a few at a time, and again where it helps.

Of the kind of `tests/unit/http/test_queries_shared.py`, too: a run or a place that is kept for somebody who has
gone, or for one reader at the cost of the others.
"""

from __future__ import annotations

import asyncio
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from sterna.config.sections.features import Features, FeatureView
from sterna.config.sections.load import parse_services
from sterna.errors import CatalogUnreachable, QueryEnded, QueryFailed, QueueFull, StoreUnreachable
from sterna.pipelines.features.model import FIELDS, value_head, view_digest
from sterna.pipelines.features.online import (
    AsOf,
    CacheStatus,
    FeatureReader,
    OnlineStore,
    ReadSlot,
    Requester,
    SourceRows,
)

DOC = (Path(__file__).parents[3] / "docs" / "features.md").read_text()
NOON = 1_767_268_800_000


def section() -> Features:
    """The example of the documents."""
    (example,) = re.findall(r"   ```yaml\n(   version: 1\n.*?)   ```", DOC, re.DOTALL)
    features = parse_services(textwrap.dedent(example), "docs/features.md").features
    assert features is not None
    return features


class Replica:
    """Rows of a replica that takes its time."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.reads = self.under_way = self.most = 0
        self.order: list[str] = []
        self.go = asyncio.Event()

    async def rows(self, view: FeatureView, ids: Sequence[str], as_of: AsOf | None, turn: ReadSlot) -> SourceRows:
        async with turn.acquire():
            self.reads += 1
            self.order += ids
            self.under_way += 1
            self.most = max(self.most, self.under_way)
            try:
                await self.go.wait()
                if self.errors:
                    raise self.errors.pop(0)
                return SourceRows(7, NOON, {id: [30, "x", "2026-01-01T11:00:00Z"] for id in ids if id != "0"})
            finally:
                self.under_way -= 1


def read(replica: Replica, ids: Sequence[str], features: Features | None = None, as_of: AsOf | None = None) -> Any:
    features = features or section()
    reader = FeatureReader(features, None, replica, retry_seconds=0.0, clock=lambda: NOON / 1000)

    async def run() -> Any:
        replica.go.clear()
        tasks = [asyncio.create_task(reader.read(features.views[0], [id], as_of)) for id in ids]
        for _ in range(20):
            await asyncio.sleep(0)
        replica.go.set()
        return await asyncio.gather(*tasks)

    return asyncio.run(run())


class StoredRows(OnlineStore):
    """A store of a complete view that has these values, as bytes."""

    def __init__(self, view: FeatureView, features: Features, values: Sequence[bytes | None]) -> None:
        fields = {"epoch": "3", "run": "1", "done": "1", "snapshot": "7", "at": "5", "ready": "m"}
        fields["digest"] = f"{view_digest(view, features.entity_of(view))}/t"
        self.state = [fields[name].encode() if name in fields else None for name in FIELDS]
        self.values = values

    async def call(self, ask: Any) -> Any:
        return self.state, self.values

    async def server_id(self) -> str:
        return "m"


ROW_OF_1 = value_head(3, 1, 7, 5, gone=False) + b'[31, "y", "2026-01-01T11:00:00Z"]'
TORN = ROW_OF_1[:-3]
NEWER = ROW_OF_1.replace(b"1 3", b"9 3", 1)


@pytest.mark.parametrize(("values", "ages", "asked"), [
    ([ROW_OF_1, None], [31, None], 0),
    ([None, ROW_OF_1.replace(b"1 3", b"1 2", 1)], [None, None], 0),
    ([TORN, None], [30, 30], 1),
    ([ROW_OF_1, NEWER], [31, 30], 1),
    ([value_head(3, 1, 7, 5, gone=False) + b"null", ROW_OF_1], [30, 31], 1),
])  # fmt: skip
def test_what_a_store_has_and_nobody_can_read_is_no_row_that_is_missing(
    values: Sequence[bytes | None], ages: Sequence[int | None], asked: int
) -> None:
    """A complete view says of what it hasn't that there is none: a torn value, or a newer one, is there."""
    features, replica = section(), Replica()
    view = next(candidate for candidate in features.views if candidate.serve == "complete")
    reader = FeatureReader(
        features, StoredRows(view, features, values), replica, retry_seconds=0.0, clock=lambda: NOON / 1000
    )
    replica.go.set()
    answer = asyncio.run(reader.read(view, ["1", "2"]))
    assert answer is not None
    assert [row and row["age"] for row in answer.rows.values()] == ages
    assert replica.reads == asked


def test_who_asks_the_same_waits_for_one_answer_and_four_run_at_once() -> None:
    replica = Replica()
    answers = read(replica, ["1"] * 20)
    assert replica.reads == 1
    assert {answer.cache_status for answer in answers} == {CacheStatus.BYPASS} and answers[0].rows["1"]["age"] == 30
    replica = Replica()
    read(replica, [str(id) for id in range(20)])
    assert (replica.reads, replica.most) == (20, 4)


def test_no_more_wait_than_are_answered_in_time() -> None:
    """With a dark store each request asks the replica: a queue without an end would outlive those who wait in it."""
    features, replica = section(), Replica()
    reader = FeatureReader(features, None, replica, retry_seconds=0.0)

    async def run() -> list[Any]:
        tasks = [asyncio.create_task(reader.read(features.views[0], [str(id)])) for id in (*range(1, 301), 1)]
        for _ in range(20):
            await asyncio.sleep(0)
        replica.go.set()
        return await asyncio.gather(*tasks, return_exceptions=True)

    outcomes = asyncio.run(run())
    assert [isinstance(outcome, QueueFull) for outcome in outcomes] == [False] * 200 + [True] * 100 + [False]
    assert (replica.reads, replica.most) == (200, 4)


def test_the_last_who_waits_ends_the_run_by_leaving() -> None:
    features, replica = section(), Replica()
    reader = FeatureReader(features, None, replica, retry_seconds=0.0)

    async def run() -> None:
        first, second = (asyncio.create_task(reader.read(features.views[0], ["1"])) for _ in range(2))
        await _turns()
        first.cancel()
        await _turns()
        assert (replica.reads, replica.under_way) == (1, 1), "the second one waits for it"
        second.cancel()
        await _turns()
        assert replica.under_way == 0
        assert {type(outcome) for outcome in await asyncio.gather(first, second, return_exceptions=True)} == {
            asyncio.CancelledError
        }
        again = asyncio.create_task(reader.read(features.views[0], ["1"]))
        replica.go.set()
        assert (await again) is not None and replica.reads == 2

    asyncio.run(run())


def test_one_reader_does_not_have_all_places() -> None:
    """Whoever has most gives one up to who has none, and is asked for after who has fewer."""
    features, replica = section(), Replica()
    reader = FeatureReader(features, None, replica, retry_seconds=0.0)

    async def run() -> list[Any]:
        view = features.views[0]
        anns = [asyncio.create_task(reader.read(view, [str(id)], requester=Requester("ann"))) for id in range(1, 201)]
        await _turns()
        bob = asyncio.create_task(reader.read(view, ["777"], requester=Requester("bob")))
        await _turns()
        replica.go.set()
        return await asyncio.gather(bob, *anns, return_exceptions=True)

    bob, *anns = asyncio.run(run())
    assert bob.rows["777"]["age"] == 30
    assert [type(outcome) for outcome in anns].count(QueueFull) == 1
    assert replica.order.index("777") == 4, "behind the four that ran already"


def test_whoever_waits_at_the_end_is_told_so() -> None:
    features, replica = section(), Replica()
    reader = FeatureReader(features, None, replica, retry_seconds=0.0)

    async def run() -> None:
        waiting = asyncio.create_task(reader.read(features.views[0], ["1"]))
        await _turns()
        await reader.close()
        with pytest.raises(QueryEnded):
            await waiting
        assert replica.under_way == 0

    asyncio.run(run())


async def _turns() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_errors_that_pass_are_tried_three_times_and_others_once() -> None:
    replica = Replica(StoreUnreachable("x"), CatalogUnreachable("x"))
    assert read(replica, ["1"])[0].rows["1"]["city"] == "x" and replica.reads == 3
    replica = Replica(*[StoreUnreachable("x")] * 3)
    with pytest.raises(StoreUnreachable):
        read(replica, ["1"])
    assert replica.reads == 3
    replica = Replica(QueryFailed("x"))
    with pytest.raises(QueryFailed):
        read(replica, ["1"])
    assert replica.reads == 1


@pytest.mark.parametrize(
    ("max_age", "then", "there"), [(3600, NOON, True), (3599, NOON, False), (1, NOON - 3600_000, True)]
)
def test_what_is_too_old_is_told_as_if_it_were_not_there(max_age: int, then: int, there: bool) -> None:
    features = section()
    view = features.views[0].model_copy(update={"max_age": max_age})
    features = features.model_copy(update={"views": [view]})
    (answer,) = read(Replica(), ["1"], features, AsOf(moment=then))
    assert (answer.rows["1"] is not None) is there
    assert read(Replica(), ["0"], features)[0].rows == {"0": None}
