"""One outlet at work: reads the log from its position, sends in order, and goes on after the acknowledgement."""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime

from sterna.edges.brokers.message import Message, Sender, Sent
from sterna.errors import Busy, EventRefused, OutletDisabled, ReferenceNotFound, SternaError
from sterna.feed.log import EventLog
from sterna.outlets.letters import bury
from sterna.outlets.position import PositionTag
from sterna.replica.region import RegionContext

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class DeliveryOptions:
    """How outlets are served.

    Args:
        look: seconds between two looks at the branch's head.
        pause: seconds before an event is tried again, at most; doubled each time.
        longest: that pause's bound.
        move: seconds between two moves of a position.
        standby: seconds between two looks of whoever found another one at work.
        takeover: seconds for which a position stands still, though there is news, before that one goes on himself.
        portion: commits that are read at once.
        unknown: seconds between two looks for tags that belong to no outlet.
    """

    look: float = 0.3
    pause: float = 1.0
    longest: float = 60.0
    move: float = 2.0
    standby: float = 5.0
    takeover: float = 30.0
    portion: int = 500
    unknown: float = 60.0


@dataclass
class Delivered:
    """What an outlet has done since its process began, and how it is."""

    state: str = "starting"  # delivering, retrying, standby, disabled
    problem: str = ""  # a word that gives nothing away
    delivered: int = 0
    dead: int = 0
    failures: int = 0
    resets: int = 0
    stepped_back: int = 0


@dataclass(frozen=True)
class _Waiting:
    """What is to be done next: an event to send, or a commit whose events are all sent."""

    time: datetime
    commit: str
    message: Message | None = None


@dataclass(frozen=True)
class Job:
    """What one outlet is to do.

    Args:
        name: the outlet's.
        wanted: tells whether a table's events are sent.
        give_up: seconds after which an event goes to the dead letters.
        open: opens its sender.
    """

    name: str
    wanted: Callable[[str], bool]
    give_up: float
    open: Callable[[], Sender] = field(repr=False)


class Deliverer:
    """The deliverer of one outlet, to be run in a thread of its own.

    Args:
        job: what it does.
        context: the region.
        source: reads the log.
        head: tells the branch's head.
        tag: its position.
        options: how.
        stop: set when it is to end.
    """

    def __init__(
        self,
        job: Job,
        context: RegionContext,
        source: EventLog,
        head: Callable[[], str],
        tag: PositionTag,
        options: DeliveryOptions,
        stop: threading.Event,
    ) -> None:
        self.job, self.tag = job, tag
        self.told = Delivered()
        self._context, self._source, self._head = context, source, head
        self.options, self._stop = options, stop
        self._sender: Sender | None = None
        self._read: str | None = None  # the commit up to which events wait
        self._waiting: deque[_Waiting] = deque()
        self._alone = 0  # so many messages are sent one by one
        self._failing_since: datetime | None = None
        self._tries = 0
        self._seen, self._still_since = "", 0.0

    @property
    def age(self) -> float:
        """Seconds since the oldest commit that isn't delivered whole."""
        first = next(iter(list(self._waiting)[:1]), None)
        return max(0.0, (datetime.now(UTC) - first.time).total_seconds()) if first else 0.0

    def run(self) -> None:
        """Deliver until told to stop; whatever goes wrong is tried again."""
        try:
            while not self._stop.is_set():
                try:
                    self._step()
                except SternaError as error:
                    self._failed(error)
                    self._pause()
                except Exception as error:  # noqa: BLE001 - whatever it is, the next try may go well
                    self._failed(error)
                    self._pause()
        finally:
            self._close()

    def _step(self) -> None:
        if self._read is None:
            self._read = self.tag.begin(self._head())
        if self.tag.lost:
            self._stand_by()
        elif self.told.state == "disabled" or not (self._waiting or self._fill()):
            self._stop.wait(self.options.look)
        else:
            self._send()

    def _fill(self) -> bool:
        """Read what comes next; tell whether there is any."""
        head, read = self._head(), self._read
        if read is None or head == read:
            self._well()
            return False
        stretch = self._source.first_since(read, head, self.options.portion)
        if not stretch.whole:
            self._begin_anew(read, head)
            return False
        for told in stretch.told:
            moment, hash = told.commit.commit_time, told.commit.hash
            events = [each for each in told.events if self.job.wanted(each.table)]
            messages = [Message(each.id, each.table, each.text) for each in events]
            self._waiting += [_Waiting(moment, hash, message) for message in messages]
            self._waiting.append(_Waiting(moment, hash))
            self._read = hash
        return True

    def _begin_anew(self, lost: str, head: str) -> None:
        """Begin at the head: the position is older than what is kept, or the branch was rewound."""
        if self._context.primary.reference(self._source.branch).hash != head:
            raise Busy("the region's own copy may be behind the position")
        self.told.resets += 1
        log.error(
            "outlet %s: its position %s is not in what the log keeps: it begins at the head %s; events are skipped",
            self.job.name, lost[:12], head[:12],
        )  # fmt: skip
        self._read = head
        self.tag.reached(head)

    def _send(self) -> None:
        if self._sender is None:
            self._sender = self.job.open()
        self._finish_commits()
        batch: list[Message] = []
        most = 1 if self._alone else self._sender.at_once
        for each in self._waiting:
            if len(batch) == most:
                break
            batch += [each.message] if each.message else []
        if batch:
            sent = self._sender.send(batch)
            self._acknowledged(sent.count)
            self._judge(sent, len(batch))

    def _acknowledged(self, count: int) -> None:
        self._alone = max(0, self._alone - count)
        self.told.delivered += count
        if count:
            self._well()
        while count:
            count -= self._waiting.popleft().message is not None
        self._finish_commits()

    def _finish_commits(self) -> None:
        while self._waiting and self._waiting[0].message is None:
            self.tag.reached(self._waiting.popleft().commit)

    def _judge(self, sent: Sent, tried: int) -> None:
        problem = sent.problem
        if problem is None:
            return
        if isinstance(problem, OutletDisabled):
            self._failed(problem)
            self.told.state = "disabled"
            self._close()
        elif isinstance(problem, EventRefused) and tried - sent.count > 1:
            self._alone = tried - sent.count  # a broker may refuse a batch for one of its messages
        elif isinstance(problem, EventRefused) or self._is_over(self._waiting[0].time):
            self._give_up(problem)
        else:
            self._failed(problem)
            self._pause(sent.retry_after)

    def _is_over(self, made: datetime) -> bool:
        """Tell whether an event couldn't be delivered for as long as the outlet tries.

        The time runs from the first of the failures that followed one another, or the event's own beginning: whoever
        was away for days isn't sent what waited for him in vain, but what is younger than that.
        """
        self._failing_since = self._failing_since or datetime.now(UTC)
        since = max(self._failing_since, made)
        return (datetime.now(UTC) - since).total_seconds() >= self.job.give_up

    def _give_up(self, problem: SternaError) -> None:
        message = self._waiting[0].message
        assert message is not None
        uri = bury(self._context, self.job.name, message, str(problem))
        log.error("outlet %s: %s goes to the dead letters, %s: %s", self.job.name, message.id, uri, problem)
        self.told.dead += 1
        self._alone = max(0, self._alone - 1)
        self._waiting.popleft()
        self._finish_commits()

    def _stand_by(self) -> None:
        """Another gateway delivers: look now and then whether it still does."""
        if self.told.state != "standby":
            self.told.state, self.told.stepped_back = "standby", self.told.stepped_back + 1
            self._waiting.clear()
            self._alone = 0
            self._close()
            self._seen = ""
        self._stop.wait(self.options.standby * random.uniform(0.7, 1.3))  # noqa: S311 - no secret
        try:
            found = self.tag.look()
        except ReferenceNotFound:
            self._read = None
            self.tag.lost, self.told.state = False, "starting"
            return
        moved = found != self._seen or found == self._head()
        if moved or not self._seen:
            self._seen, self._still_since = found, time.monotonic()
        elif time.monotonic() - self._still_since >= self.options.takeover:
            log.warning("outlet %s: its position stands still, so this gateway goes on", self.job.name)
            self._read = found
            self.tag.take(found)
            self.told.state = "starting"

    def _well(self) -> None:
        self._failing_since, self._tries = None, 0
        self.told.state, self.told.problem = "delivering", ""

    def _failed(self, error: Exception) -> None:
        kind = type(error).__name__
        if self.told.problem != kind:
            known = isinstance(error, SternaError)
            log.error("outlet %s: %s", self.job.name, error if known else kind, exc_info=None if known else error)
        self._tries += 1
        self.told.problem = kind
        if self.told.state != "standby":
            self.told.state = "retrying"
        self.told.failures += 1  # last: whoever sees it sees the state with it

    def _pause(self, asked: float | None = None) -> None:
        growing = min(self.options.longest, self.options.pause * 2 ** min(self._tries - 1, 16))
        # Not before the receiver wants it, and not all at once.
        self._stop.wait((asked or 0.0) + growing * random.uniform(0.5, 1.0))  # noqa: S311 - no secret

    def _close(self) -> None:
        sender, self._sender = self._sender, None
        if sender is not None:
            sender.close()
