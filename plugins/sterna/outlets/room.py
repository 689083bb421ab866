"""The room: a deliverer an outlet, each in a thread, and one more that moves their positions."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial

from sterna.edges.brokers.message import Sender
from sterna.edges.brokers.open_sender import open_sender
from sterna.edges.secrets import Secrets
from sterna.errors import SternaError
from sterna.feed.log import EventLog
from sterna.feed.patterns import TablePattern
from sterna.outlets.deliverer import Deliverer, DeliveryOptions, Job
from sterna.outlets.position import PositionTag, positions
from sterna.replica.readers import Audience
from sterna.replica.region import RegionContext
from sterna.services.model import Services
from sterna.services.outlets import Outlet

log = logging.getLogger(__name__)
_LOOKED_THROUGH = 20_000
_ENDING = 5.0  # seconds that threads have to end
Opener = Callable[[Outlet, Secrets], Sender]


class OutletRoom:
    """All outlets of a region.

    Args:
        context: the region.
        services: has the outlets, and the rules for readers.
        keep: how far back events are told.
        options: how outlets are served.
        opener: opens an outlet's sender.
    """

    def __init__(
        self,
        context: RegionContext,
        services: Services,
        keep: timedelta,
        options: DeliveryOptions = DeliveryOptions(),  # noqa: B008
        opener: Opener = open_sender,
    ) -> None:
        self.unknown: tuple[str, ...] = ()
        self._options = options
        self._stop = threading.Event()
        self._context, self.positions_region = context.anew(), context.anew()
        self._names = frozenset(services.outlets)
        source = EventLog(self._context, keep, _LOOKED_THROUGH)
        head = HeadWatch(source, options.look)
        audience = Audience(context.registry, context.region.name, tuple(services.readers))
        self.deliverers = tuple(
            Deliverer(
                Job(name, wanted_by(outlet, audience), outlet.give_up, partial(opener, outlet, context.secrets)),
                self._context,
                source,
                head,
                PositionTag(self.positions_region, name),
                options,
                self._stop,
            )
            for name, outlet in outlets_of(services, context.region.name).items()
        )
        works = [(f"sterna-delivers-{each.job.name}", each.run) for each in self.deliverers]
        works.append(("sterna-positions", self._move))
        self._threads = [threading.Thread(target=work, name=name, daemon=True) for name, work in works]

    def start(self) -> None:
        """Begin to deliver."""
        log.info("outlets: %s", ", ".join(each.job.name for each in self.deliverers) or "none for this region")
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """End, and leave the positions where delivery is, if the primary answers in time."""
        self._stop.set()
        end = time.monotonic() + _ENDING
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        self._context.close()
        self.positions_region.close()

    def _move(self) -> None:
        looked = float("-inf")
        while not self._stop.wait(self._options.move):
            self._store()
            if time.monotonic() - looked >= self._options.unknown:
                looked = time.monotonic()
                self._look_for_unknown()
        for each in self._threads[:-1]:
            each.join(_ENDING / 2)
        self._store()

    def _store(self) -> None:
        for each in self.deliverers:
            try:
                each.tag.store()
            except Exception:
                log.exception("the position of outlet %s can't be moved", each.job.name)

    def _look_for_unknown(self) -> None:
        try:
            references = self.positions_region.primary.references()
        except SternaError:
            return
        found = positions(self.positions_region.region.name, references).keys() - self._names
        if unknown := tuple(sorted(found)):
            log.error("positions of outlets that aren't in the services file: %s", ", ".join(unknown))
        self.unknown = unknown


class HeadWatch:
    """The branch's head, asked for once for all outlets.

    Args:
        source: reads it.
        seconds: how long an answer is good for.
    """

    def __init__(self, source: EventLog, seconds: float) -> None:
        self._source = source
        self._seconds = seconds
        self._lock = threading.Lock()
        self._head, self._asked = "", float("-inf")

    def __call__(self) -> str:
        """Return the head.

        Raises:
            CatalogError: it can't be read now.
        """
        with self._lock:
            if time.monotonic() - self._asked >= self._seconds:
                self._head = self._source.head()
                self._asked = time.monotonic()
            return self._head


def outlets_of(services: Services, region: str) -> Mapping[str, Outlet]:
    """Return the outlets that send what happens in a region."""
    return {name: outlet for name, outlet in services.outlets.items() if outlet.sends_from(region)}


def wanted_by(outlet: Outlet, audience: Audience) -> Callable[[str], bool]:
    """Return what tells whether an outlet is sent a table's events: it asks for them, and may have them."""
    patterns = [TablePattern(text) for text in outlet.tables]

    def wanted(table: str) -> bool:
        return any(each.matches(table) for each in patterns) and audience.may_read(table, outlet.roles)

    return wanted
