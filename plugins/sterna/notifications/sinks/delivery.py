"""One sink at work: reads the log from its position, sends in order, and goes on after the acknowledgement."""

from __future__ import annotations

import logging
import math
import random
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import islice

from sterna.brokers.message import Message, Sender, SendOutcome
from sterna.errors import Busy, EventRefused, OutletDisabled, ReferenceNotFound, SternaError
from sterna.notifications.change_log.log import EventLog, LogSegment
from sterna.notifications.sinks.dead_letters import write_dead_letter
from sterna.notifications.sinks.offset import PositionTag
from sterna.replication.replica.region import RegionContext
from sterna.runtime.reconciler import Idle, Reconciler
from sterna.runtime.retry_delay import RetryDelay
from sterna.runtime.runner import Runner

log = logging.getLogger(__name__)
_MAX_NEWER_COMMITS = 1_000  # of the primary, by which a region's own copy may be behind
_NOT_SENDING = {"standby": "another gateway delivers", "disabled": "the receiver wants no more events"}


@dataclass(frozen=True)
class DeliveryOptions:
    """Intervals and sizes of delivery.

    Args:
        poll_seconds: between two reads of the branch's head.
        retry_seconds: the longest first pause before a retry; doubled each time.
        max_retry_seconds: the longest pause of all.
        position_seconds: between two updates of a position.
        standby_seconds: between two checks of a deliverer in standby.
        takeover_seconds: after which a standby takes over from a position that doesn't move though there are commits.
        page_commits: commits that are read at once.
        unknown_seconds: between two searches for tags that belong to no sink.
    """

    poll_seconds: float = 0.3
    retry_seconds: float = 1.0
    max_retry_seconds: float = 60.0
    position_seconds: float = 2.0
    standby_seconds: float = 5.0
    takeover_seconds: float = 30.0
    page_commits: int = 500
    unknown_seconds: float = 60.0


@dataclass
class DeliveryStatus:
    """A sink's state, and its counters since the process started."""

    state: str = "starting"  # delivering, retrying, standby, disabled
    problem: str = ""  # an error class, without details
    delivered: int = 0
    dead_letters: int = 0
    failures: int = 0
    resets: int = 0
    standbys: int = 0


@dataclass(frozen=True)
class _PendingStep:
    """The next step: an event to send, or a commit whose events are all sent."""

    time: datetime
    commit: str
    message: Message | None = None


@dataclass(frozen=True)
class Outbox:
    """What a sink has to send.

    Args:
        idle_reason: why nothing is to be sent now; "": there is something.
        pending: the next steps, in order.
        max_messages: at once.
    """

    idle_reason: str
    pending: Iterable[_PendingStep] = ()
    max_messages: int = 1


@dataclass(frozen=True)
class DeliveryJob:
    """The task of one deliverer.

    Args:
        name: the sink's name.
        accepts: returns whether a table's events are sent.
        retry_timeout: seconds after which an event goes to the dead letters.
    """

    name: str
    accepts: Callable[[str], bool]
    retry_timeout: float
    open_sender: Callable[[], Sender] = field(repr=False)


class Deliverer(Reconciler[Outbox, tuple[Message, ...], int]):
    """The deliverer of one sink, to be run in a thread of its own.

    Args:
        job: the sink's name, filter and sender.
        context: the region, for dead letters and the primary.
        head: returns the branch's head.
        tag: the sink's position.
        options: intervals and sizes.
        stop: ends `run` when set.
    """

    def __init__(
        self,
        job: DeliveryJob,
        context: RegionContext,
        source: EventLog,
        head: Callable[[], str],
        tag: PositionTag,
        options: DeliveryOptions,
        stop: threading.Event,
    ) -> None:
        self.job, self.tag, self.name = job, tag, f"sink {job.name}"
        self.status = DeliveryStatus()
        self._context, self._source, self._head = context, source, head
        self.options, self._stop = options, stop
        self._sender: Sender | None = None
        self._read_up_to: str | None = None  # the newest commit whose events are pending
        self._pending: deque[_PendingStep] = deque()
        self._single_sends = 0  # this many messages are sent one by one
        self._failing_since: datetime | None = None
        self._attempts, self._retry_after = 0, 0.0
        self._next_check_at = 0.0
        self._seen_position, self._unmoved_since = "", 0.0

    @property
    def age(self) -> float:
        """Seconds since the oldest commit that isn't delivered completely."""
        first = next(iter(list(self._pending)[:1]), None)
        return max(0.0, (datetime.now(UTC) - first.time).total_seconds()) if first else 0.0

    def run(self) -> None:
        """Deliver until the deliverer is stopped; errors are retried."""
        runner = Runner([self], log.error, stopping=self._stop, poll_seconds=self.options.poll_seconds)
        try:
            runner.run(math.inf)
        finally:
            self._close()

    def observe(self, previous: Outbox | None = None) -> Outbox:
        """Return what waits for being sent; reads the next commits where nothing does.

        Raises:
            Busy: the region's own copy may be behind the position.
            CatalogError, StoreError: the log or the position can't be read.
            SternaError: the receiver's secrets or library are missing.
        """
        if self.tag.taken_over:
            self._stand_by()
        if self._read_up_to is None:
            self._read_up_to = self.tag.begin(self._head())
        if self.status.state in _NOT_SENDING:
            return Outbox(_NOT_SENDING[self.status.state])
        if not self._pending:
            self._read_next()
        if not self._pending:
            return Outbox("all is delivered")
        if self._sender is None:
            self._sender = self.job.open_sender()
        return Outbox("", self._pending, 1 if self._single_sends else self._sender.max_messages)

    def decide(self, state: Outbox) -> tuple[Message, ...] | Idle:
        """Return the messages to send next; none: the next commits have no events for this sink."""
        if state.idle_reason:
            return Idle(state.idle_reason)
        messages = (step.message for step in state.pending if step.message is not None)
        return tuple(islice(messages, state.max_messages))

    def apply(self, state: Outbox, work: tuple[Message, ...]) -> int:
        """Send messages, and move the position behind those that were acknowledged; return their number.

        Raises:
            SternaError: the first that wasn't acknowledged is to be sent again, or the receiver wants no more.
        """
        self._finish_commits()
        if not work or self._sender is None:
            return 0
        receipt = self._sender.send(work)
        self._acknowledge(receipt.acknowledged)
        self._handle_receipt(receipt, len(work))
        return receipt.acknowledged

    def summarize(self, result: int) -> str:
        """Return nothing: a line for each delivery is too much for a log."""
        return ""

    def record_idle(self, state: Outbox) -> None:
        """Note that delivery works, where this gateway delivers."""
        if self.status.state not in _NOT_SENDING:
            self._record_success()

    def record_failure(self, error: BaseException) -> None:
        """Count a failure, and set the delay until the next attempt."""
        self._attempts += 1
        delay = RetryDelay(self.options.retry_seconds, self.options.max_retry_seconds).draw(self._attempts)
        # Not before the receiver wants it.
        self.retry_seconds = self.stopped_seconds = self._retry_after + delay
        self._retry_after = 0.0
        self.status.problem = type(error).__name__
        if isinstance(error, OutletDisabled):
            self.status.state = "disabled"
            self._close()
        elif self.status.state != "standby":
            self.status.state = "retrying"
        self.status.failures += 1  # last, so that a reader of the counter sees the state that belongs to it

    def _read_next(self) -> None:
        head, read_up_to = self._head(), self._read_up_to
        if read_up_to is None or head == read_up_to:
            return
        segment = self._source.read_first_since(read_up_to, head, self.options.page_commits)
        if not segment.complete and not self._begin_again(read_up_to, head, segment):
            return
        for commit_events in segment.commits:
            moment, hash = commit_events.commit.commit_time, commit_events.commit.hash
            events = [event for event in commit_events.events if self.job.accepts(event.table)]
            messages = [Message(event.id, event.table, event.text, event.data_start) for event in events]
            self._pending += [_PendingStep(moment, hash, message) for message in messages]
            self._pending.append(_PendingStep(moment, hash))
            self._read_up_to = hash

    def _begin_again(self, position: str, head: str, segment: LogSegment) -> bool:
        """Find where to begin on a branch that hasn't the position, within what the log keeps.

        That is where a branch that was rewound left its old history, else the oldest commit that the log keeps.

        Args:
            segment: what the log keeps, from its oldest commit on.

        Returns:
            Whether that segment is where to begin.
        """
        self._require_current_copy(position, head)
        # The tag may be on the branch where what was delivered since, and the catalog doesn't know any more, isn't.
        candidates = dict.fromkeys(filter(None, (position, self.tag.stored)))
        fork = next(filter(None, (self._source.find_fork(hash, head) for hash in candidates)), None)
        if fork is not None:
            log.warning(
                "sink %s: its position %s is no more on the branch: it goes on after %s, and events may be repeated",
                self.job.name, position[:12], fork[:12],
            )  # fmt: skip
        else:
            self.status.resets += 1
            log.error(
                "sink %s: its position %s is not in what the log keeps: it begins with the oldest commit there, after "
                "%s; events before are skipped",
                self.job.name, position[:12], segment.base[:12],
            )  # fmt: skip
        if fork is not None or not segment.commits:
            self._read_up_to = fork or head
            self.tag.advance(self._read_up_to)
            return False
        return True

    def _require_current_copy(self, position: str, head: str) -> None:
        """Require that the region's own copy of the catalog isn't behind a position, nor on another history."""
        primary, branch = self._context.primary, self._source.branch
        primary_head = primary.reference(branch).hash
        if primary_head == head:
            return
        commits = primary.history(f"{branch}@{primary_head}", operations=False, until=head)
        newer = list(islice(commits, _MAX_NEWER_COMMITS))
        if not newer or newer[-1].parent != head or position in {commit.hash for commit in newer}:
            raise Busy("the region's own copy may be behind the position")

    def _acknowledge(self, count: int) -> None:
        self._single_sends = max(0, self._single_sends - count)
        self.status.delivered += count
        if count:
            self._record_success()
        while count:
            self._finish_commits()
            self._pending.popleft()
            count -= 1
        self._finish_commits()

    def _finish_commits(self) -> None:
        while self._pending and self._pending[0].message is None:
            self.tag.advance(self._pending.popleft().commit)

    def _handle_receipt(self, receipt: SendOutcome, attempted: int) -> None:
        problem = receipt.error
        if problem is None:
            return
        if isinstance(problem, OutletDisabled):
            raise problem
        if isinstance(problem, EventRefused) and attempted - receipt.acknowledged > 1:
            self._single_sends = attempted - receipt.acknowledged  # a broker may refuse a batch for one of its messages
        elif isinstance(problem, EventRefused) or self._is_expired(self._pending[0].time):
            self._write_dead_letter(problem)
        else:
            self._retry_after = receipt.retry_after or 0.0
            raise problem

    def _is_expired(self, created_at: datetime) -> bool:
        """Return whether an event has failed for longer than the sink's `retry_timeout`.

        The time runs from the first of the consecutive failures or from the event, whichever is later: after an outage
        of days a receiver gets the newer events, while the older ones are dead letters.
        """
        self._failing_since = self._failing_since or datetime.now(UTC)
        since = max(self._failing_since, created_at)
        return (datetime.now(UTC) - since).total_seconds() >= self.job.retry_timeout

    def _write_dead_letter(self, problem: SternaError) -> None:
        message = self._pending[0].message
        assert message is not None
        uri = write_dead_letter(self._context, self.job.name, message, str(problem))
        log.error("sink %s: %s goes to the dead letters, %s: %s", self.job.name, message.id, uri, problem)
        self.status.dead_letters += 1
        self._single_sends = max(0, self._single_sends - 1)
        self._pending.popleft()
        self._finish_commits()

    def _stand_by(self) -> None:
        """Another gateway delivers: check at intervals whether it still does, and take over if not."""
        now = time.monotonic()
        if self.status.state != "standby":
            self.status.state, self.status.standbys = "standby", self.status.standbys + 1
            self._pending.clear()
            self._single_sends = 0
            self._close()
            self._seen_position, self._next_check_at = "", now
        if now < self._next_check_at:
            return
        self._next_check_at = now + self.options.standby_seconds * random.uniform(0.7, 1.3)  # noqa: S311 - no secret
        try:
            position = self.tag.read()
        except ReferenceNotFound:
            self._read_up_to = None
            self.tag.taken_over, self.status.state = False, "starting"
            return
        moved = position != self._seen_position or position == self._head()
        if moved or not self._seen_position:
            self._seen_position, self._unmoved_since = position, time.monotonic()
        elif time.monotonic() - self._unmoved_since >= self.options.takeover_seconds:
            log.warning("sink %s: its position stands still, so this gateway goes on", self.job.name)
            self._read_up_to = position
            self.tag.adopt(position)
            self.status.state = "starting"

    def _record_success(self) -> None:
        self._failing_since, self._attempts = None, 0
        self.status.state, self.status.problem = "delivering", ""

    def _close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
