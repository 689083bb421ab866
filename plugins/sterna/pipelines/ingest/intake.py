"""Ingestion in a gateway: takes uploads, and closes batches, reads folders and topics, and polls replicas beside."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf

from sterna.errors import SternaError, StoreError
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.model import Upload
from sterna.pipelines.ingest.prefix_watcher import PrefixWatcher
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.topics import TopicReader, build_reader
from sterna.pipelines.ingest.tracker import TableBacklog, Usage
from sterna.pipelines.ingest.tracker_schema import marker_uri
from sterna.pipelines.ingest.visibility import ReplicaVisibility
from sterna.runtime.failures import as_sterna_error, describe_error
from sterna.runtime.reconciler import Idle, Reconciler
from sterna.runtime.runner import Runner

log = logging.getLogger(__name__)
_USAGE_CACHE_SECONDS = 1.0  # for which what a tenant has taken up is remembered
_BACKLOG_SECONDS = 5.0
_JOIN_SECONDS = 10.0
_VISIBILITY_SECONDS = 3.0
_RETRY_SECONDS = 2.0
_STOPPED_SECONDS = 30.0


@dataclass
class IngestCounts:
    """Counters of a gateway's ingestion.

    Args:
        uploads: that were taken, by format.
        bytes: of these.
        rows: of these.
        repeated: uploads that were sent again.
        refused: answers that were none, by status.
        closed: batches, by the rule that closed them.
        listed: uploads that were found in listed folders.
        messages: uploads that were made of a topic's messages.
        failures: times that the tracker or the store gave no answer.
    """

    uploads: Counter[str] = field(default_factory=Counter)
    bytes: Counter[str] = field(default_factory=Counter)
    rows: Counter[str] = field(default_factory=Counter)
    repeated: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    closed: Counter[str] = field(default_factory=Counter)
    listed: int = 0
    messages: int = 0
    failures: int = 0


class IntakePoll(Reconciler[None, None, object]):
    """One thing that an intake does again and again, in a thread of its own: each poll finds what is new, and takes it.

    Args:
        interval: seconds from the end of one poll to the next; after a failure, too, where it is longer than a retry's.
        prepare: sees that inbox and tracker are there.
        poll: takes what is new; idempotent.
        on_failure: called with the error of either.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        prepare: Callable[[], object],
        poll: Callable[[], object],
        on_failure: Callable[[BaseException], object],
    ) -> None:
        self.name, self.interval, self._pause = name, interval, interval
        self.retry_seconds, self.stopped_seconds = max(_RETRY_SECONDS, interval), max(_STOPPED_SECONDS, interval)
        self._prepare, self._poll, self._on_failure = prepare, poll, on_failure

    def observe(self, previous: None = None) -> None:
        """See that inbox and tracker are there.

        Raises:
            SternaError: as `RegionIngest.prepare`.
        """
        self._prepare()

    def decide(self, state: None) -> Idle | None:
        """Return None: whether anything is new is seen as it is taken."""
        return None

    def apply(self, state: None, work: None) -> object:
        """Take what is new.

        Raises:
            SternaError: the tracker, a store, a topic or a catalog doesn't answer.
        """
        begun = time.monotonic()
        try:
            return self._poll()
        finally:
            self.interval = self._pause + time.monotonic() - begun  # the runner counts from a poll's start

    def summarize(self, result: object) -> str:
        """Return "": counters have what was taken."""
        return ""

    def record_failure(self, error: BaseException) -> None:
        """Count it, or show it; what is unexpected is tried again as rarely as what an operator has to mend."""
        retry = _RETRY_SECONDS if isinstance(error, SternaError) else _STOPPED_SECONDS
        self.retry_seconds = max(retry, self._pause)
        self._on_failure(error)


class IngestService:
    """One region's ingestion in a gateway.

    Args:
        poll_seconds: seconds between two checks for batches that are due.
    """

    def __init__(self, ingest: RegionIngest, poll_seconds: float = 0.5) -> None:
        self.ingest = ingest
        self.counts = IngestCounts()
        self.backlog: Sequence[TableBacklog] = ()
        self.problem = ""
        self.in_flight = 0
        self._is_prepared = False
        self._prepare_lock = threading.Lock()
        self._usage: dict[str, tuple[float, Usage]] = {}
        self._next_backlog = 0.0
        self._store_failed = False
        self._stop = threading.Event()
        self.readers = [build_reader(ingest, topic, self.accept, self.read_usage) for topic in ingest.buffered_topics]
        closer = IntakePoll("inbox and tracker", poll_seconds, self._probe_store, self._close, self._record_problem)
        self.threads = [self._thread("closer", closer)]
        for setting in ingest.region_settings.listed:
            poll = partial(self._poll_prefix, PrefixWatcher(ingest, setting))
            self.threads.append(self._thread("listed", self._poll(f"prefix {setting.prefix}", setting.every, poll)))
        for reader in self.readers:
            # A poll waits for messages itself.
            topic = self._poll(f"topic {reader.topic.name}", 0, partial(self._poll_topic, reader))
            self.threads.append(self._thread("topic", topic, reader.close))
        if ingest.context is not None:
            for region in ingest.registry.region_names:
                context = ingest.context.with_new_connections()
                visibility = ReplicaVisibility(replace(ingest, context=context), region)
                name = f"replica {region}"
                replica = IntakePoll(name, _VISIBILITY_SECONDS, self.prepare, visibility.poll, lambda error: None)
                self.threads.append(self._thread("served", replica, context.close))

    def _poll(self, name: str, interval: float, poll: Callable[[], object]) -> IntakePoll:
        return IntakePoll(name, interval, self.prepare, poll, self._count_failure)

    def _thread(self, name: str, poll: IntakePoll, close: Callable[[], object] = lambda: None) -> threading.Thread:
        """Return a thread that polls until the service stops, and then closes what it polled."""

        def run() -> None:
            Runner([poll], log.warning, stopping=self._stop).run(inf)
            close()

        return threading.Thread(target=run, name=f"sterna-ingest-{name}", daemon=True)

    @property
    def stopped_partitions(self) -> int:
        """How many partitions of topics this gateway can't read until an operator fixes them."""
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
                thread.join(_JOIN_SECONDS)
        self.ingest.close()

    def prepare(self) -> None:
        """Create or check the tracker's tables before the first use.

        Raises:
            SternaError: as `RegionIngest.prepare`.
        """
        if not self._is_prepared:
            with self._prepare_lock:
                if not self._is_prepared:
                    self.ingest.prepare()
                    self._is_prepared = True

    def accept(self, request: UploadRequest) -> tuple[Upload, bool]:
        """Make an upload durable, as `Inbox.accept`.

        Raises:
            SternaError: it isn't taken.
        """
        self.prepare()
        try:
            upload, is_new = self.ingest.inbox.accept(request)
        except StoreError:
            self._store_failed = True
            raise
        if is_new:
            for counter, amount in (
                (self.counts.uploads, 1),
                (self.counts.bytes, upload.bytes),
                (self.counts.rows, upload.rows),
            ):
                counter[upload.format.value] += amount
        else:
            self.counts.repeated += 1
        return upload, is_new

    def read_usage(self, tenant: str) -> Usage:
        """Return what a tenant has taken up, as of a second ago at most.

        Raises:
            SternaError: the tracker doesn't answer.
        """
        expires, usage = self._usage.get(tenant, (0.0, None))
        if usage is None or expires <= time.monotonic():
            self.prepare()
            usage = self.ingest.tracker.read_usage(tenant)
            self._usage[tenant] = time.monotonic() + _USAGE_CACHE_SECONDS, usage
        return usage

    def _poll_prefix(self, watcher: PrefixWatcher) -> None:
        poll_counts = watcher.poll()
        self.counts.listed += poll_counts.accepted
        self.counts.refused["listed"] += poll_counts.rejected

    def _poll_topic(self, reader: TopicReader) -> None:
        self.counts.messages += reader.poll()

    def _probe_store(self) -> None:
        # A store that didn't answer is not called for half a minute: long for a client that waits for its 201.
        if self._store_failed:
            self.ingest.objects.reset_circuit_breakers()
            self.ingest.objects.size(marker_uri(self.ingest.region_settings.inbox))
            self._store_failed = False

    def _close(self) -> None:
        self.prepare()
        for batch in close_due(self.ingest.pool, self.ingest.rules):
            self.counts.closed[batch.closed_by] += 1
            log.info("batch %s of %s is closed: %s", batch.number, batch.destination.channel, batch.closed_by)
        if time.monotonic() >= self._next_backlog:
            self.backlog = self.ingest.tracker.list_backlog()
            self._next_backlog = time.monotonic() + _BACKLOG_SECONDS
        if self.problem:
            log.warning("the inbox and the tracker answer again")
        self.problem = ""

    def _count_failure(self, error: BaseException) -> None:
        self.counts.failures += 1

    def _record_problem(self, error: BaseException) -> None:
        self._count_failure(error)
        self.problem = describe_error(as_sterna_error(error))
