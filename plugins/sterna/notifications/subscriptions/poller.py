"""One poller for all clients of a process: follows the branch's head, and adds new events to the buffer."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from sterna.errors import CatalogUnreachable, SternaError
from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.change_log.log import CurrentTable, EventLog
from sterna.notifications.subscriptions.buffer import EventBuffer, SerializedEvent
from sterna.runtime.retry_delay import RetryDelay

log = logging.getLogger(__name__)
_POLL_TIMEOUT_SECONDS = 5.0
_BUSY_SECONDS = 30.0  # after a commit the next one may be near


@dataclass(frozen=True)
class PollerOptions:
    """How a branch is followed.

    Args:
        active_seconds: the poll interval soon after a commit.
        idle_seconds: the poll interval otherwise.
        max_retry_seconds: the longest interval while the catalog fails.
        buffer_events: events that are kept in memory.
        initial_commits: commits that are read back at the start.
        page_commits: commits that are read back at once; a shutdown waits for no more.
    """

    active_seconds: float = 0.2
    idle_seconds: float = 0.5
    max_retry_seconds: float = 5.0
    buffer_events: int = 20_000
    initial_commits: int = 200
    page_commits: int = 500


@dataclass
class PollerCounts:
    """What the poller has done."""

    polls: int = 0
    failures: int = 0
    commits: int = 0
    events: int = 0
    rewinds: int = 0
    delay: float = 0.0  # seconds from the newest commit to its events, as the clocks have it


@dataclass(frozen=True)
class BranchTables:
    """What the branch shows at one commit."""

    head: str
    tables: tuple[CurrentTable, ...]


@dataclass
class BranchPoller:
    """Follows a branch.

    Args:
        source: reads the branch's log.
        options: intervals and sizes.
        on_events: called with the events that were added to the buffer, before waiters wake; with none where what they
            have sent isn't all that matters: a rewind, or the stop.
    """

    source: EventLog
    options: PollerOptions = PollerOptions()
    on_events: Callable[[Sequence[SerializedEvent]], None] = lambda events: None
    counts: PollerCounts = field(default_factory=PollerCounts)
    generation: int = 0  # counts rewinds: positions of an older generation are invalid
    buffer: EventBuffer | None = None
    problem: str = ""  # why the catalog can't be read: an error class, without details
    stopping: bool = False

    def __post_init__(self) -> None:
        self._changed: asyncio.Future[None] | None = None
        self._extend_lock = asyncio.Lock()
        self._tables_lock = asyncio.Lock()
        self._exhausted = ""
        self._tables = BranchTables("", ())
        self._busy_until = 0.0
        self._following = False
        self._completed_polls = 0

    async def run(self) -> None:
        """Poll until `stop`; an error is shown in `problem`, and polling goes on."""
        failures, self._following = 0, True
        while not self.stopping:
            try:
                await self.poll()
                self._completed_polls = self.counts.polls
                self.problem, failures, pause = "", 0, self._poll_interval()
            except SternaError as error:
                failures += 1
                self._record_failure(error)
                pause = RetryDelay(2 * self.options.idle_seconds, self.options.max_retry_seconds).draw(failures)
            except Exception as error:  # noqa: BLE001 - streams stay open, and the next poll may succeed
                self._record_failure(error)
                pause = self.options.max_retry_seconds
            await self._sleep(pause)

    def stop(self) -> None:
        """Stop polling, and wake all waiters."""
        self.stopping = True
        self.on_events(())
        self._wake()

    async def wait(self, seconds: float) -> bool:
        """Wait for new events or the stop; return whether either came."""
        if self.stopping:
            return True
        if self._changed is None:
            self._changed = asyncio.get_running_loop().create_future()
        try:
            async with asyncio.timeout(max(0.0, seconds)):
                # Others wait for the very same.
                await asyncio.shield(self._changed)
        except TimeoutError:
            return False
        return True

    async def position(self, cursor: Cursor) -> int | None:
        """Return the position after a cursor, read back from the log where it is older than the buffer; None: unknown.

        Raises:
            CatalogError, StoreError: the log can't be read now.
        """
        buffer = self.buffer
        if buffer is None:
            return None
        if buffer.position(cursor) is None:
            # The client may come from another gateway that is slightly ahead.
            await self._wait_for_poll()
            buffer = self.buffer if self.buffer is not None else buffer
        if buffer.position(cursor) is None and self._can_extend(buffer, cursor):
            async with self._extend_lock:
                buffer = self.buffer if self.buffer is not None else buffer
                while buffer.position(cursor) is None and self._can_extend(buffer, cursor):
                    await self._extend(buffer, cursor)
                    buffer = self.buffer if self.buffer is not None else buffer
        position = buffer.position(cursor)
        if position is None and self.stopping:
            raise CatalogUnreachable("the gateway ends, and the branch isn't read any more")
        return position

    async def read_tables(self) -> BranchTables:
        """Return the tables at the newest commit in the buffer.

        Raises:
            CatalogError: the catalog can't be read now.
        """
        async with self._tables_lock:
            head = self.buffer.head if self.buffer else ""
            if head and self._tables.head != head:
                self._tables = BranchTables(head, await asyncio.to_thread(self.source.read_tables, head))
            return self._tables

    async def _wait_for_poll(self) -> None:
        """Wait for the next regular poll that begins after this call: clients can't cause additional polls."""
        polls_before, deadline = self.counts.polls, time.monotonic() + _POLL_TIMEOUT_SECONDS
        while self._following and self._completed_polls <= polls_before and not self.stopping:
            if self.problem or time.monotonic() > deadline:
                raise CatalogUnreachable("the branch can't be read now")
            await asyncio.sleep(0.05)

    async def poll(self) -> None:
        """Read the branch's head once, and add new events to the buffer.

        Raises:
            CatalogError, StoreError: the branch can't be read now.
        """
        self.counts.polls += 1
        head = await asyncio.to_thread(self.source.head)
        if self.buffer is not None and head == self.buffer.head:
            return
        if self.buffer is not None:
            segment = await asyncio.to_thread(self.source.read_since, self.buffer.head, head)
            if segment.complete:
                added = self.buffer.append(segment.commits)
                self._count(added, len(segment.commits))
                if segment.commits:
                    self.counts.delay = max(0.0, time.time() - segment.commits[-1].commit.commit_time.timestamp())
                self._busy_until = time.monotonic() + _BUSY_SECONDS
                if added:
                    self.on_events(added)
                self._wake()
                return
            self.counts.rewinds += 1
            log.warning("the branch has left %s: clients have to restart", self.buffer.head[:12])
        segment = await asyncio.to_thread(self.source.read_since, None, head, self.options.initial_commits)
        buffer = EventBuffer(segment.base, self.options.buffer_events)
        buffer.append(segment.commits)
        self.buffer, self.generation, self._exhausted = buffer, self.generation + 1, ""
        self.on_events(())
        self._wake()

    def _can_extend(self, buffer: EventBuffer, cursor: Cursor) -> bool:
        """Return whether reading back may find a cursor."""
        if self.stopping or buffer.is_renumbered(cursor):
            return False
        return self._exhausted != buffer.base or buffer.is_uncounted(cursor)

    async def _extend(self, buffer: EventBuffer, cursor: Cursor) -> None:
        """Read one page of the log back towards a cursor; at the log's or the buffer's limit mark it as exhausted."""
        base, inclusive = buffer.base, cursor.number is not None
        segment = await asyncio.to_thread(
            self.source.read_since, cursor.hash, base, self.options.page_commits, inclusive=inclusive
        )
        if buffer is not self.buffer or buffer.base != base:
            return
        extended = bool(segment.commits or buffer.is_uncounted(cursor)) and buffer.prepend(
            segment.base, segment.commits
        )
        if not extended or (not segment.complete and len(segment.commits) < self.options.page_commits):
            self._exhausted = buffer.base

    def _count(self, added: list[SerializedEvent], commits: int) -> None:
        self.counts.commits += commits
        self.counts.events += len(added)

    def _record_failure(self, error: Exception) -> None:
        self.counts.failures += 1
        kind = type(error).__name__
        if self.problem != kind:
            log.error("the branch can't be followed: %s", error, exc_info=not isinstance(error, SternaError))
        self.problem = kind

    def _poll_interval(self) -> float:
        return self.options.active_seconds if time.monotonic() < self._busy_until else self.options.idle_seconds

    def _wake(self) -> None:
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)
        self._changed = None

    async def _sleep(self, seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not self.stopping and (remaining := deadline - time.monotonic()) > 0:
            await asyncio.sleep(min(remaining, 0.5))
