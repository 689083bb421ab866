"""What is published anew after `main` went back, and what is left to somebody."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from sterna.ingest.lost import judge
from sterna.wap.model import Channel, SnapshotState, TableState

CHANNEL = Channel("eu", "acme", "default")
MAIN = {"c1", "c2"}


def table(mark: str, at: int) -> TableState:
    """A table of one snapshot, whose mark was set with another one, perhaps."""
    properties = {CHANNEL.mark: mark, CHANNEL.place: f"{at}/{at}"} if mark else {}
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
    found, why = judge(state, CHANNEL, published, MAIN.__contains__)
    assert (found, not why) == (numbers, told)
