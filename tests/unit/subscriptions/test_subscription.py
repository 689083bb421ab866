"""One client's way through the ring: what it gets when it keeps up, and when it doesn't."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.config.sections.readers import ReaderRule
from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.change_log.table_filters import TablePattern
from sterna.notifications.subscriptions import subscription
from sterna.notifications.subscriptions.buffer import EventBuffer
from sterna.notifications.subscriptions.filters import EventFilter
from sterna.notifications.subscriptions.poller import BranchPoller, PollerOptions
from sterna.notifications.subscriptions.subscription import (
    CloseMessage,
    EventsMessage,
    ResyncMessage,
    SkipMessage,
    Subscription,
)
from sterna.replication.replica.authorization import TableAccess
from tests.support.http_server import Branch


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    return Branch(tmp_path)


def tail_of(branch: Branch, **options: Any) -> BranchPoller:
    return BranchPoller(EventLog(branch.context(), timedelta(days=1), 1000), PollerOptions(**options))


def view(
    branch: Branch, *patterns: str, roles: tuple[str, ...] = ("reader",), rules: tuple[ReaderRule, ...] = ()
) -> EventFilter:
    return EventFilter(TableAccess(branch.registry, "eu", rules), tuple(map(TablePattern, patterns)), frozenset(roles))


def tables(messages: list[Any]) -> list[str]:
    return [event.table for message in messages if isinstance(message, EventsMessage) for event in message.events]


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


@pytest.mark.parametrize("delivery", ["newest", "all"])
def test_whoever_falls_behind(branch: Branch, monkeypatch: pytest.MonkeyPatch, delivery: Any) -> None:
    monkeypatch.setattr(subscription, "BEHIND_SECONDS", 0.05)
    monkeypatch.setattr(subscription, "BEHIND_EVENTS", 5)

    async def story() -> None:
        tail = tail_of(branch)
        await tail.poll()
        one = Subscription(tail, view(branch, "ns.a", "ns.b"), delivery)
        await one.start(None)
        assert await one.next_messages(0.01) == []
        for _ in range(10):
            branch.update("a", "b", "c")
        await tail.poll()
        await asyncio.sleep(0.1)  # it was sent something, and took it all this time to take it
        messages = await one.next_messages(1)
        if delivery == "all":
            assert messages == [CloseMessage("behind")]
            return
        assert messages[0] == SkipMessage(18)
        assert tables(messages) == ["ns.a", "ns.b"]
        assert tail.buffer is not None and messages[1].events[0].id == f"{tail.buffer.head}-1"  # type: ignore[union-attr]
        branch.update("a")
        await tail.poll()
        assert tables(await one.next_messages(1)) == ["ns.a"]

    play(story())


def test_a_burst_is_no_reason_to_leave_anything_out(branch: Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "BEHIND_SECONDS", 60.0)

    async def story() -> None:
        tail = tail_of(branch)
        await tail.poll()
        one = Subscription(tail, view(branch), "all")
        await one.start(None)
        assert await one.next_messages(0.01) == []
        for _ in range(40):
            branch.update(*(f"t{number}" for number in range(10)))
        await tail.poll()
        got: list[str] = []
        while len(got) < 400:
            got += tables(await one.next_messages(1))
        assert len(got) == 400

    play(story())


def test_whoever_resumes_isn_t_behind(branch: Branch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subscription, "BEHIND_SECONDS", 0.0)
    monkeypatch.setattr(subscription, "BEHIND_EVENTS", 1)
    first = branch.update("a")
    for _ in range(20):
        branch.update("a", "b", "c", "d")

    async def story() -> None:
        tail = tail_of(branch)
        await tail.poll()
        one = Subscription(tail, view(branch))
        assert await one.start(Cursor(first)) is None
        got: list[str] = []
        while len(got) < 80:
            got += tables(await one.next_messages(1))
        assert len(got) == 80

    play(story())


def test_a_place_that_the_ring_has_lost_is_reset(branch: Branch) -> None:
    async def story() -> None:
        first = branch.update("a")
        tail = tail_of(branch, buffer_events=20)
        await tail.poll()
        one = Subscription(tail, view(branch))
        await one.start(None)
        for _ in range(100):
            branch.update("a")
        await tail.poll()
        assert tail.buffer is not None and len(tail.buffer) <= 20
        assert await one.next_messages(1) == [ResyncMessage(tail.buffer.head, "behind")]
        again = Subscription(tail, view(branch))
        assert await again.start(Cursor(first)) == ResyncMessage(tail.buffer.head, "unknown")
        polls: list[str] = []
        real = tail.source.read_since
        tail.source.read_since = lambda *args: polls.append("look") or real(*args)  # type: ignore[method-assign,func-returns-value,assignment]
        for number in range(10):  # whoever sends cursors that nobody knows costs the catalog nothing
            await again.start(Cursor(f"{number}" * 64))
        assert polls == []

    play(story())


def test_a_token_s_end_is_the_stream_s(branch: Branch) -> None:
    async def story() -> None:
        tail = tail_of(branch)
        await tail.poll()
        one = Subscription(tail, view(branch), expires_at=time.time() + 0.2)
        await one.start(None)
        assert await one.next_messages(5) == [CloseMessage("token")]

    play(story())


def test_rules_and_residency_narrow_what_is_told(branch: Branch) -> None:
    rules = (ReaderRule(tables=["ns.hr*"], roles=["hr"]), ReaderRule(tables=["ns.*_pii"], roles=["privacy"]))
    without_roles, hr, both = (view(branch, roles=roles, rules=rules) for roles in ((), ("hr",), ("hr", "privacy")))
    names = ("ns.a", "ns.hr", "ns.hr_pii")
    assert [[reader_view.allows(name) for name in names] for reader_view in (without_roles, hr, both)] == [
        [True, False, False],
        [True, True, False],
        [True, True, True],
    ]
    registry = branch.context(residency=[{"tables": ["ns.us*"], "only": ["us"]}]).registry
    kept = EventFilter(TableAccess(registry, "eu"), (), frozenset())
    assert kept.allows("ns.a") and not kept.allows("ns.us1")


def test_a_ring_finds_every_cursor_that_it_has(branch: Branch) -> None:
    hashes = [branch.update(*(f"t{table}" for table in range(number % 3 + 1))) for number in range(12)]
    log = EventLog(branch.context(), timedelta(days=1), 1000)
    ring = EventBuffer(hashes[5], 1000)
    ring.append(log.read_since(hashes[5], hashes[11]).commits)
    assert ring.prepend(hashes[1], log.read_since(hashes[1], hashes[5]).commits)
    assert [ring.position(Cursor(commit)) is not None for commit in hashes] == [False] + [True] * 11
    at = ring.position(Cursor(hashes[2]))
    assert at is not None
    assert [event.id for event in ring.read(at, 3)] == [f"{hashes[3]}-1", f"{hashes[4]}-1", f"{hashes[4]}-2"]
    assert ring.position(Cursor(hashes[4], 1)) == at + 2 and ring.position(Cursor(hashes[4], 3)) is None
    small = EventBuffer(hashes[1], 10)
    small.append(log.read_since(hashes[1], hashes[11]).commits)
    assert len(small) <= 10 and small.position(Cursor(hashes[11])) == small.end_position
    assert small.position(Cursor(small.base)) == small.first_position and small.position(Cursor(hashes[2])) is None
    older = log.read_since(hashes[0], small.base).commits
    assert not small.prepend(hashes[0], older)  # it would be too long
