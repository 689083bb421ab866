"""The sinks of a gateway: one deliverer each, in a thread of its own, and a thread that moves their positions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from sterna.brokers.message import Sender
from sterna.brokers.senders import open_sender
from sterna.concurrency.cached_read import CachedRead
from sterna.config.secrets import Secrets
from sterna.config.sections.model import Services
from sterna.config.sections.sinks import Sink
from sterna.errors import SternaError
from sterna.notifications.change_log.log import EventLog
from sterna.notifications.change_log.table_filters import TablePattern
from sterna.notifications.sinks.delivery import Deliverer, DeliveryJob, DeliveryOptions
from sterna.notifications.sinks.offset import PositionTag, sink_positions
from sterna.replication.replica.authorization import TableAccess
from sterna.replication.replica.region import RegionContext

log = logging.getLogger(__name__)
_MAX_LOG_COMMITS = 20_000
_STOP_SECONDS = 5.0  # for threads to end
SenderOpener = Callable[[Sink, Secrets], Sender]


class SinkService:
    """All sinks of a region.

    Args:
        services: the sinks, and the rules for readers.
        keep: how far back events are delivered.
        options: intervals and sizes.
        opener: opens a sink's sender.
    """

    def __init__(
        self,
        context: RegionContext,
        services: Services,
        keep: timedelta,
        options: DeliveryOptions = DeliveryOptions(),  # noqa: B008
        opener: SenderOpener = open_sender,
    ) -> None:
        self.unknown: tuple[str, ...] = ()
        self._options = options
        self._stop = threading.Event()
        self._context, self.positions_region = context.with_new_connections(), context.with_new_connections()
        self._names = frozenset(services.sinks)
        source = EventLog(self._context, keep, _MAX_LOG_COMMITS)
        head = CachedRead(source.head, options.poll_seconds)
        audience = TableAccess(context.registry, context.region.name, tuple(services.readers))
        self.deliverers = tuple(
            Deliverer(
                DeliveryJob(
                    name, build_table_filter(sink, audience), sink.retry_timeout, partial(opener, sink, context.secrets)
                ),
                self._context,
                source,
                head,
                PositionTag(self.positions_region, name),
                options,
                self._stop,
            )
            for name, sink in region_sinks(services, context.region.name).items()
        )
        thread_targets = [(f"sterna-delivers-{deliverer.job.name}", deliverer.run) for deliverer in self.deliverers]
        thread_targets.append(("sterna-positions", self._run_positions))
        self._threads = [threading.Thread(target=target, name=name, daemon=True) for name, target in thread_targets]

    def start(self) -> None:
        """Start the threads."""
        log.info("sinks: %s", ", ".join(deliverer.job.name for deliverer in self.deliverers) or "none for this region")
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and save the positions if the primary answers in time."""
        self._stop.set()
        deadline = time.monotonic() + _STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._context.close()
        self.positions_region.close()

    def _run_positions(self) -> None:
        last_check = float("-inf")
        while not self._stop.wait(self._options.position_seconds):
            self._save_positions()
            if time.monotonic() - last_check >= self._options.unknown_seconds:
                last_check = time.monotonic()
                self._check_unknown()
        for thread in self._threads[:-1]:
            thread.join(_STOP_SECONDS / 2)
        self._save_positions()

    def _save_positions(self) -> None:
        for deliverer in self.deliverers:
            try:
                deliverer.tag.save()
            except Exception:
                log.exception("the position of sink %s can't be moved", deliverer.job.name)

    def _check_unknown(self) -> None:
        try:
            references = self.positions_region.primary.references()
        except SternaError:
            return
        unknown_names = sink_positions(self.positions_region.region.name, references).keys() - self._names
        if unknown := tuple(sorted(unknown_names)):
            log.error("positions of sinks that aren't in the services file: %s", ", ".join(unknown))
        self.unknown = unknown


def region_sinks(services: Services, region: str) -> Mapping[str, Sink]:
    """Return the sinks that send a region's events, by name."""
    return {name: sink for name, sink in services.sinks.items() if sink.sends_from(region)}


def build_table_filter(sink: Sink, audience: TableAccess) -> Callable[[str], bool]:
    """Return a predicate of tables: the sink's patterns match, and its roles may read the table."""
    patterns = [TablePattern(text) for text in sink.tables]

    def accepts(table: str) -> bool:
        return any(pattern.matches(table) for pattern in patterns) and audience.may_read(table, sink.roles)

    return accepts
