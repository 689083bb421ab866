"""What is published anew after `main` went back, and what is left to somebody."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import pytest

from sterna.catalog.ancestry import Ancestry
from sterna.errors import CatalogUnreachable
from sterna.pipelines.ingest.failover_recovery import decide_lost
from sterna.pipelines.publish.model import Channel, SnapshotState, TableState

CHANNEL = Channel("eu", "acme", "default")
MAIN = {"c1", "c2"}


def table(mark: str, at: int) -> TableState:
    """A table of one snapshot, whose mark was set with another one, perhaps."""
    properties = {CHANNEL.position_property: mark, CHANNEL.snapshot_property: f"{at}/{at}"} if mark else {}
    return TableState((SnapshotState(1, None, 1),), 1, properties)


@pytest.mark.parametrize(
    ("state", "published", "numbers", "told"),
    [
        (table("3", 1), {1: "c1", 2: "c2", 3: "x3"}, (), True),
        (table("1", 1), {1: "c1", 2: "x2", 3: "x3"}, (2, 3), True),
        (table("1", 1), {1: "c1", 3: "x3"}, (3,), True),  # 2 was rejected
        (table("1", 1), {2: "", 3: "x3"}, (2, 3), True),
        (None, {1: "x1"}, (1,), True),  # the table was made in what is lost
        (table("", 1), {1: "x1"}, (1,), True),
        # On this very `main` somebody took the rows away: the table was made anew, or put back.
        (table("", 1), {1: "c1", 2: "c2"}, (), True),
        (None, {1: "c1"}, (), True),
        (table("1", 1), {2: "c2", 3: "x3"}, (), True),
        (table("3", 9), {3: "x3", 4: "x4"}, (), True),  # rolled back, and the mark contradicts it
        (table("1", 1), {2: "", 3: ""}, (), False),
    ],
)
def test_a_batch_is_published_anew_where_mark_and_history_both_lack_it(
    state: TableState | None, published: Mapping[int, str], numbers: tuple[int, ...], told: bool
) -> None:
    lost, why = decide_lost(state, CHANNEL, published, MAIN.__contains__)
    assert (lost, not why) == (numbers, told)


def test_main_s_history_is_read_no_further_than_a_commit_can_lie() -> None:
    start = datetime(2026, 1, 1, tzinfo=UTC)
    read: list[int] = []

    def history(at: str, *, operations: bool) -> Iterator[SimpleNamespace]:
        for number in range(99, 0, -1):
            read.append(number)
            yield SimpleNamespace(
                hash=f"c{number}", parent=f"c{number - 1}", commit_time=start + timedelta(minutes=number)
            )

    primary = SimpleNamespace(no_ancestor=lambda: "none", history=history)
    ancestry = Ancestry(primary, "c99", "main")  # type: ignore[arg-type]
    assert ancestry.contains("c99", start) and read == []
    assert ancestry.contains("none", start)
    assert (
        ancestry.contains("c95", start + timedelta(minutes=200)) is False
    )  # it can't be so much older than when it was there
    assert read == [99]
    assert ancestry.contains("c90", start + timedelta(minutes=91))
    assert not ancestry.contains("x90", start + timedelta(minutes=91))
    assert read[-1] == 80


def test_a_page_that_fails_leaves_every_channel_undecided() -> None:
    now = datetime(2026, 1, 1, tzinfo=UTC)

    def history(at: str, *, operations: bool) -> Iterator[SimpleNamespace]:
        for number in range(99, 90, -1):
            yield SimpleNamespace(hash=f"c{number}", parent=f"c{number - 1}", commit_time=now)
        raise CatalogUnreachable("page 2: 503")

    primary = SimpleNamespace(no_ancestor=lambda: "none", history=history)
    main = Ancestry(primary, "c99", "main")  # type: ignore[arg-type]
    for published in ({1: "c50"}, {1: "c50", 2: "c60"}):
        with pytest.raises(CatalogUnreachable):
            decide_lost(None, CHANNEL, published, lambda hash: main.contains(hash, now))
    assert decide_lost(None, CHANNEL, {1: "c95"}, lambda hash: main.contains(hash, now)) == ((), "")  # it was read
