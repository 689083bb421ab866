"""Ingestion in a gateway: takes uploads, and closes batches by their rules in a thread of its own."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sterna.errors import Remedy, SternaError, StoreError, printable
from sterna.pipelines.ingest.batch_rules import close_due
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.model import Upload
from sterna.pipelines.ingest.prefix_watcher import PrefixWatcher
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.topics import TopicReader, build_reader
from sterna.pipelines.ingest.tracker import TableBacklog, Usage
from sterna.pipelines.ingest.tracker_schema import marker_uri
from sterna.pipelines.ingest.visibility import ReplicaVisibility

log = logging.getLogger(__name__)
_USAGE_CACHE_SECONDS = 1.0  # for which what a tenant has taken up is remembered
_BACKLOG_SECONDS = 5.0
_JOIN_SECONDS = 10.0
_RETRY_SECONDS = 2.0
_VISIBILITY_SECONDS = 3.0
_OPERATOR_WAIT_SECONDS = 30.0  # between two polls of what an operator has to fix


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
        self._poll_seconds = poll_seconds
        self._is_prepared = False
        self._prepare_lock = threading.Lock()
        self._usage: dict[str, tuple[float, Usage]] = {}
        self._next_backlog = 0.0
        self._store_failed = False
        self._stop = threading.Event()
        self.threads = [threading.Thread(target=self._run_closer, name="sterna-ingest-closer", daemon=True)]
        for setting in ingest.region_settings.listed:
            watcher = PrefixWatcher(ingest, setting)
            self.threads.append(
                threading.Thread(target=self._watch_prefix, args=(watcher,), name="sterna-ingest-listed", daemon=True)
            )

        self.readers = [build_reader(ingest, topic, self.accept, self.read_usage) for topic in ingest.topics]
        for reader in self.readers:
            self.threads.append(
                threading.Thread(target=self._read_topic, args=(reader,), name="sterna-ingest-topic", daemon=True)
            )

        if ingest.context is not None:
            self.threads.append(
                threading.Thread(target=self._poll_visibility, name="sterna-ingest-served", daemon=True)
            )

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

    def _run_closer(self) -> None:
        while not self._stop.is_set():
            try:
                self._probe_store()
                self.prepare()
                self._close()
                self._refresh_backlog()
            except SternaError as error:
                self._record_failure(f"{type(error).__name__}: {error}")
            except Exception:
                log.exception("closing batches failed")
                self._record_failure("closing batches failed")
            else:
                self._record_success()
            self._stop.wait(_RETRY_SECONDS if self.problem else self._poll_seconds)

    def _watch_prefix(self, watcher: PrefixWatcher) -> None:
        while not self._stop.is_set():
            try:
                self.prepare()
                poll_counts = watcher.poll()
                self.counts.listed += poll_counts.accepted
                self.counts.refused["listed"] += poll_counts.rejected
            except SternaError as error:
                self.counts.failures += 1
                log.warning("a listed prefix can't be looked at: %s: %s", type(error).__name__, error)
            except Exception:
                log.exception("a look at a listed prefix failed")
            self._stop.wait(watcher.setting.every)

    def _read_topic(self, reader: TopicReader) -> None:
        while not self._stop.is_set():
            delay = 0.0
            try:
                self.prepare()
                self.counts.messages += reader.poll()
            except SternaError as error:
                self.counts.failures += 1
                log.warning("topic %s can't be read: %s: %s", reader.topic.name, type(error).__name__, error)
                delay = _RETRY_SECONDS if error.remedy is Remedy.RETRY else _OPERATOR_WAIT_SECONDS
            except Exception:
                log.exception("reading topic %s failed", reader.topic.name)
                delay = _OPERATOR_WAIT_SECONDS
            self._stop.wait(delay)
        reader.close()

    def _poll_visibility(self) -> None:
        assert self.ingest.context is not None
        with self.ingest.context.with_new_connections() as context:
            visibility = ReplicaVisibility(replace(self.ingest, context=context))
            while not self._stop.wait(_VISIBILITY_SECONDS):
                try:
                    self.prepare()
                    visibility.poll()
                except SternaError as error:
                    log.info("can't determine now which replica serves what: %s: %s", type(error).__name__, error)
                except Exception:
                    log.exception("a look at the replicas failed")

    def _probe_store(self) -> None:
        # A store that didn't answer is not called for half a minute: long for a client that waits for its 201.
        if self._store_failed:
            self.ingest.objects.reset_circuit_breakers()
            self.ingest.objects.size(marker_uri(self.ingest.region_settings.inbox))
            self._store_failed = False

    def _close(self) -> None:
        for batch in close_due(self.ingest.pool, self.ingest.rules):
            self.counts.closed[batch.closed_by] += 1
            log.info("batch %s of %s is closed: %s", batch.number, batch.destination.channel, batch.closed_by)

    def _refresh_backlog(self) -> None:
        if time.monotonic() >= self._next_backlog:
            self.backlog = self.ingest.tracker.list_backlog()
            self._next_backlog = time.monotonic() + _BACKLOG_SECONDS

    def _record_failure(self, problem: str) -> None:
        self.counts.failures += 1
        if problem != self.problem:  # once, and not at each poll
            log.warning("the inbox or the tracker is dark: %s", printable(problem))
        self.problem = problem

    def _record_success(self) -> None:
        if self.problem:
            log.warning("the inbox and the tracker answer again")
        self.problem = ""
