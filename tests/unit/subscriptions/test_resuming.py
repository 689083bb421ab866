"""From which cursors somebody goes on: what a restart, a trim and strangers' cursors leave of them."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import SternaError
from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.subscriptions.buffer import EventBuffer
from sterna.notifications.subscriptions.poller import BranchPoller, PollerOptions
from tests.support.http_server import Branch

STRANGE = Cursor("ab" * 32)


@pytest.fixture
def branch(tmp_path: Path) -> Branch:
    return Branch(tmp_path)


def tail_of(branch: Branch, keep: timedelta = timedelta(days=1), **options: Any) -> BranchPoller:
    return BranchPoller(EventLog(branch.context(), keep, 1000), PollerOptions(**options))


def play(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 120))


async def follows(tail: BranchPoller, cursor: Cursor) -> list[str] | None:
    """What comes right after a cursor; None: it isn't known."""
    place = await tail.position(cursor)
    return None if place is None or tail.buffer is None else [event.id for event in tail.buffer.read(place, 2)]


def reads_of(tail: BranchPoller) -> list[str]:
    reads: list[str] = []
    real = tail.source.read_since

    def since(*args: Any, **named: Any) -> Any:
        reads.append("read")
        return real(*args, **named)

    tail.source.read_since = since  # type: ignore[method-assign]
    return reads


def test_after_a_restart_an_event_s_id_is_as_good_as_its_commit(branch: Branch) -> None:
    hashes = [branch.update("a", "b") for _ in range(40)]

    async def story() -> None:
        tail = tail_of(branch, initial_commits=5)
        await tail.poll()
        for at in (33, 34, 20, 0):  # 34 is the commit before those that were read back at the start
            half, whole = (
                [f"{hashes[at]}-2", f"{hashes[at + 1]}-1"],
                [f"{hashes[at + 1]}-{number}" for number in (1, 2)],
            )
            assert await follows(tail, Cursor(hashes[at], 1)) == half
            assert await follows(tail, Cursor(hashes[at], 2)) == whole == await follows(tail, Cursor(hashes[at]))
            assert await follows(tail, Cursor(hashes[at], 3)) is None

    play(story())


def test_who_took_none_of_a_commit_s_events_gets_them_after_a_restart(branch: Branch) -> None:
    hashes = [branch.update("a") for _ in range(10)]

    async def story() -> None:
        tail = tail_of(branch, initial_commits=5)
        await tail.poll()
        assert await follows(tail, Cursor(hashes[4], 0)) == [f"{hashes[4]}-1", f"{hashes[5]}-1"]

    play(story())


def test_an_id_of_the_commit_before_what_was_taken_off_is_known(branch: Branch) -> None:
    hashes = [branch.update("a", "b") for _ in range(30)]
    log = EventLog(branch.context(), timedelta(days=1), 1000)
    ring = EventBuffer(hashes[0], 20)
    ring.append(log.read_since(hashes[0], hashes[29]).commits)
    assert len(ring) <= 20 and ring.base in hashes[1:]
    assert ring.position(Cursor(ring.base, 2)) == ring.position(Cursor(ring.base)) == ring.first_position
    assert ring.position(Cursor(ring.base, 1)) is None and ring.position(Cursor(ring.base, 0)) is None


@pytest.mark.parametrize("first", [STRANGE, Cursor("cd" * 32, 1), 10, 0])
def test_one_cursor_that_is_nowhere_or_too_old_spoils_nobody_else_s(branch: Branch, first: Cursor | int) -> None:
    hashes = [branch.update("a") for _ in range(100)]

    async def story() -> None:
        tail = tail_of(branch, initial_commits=5, buffer_events=50)
        await tail.poll()
        assert await follows(tail, Cursor(hashes[first]) if isinstance(first, int) else first) is None
        assert await follows(tail, Cursor(hashes[80])) == [f"{hashes[81]}-1", f"{hashes[82]}-1"]
        assert await follows(tail, Cursor(hashes[60], 1)) == [f"{hashes[61]}-1", f"{hashes[62]}-1"]
        assert tail.buffer is not None and len(tail.buffer) <= 50
        reads = reads_of(tail)
        for number in range(10):  # whoever sends cursors that nobody knows costs the catalog nothing
            assert await tail.position(Cursor(f"{number}" * 64)) is None
        assert await tail.position(Cursor(hashes[10], 1)) is None
        assert reads == []
        # What comes next takes nothing off yet: whoever was let in at the old end isn't sent away at once.
        before, base = await tail.position(Cursor(hashes[60])), tail.buffer.base
        branch.update("a")
        await tail.poll()
        assert await tail.position(Cursor(hashes[60])) == before and tail.buffer.base == base

    play(story())


def test_a_region_where_nothing_happened_for_long_is_resumed_by_its_last_event(branch: Branch) -> None:
    hashes = [branch.update("a", "b") for _ in range(3)]

    async def story() -> None:
        tail = tail_of(branch, keep=timedelta(0))
        await tail.poll()
        assert await tail.position(STRANGE) is None
        assert await follows(tail, Cursor(hashes[2], 2)) == [] == await follows(tail, Cursor(hashes[2]))
        assert await tail.position(Cursor(hashes[1])) is not None  # the commit before one that was counted
        assert await tail.position(Cursor(hashes[0], 2)) is None

    play(story())


def test_a_full_ring_counts_the_commit_before_it_once(branch: Branch) -> None:
    hashes = [branch.update("a", "b") for _ in range(30)]

    async def story() -> None:
        tail = tail_of(branch, initial_commits=9, buffer_events=20)
        await tail.poll()
        assert await follows(tail, Cursor(hashes[20], 2)) == [f"{hashes[21]}-1", f"{hashes[21]}-2"]
        reads = reads_of(tail)
        assert [await tail.position(Cursor(hashes[20], number)) for number in (0, 1, 3)] == [None, None, None]
        assert reads == []

    play(story())


def test_an_empty_branch_s_cursor_has_no_events(branch: Branch) -> None:
    async def story() -> None:
        tail = tail_of(branch)
        await tail.poll()
        assert tail.buffer is not None
        assert await tail.position(Cursor(tail.buffer.base)) == 0
        assert await tail.position(Cursor(tail.buffer.base, 1)) is None

    play(story())


def test_commits_without_events_fill_a_ring_too(branch: Branch) -> None:
    hashes = [branch.update("a") for _ in range(40)]
    log = EventLog(branch.context(), timedelta(days=1), 1000)
    ring = EventBuffer(hashes[39], 20)
    stretch = log.read_since(hashes[0], hashes[39])
    without_events = [type(commit)(commit.commit, ()) for commit in stretch.commits]
    assert not ring.prepend(hashes[0], without_events)
    assert len(ring) == 0 and 0 < sum(ring.position(Cursor(commit_hash)) is not None for commit_hash in hashes) <= 21


def test_reading_back_ends_between_two_portions_when_the_gateway_does(
    branch: Branch, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashes = [branch.update("a") for _ in range(60)]

    async def story() -> None:
        tail = tail_of(branch, initial_commits=5, page_commits=10)
        await tail.poll()
        reads, real = [], tail.source.read_since

        def since(*args: Any, **named: Any) -> Any:
            reads.append(len((stretch := real(*args, **named)).commits))
            if len(reads) == 2:
                tail.stopping = True
            return stretch

        tail.source.read_since = since  # type: ignore[method-assign]
        with pytest.raises(SternaError):  # and not: unknown, for it comes back
            await tail.position(Cursor(hashes[3]))
        assert reads == [10, 10]
        tail.stopping = False
        assert await follows(tail, Cursor(hashes[3])) == [f"{hashes[4]}-1", f"{hashes[5]}-1"]

    play(story())
