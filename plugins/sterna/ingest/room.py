"""The room: takes drops, and closes batches as their rules say, in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sterna.errors import Remedy, SternaError, StoreError, printable
from sterna.ingest.closing import close_due
from sterna.ingest.inbox import Sent
from sterna.ingest.listed import ListedFolder
from sterna.ingest.model import Drop
from sterna.ingest.region import RegionIngest
from sterna.ingest.schema import marker_uri
from sterna.ingest.served import ServedLook
from sterna.ingest.topics import TopicReader, reader_of
from sterna.ingest.tracker import TableBacklog, Usage

log = logging.getLogger(__name__)
_USAGE_SECONDS = 1.0  # for which what a tenant has taken up is remembered
_BACKLOG_SECONDS = 5.0
_ENDING = 10.0
_DARK_SECONDS = 2.0
_SERVED_SECONDS = 3.0
_HELD_SECONDS = 30.0  # between two looks at what somebody has to mend


@dataclass
class IngestCounts:
    """What a room has done.

    Args:
        drops: that were taken, by format.
        bytes: of these.
        rows: of these.
        repeated: drops that were sent again.
        refused: answers that were none, by status.
        closed: batches, by the rule that closed them.
        listed: drops that were found in listed folders.
        messages: drops that were made of a topic's messages.
        failures: times that the tracker or the store gave no answer.
    """

    drops: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    listed: int = 0
    messages: int = 0
    failures: int = 0


class IngestRoom:
    """One region's ingestion in a gateway.

    Args:
        ingest: the region's.
        look: seconds after which it is looked again whether something is due.
    """

    def __init__(self, ingest: RegionIngest, look: float = 0.5) -> None:
        self.ingest = ingest
        self.counts = IngestCounts()
        self.backlog: Sequence[TableBacklog] = ()
        self.problem = ""
        self.under_way = 0
        self._look = look
        self._prepared = False
        self._preparing = threading.Lock()
        self._usage: dict[str, tuple[float, Usage]] = {}
        self._next_backlog = 0.0
        self._store_failed = False
        self._stop = threading.Event()
        self.threads = [threading.Thread(target=self._run, name="sterna-ingest-closer", daemon=True)]
        for setting in ingest.own.listed:
            folder = ListedFolder(ingest, setting)
            self.threads.append(
                threading.Thread(target=self._list, args=(folder,), name="sterna-ingest-listed", daemon=True)
            )

        self.readers = [reader_of(ingest, topic, self.take, self.usage) for topic in ingest.topics]
        for reader in self.readers:
            self.threads.append(
                threading.Thread(target=self._follow, args=(reader,), name="sterna-ingest-topic", daemon=True)
            )

        if ingest.context is not None:
            self.threads.append(threading.Thread(target=self._serve, name="sterna-ingest-served", daemon=True))

    @property
    def stopped(self) -> int:
        """How many partitions of topics this gateway would read, and can't until somebody mends it."""
        return sum(len(reader.problems) for reader in self.readers)

    def start(self) -> None:
        """Begin to close batches."""
        for thread in self.threads:
            thread.start()

    def stop(self) -> None:
        """End in order."""
        self._stop.set()
        for thread in self.threads:
            if thread.is_alive():
                thread.join(_ENDING)
        self.ingest.close()

    def prepare(self) -> None:
        """See to the tracker before it is used for the first time.

        Raises:
            SternaError: as `RegionIngest.prepare`.
        """
        if not self._prepared:
            with self._preparing:
                if not self._prepared:
                    self.ingest.prepare()
                    self._prepared = True

    def take(self, sent: Sent) -> tuple[Drop, bool]:
        """Make a drop durable, as `Inbox.take`.

        Raises:
            SternaError: it isn't taken.
        """
        self.prepare()
        try:
            drop, new = self.ingest.inbox.take(sent)
        except StoreError:
            self._store_failed = True
            raise
        if new:
            for counter, amount in (
                (self.counts.drops, 1),
                (self.counts.bytes, drop.bytes),
                (self.counts.rows, drop.rows),
            ):
                counter[drop.format.value] += amount
        else:
            self.counts.repeated += 1
        return drop, new

    def usage(self, tenant: str) -> Usage:
        """Return what a tenant has taken up, as of a second ago at most.

        Raises:
            SternaError: the tracker doesn't answer.
        """
        until, known = self._usage.get(tenant, (0.0, None))
        if known is None or until <= time.monotonic():
            self.prepare()
            known = self.ingest.tracker.usage(tenant)
            self._usage[tenant] = time.monotonic() + _USAGE_SECONDS, known
        return known

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._look_at_store()
                self.prepare()
                self._close()
                self._look_at_backlog()
            except SternaError as error:
                self._failed(f"{type(error).__name__}: {error}")
            except Exception:
                log.exception("closing batches failed")
                self._failed("closing batches failed")
            else:
                self._well()
            self._stop.wait(_DARK_SECONDS if self.problem else self._look)

    def _list(self, folder: ListedFolder) -> None:
        while not self._stop.is_set():
            try:
                self.prepare()
                found = folder.look()
                self.counts.listed += found.taken
                self.counts.refused["listed"] += found.refused
            except SternaError as error:
                self.counts.failures += 1
                log.warning("a listed prefix can't be looked at: %s: %s", type(error).__name__, error)
            except Exception:
                log.exception("a look at a listed prefix failed")
            self._stop.wait(folder.setting.every)

    def _follow(self, reader: TopicReader) -> None:
        while not self._stop.is_set():
            wait = 0.0
            try:
                self.prepare()
                self.counts.messages += reader.step()
            except SternaError as error:
                self.counts.failures += 1
                log.warning("topic %s can't be read: %s: %s", reader.topic.name, type(error).__name__, error)
                wait = _DARK_SECONDS if error.remedy is Remedy.RETRY else _HELD_SECONDS
            except Exception:
                log.exception("reading topic %s failed", reader.topic.name)
                wait = _HELD_SECONDS
            self._stop.wait(wait)
        reader.close()

    def _serve(self) -> None:
        assert self.ingest.context is not None
        with self.ingest.context.anew() as context:
            served = ServedLook(replace(self.ingest, context=context))
            while not self._stop.wait(_SERVED_SECONDS):
                try:
                    self.prepare()
                    served.look()
                except SternaError as error:
                    log.info("which replica serves what can't be told now: %s: %s", type(error).__name__, error)
                except Exception:
                    log.exception("a look at the replicas failed")

    def _look_at_store(self) -> None:
        # One that kept silent is not asked for half a minute, which is long for whoever waits to be told 201.
        if self._store_failed:
            self.ingest.objects.ask_again()
            self.ingest.objects.size(marker_uri(self.ingest.own.inbox))
            self._store_failed = False

    def _close(self) -> None:
        for batch in close_due(self.ingest.pool, self.ingest.rules):
            self.counts.closed[batch.closed_by] += 1
            log.info("batch %s of %s is closed: %s", batch.number, batch.lane.channel, batch.closed_by)

    def _look_at_backlog(self) -> None:
        if time.monotonic() >= self._next_backlog:
            self.backlog = self.ingest.tracker.backlog()
            self._next_backlog = time.monotonic() + _BACKLOG_SECONDS

    def _failed(self, problem: str) -> None:
        self.counts.failures += 1
        if problem != self.problem:  # once, and not each time that it is looked
            log.warning("the inbox or the tracker is dark: %s", printable(problem))
        self.problem = problem

    def _well(self) -> None:
        if self.problem:
            log.warning("the inbox and the tracker answer again")
        self.problem = ""
