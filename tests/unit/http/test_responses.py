"""What `/v1/tables` answers: made once for all who ask for the same, and never at everybody's cost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

from sterna.notifications.change_log.log import CurrentTable
from sterna.notifications.subscriptions.filters import EventFilters
from sterna.notifications.subscriptions.poller import BranchTables
from sterna.replication.replica.authorization import TableAccess
from sterna.serving.http.table_list import TablesAnswerCache
from tests.support.http_server import Branch

ROLES = frozenset({"reader"})


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def shown(count: int, head: str = "ab" * 32) -> BranchTables:
    return BranchTables(head, tuple(CurrentTable(f"ns.t{number}", number or None) for number in range(count)))


def counting(branch: Branch, asked: list[str], **bounds: int) -> EventFilters:
    class Counted(TableAccess):
        def may_read(self, table: str, roles: Any) -> bool:
            asked.append(table)
            return table != "ns.t1"

    return EventFilters(Counted(branch.registry, "eu"), **bounds)


def test_who_asks_for_the_same_at_once_or_later_gets_the_same_bytes(branch: Branch) -> None:
    asked: list[str] = []
    views, answers = counting(branch, asked), TablesAnswerCache("eu", "main_replica_eu")

    async def story() -> None:
        view, shown_tables = views.filter_for(("ns.*",), ROLES), shown(3)
        bodies = await asyncio.gather(*(answers.get(view, shown_tables) for _ in range(5)))
        bodies.append(await answers.get(views.filter_for(("ns.*",), ROLES), shown_tables))
        assert len({id(body) for body in bodies}) == 1
        assert json.loads(bodies[0]) == {
            "region": "eu",
            "branch": "main_replica_eu",
            "cursor": "ab" * 32,
            "tables": [
                {"table_identifier": "ns.t0", "snapshot_id": None, "snapshotid": None},
                {"table_identifier": "ns.t2", "snapshot_id": 2, "snapshotid": "2"},
            ],
        }
        other = json.loads(await answers.get(views.filter_for(("ns.t2",), ROLES), shown_tables))
        assert [table["table_identifier"] for table in other["tables"]] == ["ns.t2"]
        later = json.loads(await answers.get(view, shown(4, "cd" * 32)))
        assert later["cursor"] == "cd" * 32 and len(later["tables"]) == 3

    play(story())


def test_few_answers_are_kept_where_they_are_long(branch: Branch) -> None:
    views, answers = (
        EventFilters(TableAccess(branch.registry, "eu")),
        TablesAnswerCache("eu", "b", max_rows=40, max_answers=8),
    )

    async def story() -> None:
        for head, count, kept in (("a" * 64, 1, 8), ("b" * 64, 10, 4), ("c" * 64, 100, 1), ("d" * 64, 0, 8)):
            for number in range(10):
                await answers.get(views.filter_for((f"p{number}",), ROLES), shown(count, head))
            assert len(answers) == kept

    play(story())


def test_others_have_their_turn_while_a_long_answer_is_made(branch: Branch) -> None:
    views, answers, turns = EventFilters(TableAccess(branch.registry, "eu")), TablesAnswerCache("eu", "b"), 0

    async def story() -> None:
        nonlocal turns
        making = asyncio.create_task(answers.get(views.filter_for((), ROLES), shown(5_000)))
        while not making.done():
            turns += 1
            await asyncio.sleep(0)
        assert turns > 5_000 / 200

    play(story())


def test_what_views_remember_is_bounded_for_all_of_them_together(branch: Branch) -> None:
    asked: list[str] = []
    views = counting(branch, asked, max_answers=100, max_filters=30)
    held = [views.filter_for((f"ns.t{number}*",), ROLES) for number in range(50)]
    for _ in range(2):
        for number, view in enumerate(held):
            for table in (f"ns.t{number}{letter}" for letter in "abcdefgh"):
                assert view.allows(table) and view.allows(table)
                assert len(views.cache) <= 100
            assert not view.allows("ns.other")
    assert len(views) <= 30
    # Nobody is told by what another one's view remembers.
    one, another = views.filter_for(("ns.a",), ROLES), views.filter_for(("ns.b",), ROLES)
    assert [view.allows(table) for table in ("ns.a", "ns.b") for view in (one, another)] == [True, False, False, True]
    before = len(asked)
    assert one.allows("ns.a") and len(asked) == before
