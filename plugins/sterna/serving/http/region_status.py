"""The status of a gateway's region, read now and then in a thread of its own, for `/metrics`.

No request waits for it or makes it read: metrics need no token.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from threading import Event, Thread
from typing import Final

from sterna.config.sections.maintenance import Maintenance
from sterna.errors import SternaError
from sterna.operations.alarms import AlarmLimits
from sterna.operations.measures import Measure, region_measures
from sterna.operations.status.read import read_alarm_status
from sterna.replication.replica.region import RegionContext

log = logging.getLogger(__name__)
READ_SECONDS: Final = 30.0
MAX_AGE_SECONDS: Final = 5 * READ_SECONDS
"""Older numbers are shown no more: a reader that hangs must not look as if all were well."""
_JOIN_SECONDS = 1.0


class RegionStatusService:
    """Reads a region's status again and again, from `start` to `stop`.

    Args:
        context: the region.
        maintenance: section `maintenance` of the services file; None where there is none.
        read_seconds: from one reading to the next.
        clock: the monotonic clock.
    """

    def __init__(
        self,
        context: RegionContext,
        maintenance: Maintenance | None = None,
        read_seconds: float = READ_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.region = context.region.name
        self._context, self._maintenance = context, maintenance
        self._read_seconds, self._clock = read_seconds, clock
        self._ended = Event()
        self._newest: tuple[float, list[Measure]] | None = None
        self._thread = Thread(target=self._run, name="sterna-status", daemon=True)

    @property
    def measures(self) -> list[Measure]:
        """The numbers of the newest reading; empty where it failed, or is too old."""
        newest = self._newest
        return newest[1] if newest is not None and self._clock() - newest[0] <= MAX_AGE_SECONDS else []

    def read(self) -> None:
        """Read the status once; where that fails, there are no numbers until the next reading."""
        try:
            with self._context.with_new_connections() as context:  # a failover may have changed the primary
                status = read_alarm_status(context, maintenance=self._maintenance)
            self._newest = self._clock(), region_measures(status, AlarmLimits(math.inf))
        except SternaError as error:
            self._newest = None
            log.warning("the region's status can't be read: %s", error)

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def stop(self) -> None:
        """End; a reading that hangs isn't waited for."""
        self._ended.set()
        self._thread.join(_JOIN_SECONDS)

    def _run(self) -> None:
        while not self._ended.is_set():
            try:
                self.read()
            except Exception:  # an error of ours must not end it for good
                self._newest = None
                log.exception("the region's status can't be read")
            self._ended.wait(self._read_seconds)
