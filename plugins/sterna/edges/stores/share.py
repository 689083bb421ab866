"""A process's share of a location's bandwidth, which all processes of a region divide among themselves.

Each holds a lease (`sterna.edges.stores.leases`) that says how much it takes. Every few seconds it looks at the others'
and goes towards an equal share. It lowers what it takes before its lease says so. It raises it only after its lease has
said so, and only where all leases together, looked at after that, stay within the limit. So the sum of those who see
one another stays within it, whoever is late. docs/architecture.md says what comes on top.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from functools import cache
from typing import Final, Protocol

from sterna.edges.secrets import Secrets
from sterna.edges.stores.leases import Leases
from sterna.edges.stores.open_store import OpenStore
from sterna.errors import SternaError
from sterna.registry.bandwidth import parse_bandwidth
from sterna.registry.mapping import Place
from sterna.registry.model import Location
from sterna.repeating import repeated

_log = logging.getLogger(__name__)

BEAT_SECONDS: Final = 3.0
PATIENCE_SECONDS: Final = 10.0
"""For so long a share holds without a look at the others; less than a lease's expiry, by far."""
CAUTIOUS: Final = 64
"""Part of the limit that a process takes which can't see the others."""
LEASE_TIMEOUT_SECONDS: Final = 5.0
"""How long the region's store may stay silent about leases; a copy goes on without them, cautiously."""
_START_SECONDS: Final = 60.0
_TRIES: Final = 3

Apply = Callable[[int | None, int, float], bool]
"""Takes bytes a second (None: no limit), what to fall back to, and after how many seconds; tells whether it holds."""


class LeaseBook(Protocol):
    """Where a share's lease is written, and the others' are read; see `Leases`."""

    def write(self, rate: int) -> None:
        """Write the lease."""
        ...

    def others(self) -> list[int | None]:
        """Return the rates of the other living leases."""
        ...

    def drop(self) -> None:
        """Take the lease away."""
        ...


class Share:
    """One process's share.

    Args:
        leases: its lease, and the others'.
        bandwidth: the location's limit, as the registry has it.
        minute: returns the minute of the week, from Sunday's midnight on, in the machine's time.
        pause_seconds: until the next look, where there is no equal share yet or the region's store can't be used.

    Attributes:
        rate: bytes a second that it takes at most; None: no limit.
        valid_until: when that runs out, by the monotonic clock.
        cautious: bytes a second that are taken without a look at the others.
        apply: puts a rate in force.
    """

    def __init__(
        self,
        leases: LeaseBook,
        bandwidth: str,
        minute: Callable[[], int] | None = None,
        *,
        pause_seconds: float = 1.0,
    ) -> None:
        self.leases = leases
        self.rate: int | None = 0
        self.valid_until = float("-inf")
        self._bandwidth = parse_bandwidth(bandwidth)
        self.cautious = max(1, self._bandwidth.least // CAUTIOUS)
        self._minute = minute or _minute_of_week
        self._claim = 0
        self._warned = False
        self._due = float("-inf")
        self._pause_seconds = pause_seconds
        self.apply: Apply = lambda rate, cautious, seconds: True

    def begin(self, deadline: float | None = None) -> None:
        """Wait until there is room for a share. Begin with the cautious one where there is none within a minute, or
        where the region's store can't be used.

        Args:
            deadline: seconds after which it begins in any case.
        """
        end = time.monotonic() + min(_START_SECONDS, _START_SECONDS if deadline is None else deadline)
        failures = 0
        while self.rate == 0:
            try:
                self.look()
            except SternaError as error:
                failures += 1
                self._warn(error)
            if self.rate == 0:
                if failures == _TRIES or time.monotonic() >= end:
                    self.rate = self.cautious
                    return
                time.sleep(self._pause_seconds)

    def rate_at(self, now: float) -> int | None:
        """Return the rate at a time by the monotonic clock: the cautious one, where nobody has looked for long."""
        if now < self.valid_until or self.rate == 0:
            return self.rate
        # Without a limit too: one may have begun by the timetable meanwhile.
        return self.cautious if self.rate is None else min(self.rate, self.cautious)

    @contextmanager
    def kept(self, apply: Apply) -> Iterator[None]:
        """Look at the others now and then while a block runs, which takes what `apply` is called with.

        Args:
            apply: puts a rate in force.
        """
        self.apply = apply
        try:
            with repeated(self.look_when_due, self._pause_seconds, "sterna-share", 1.0):
                yield
        finally:
            self.leases.drop()

    def look_when_due(self) -> None:
        """Look at the others where it is time to; a store that can't be used leaves the share to run out."""
        if time.monotonic() < self._due:
            return
        try:
            self.look()
        except SternaError as error:
            self._due = time.monotonic() + self._pause_seconds
            self._warn(error)

    def _warn(self, error: SternaError) -> None:
        """Tell once why this process is slow: it may go on so for hours."""
        if not self._warned:
            self._warned = True
            _log.warning(
                "leases on bandwidth can't be used, at most %d bytes a second are taken: %s", self.cautious, error
            )

    def look(self) -> int | None:
        """Look at the others once; return the rate from now on.

        Raises:
            StoreUnreachable, StoreDenied, CredentialError: the region's store can't be used.
        """
        begun = time.monotonic()
        self.rate = self.rate_at(begun)  # others may have taken what it had before
        limit = self._bandwidth.at(self._minute())
        if limit is None:
            self.leases.write(self._bandwidth.greatest)  # whose clock has a limit now waits for this one
            self._put(None, begun)
            self._due = begun + BEAT_SECONDS
        else:
            if self.rate is None:
                self._put(self.cautious, begun)  # before any request: others' leases may be out of reach
            self._go_towards(limit, begun)
        return self.rate

    def _go_towards(self, limit: int, begun: float) -> None:
        self.leases.write(max(self._claim, self.rate or 0))
        others = self.leases.others()
        fair = max(1, limit // (len(others) + 1))
        lower = self.rate is None or self.rate > fair
        if lower:
            self._put(fair, begun)
        if max(fair, self.rate or 0) != self._claim:
            self._claim = max(fair, self.rate or 0)
            self.leases.write(self._claim)
            others = self.leases.others()
        if not lower:
            taken = sum(limit if other is None else other for other in others)
            self._put(fair if fair + taken <= limit else self.rate, begun)
        self._due = begun + (BEAT_SECONDS if self.rate == fair else self._pause_seconds)

    def _put(self, rate: int | None, begun: float) -> None:
        """Put a rate in force; a lower one counts once it is confirmed."""
        seconds = PATIENCE_SECONDS - (time.monotonic() - begun)
        if seconds <= 0:
            return
        holds = self.apply(rate, self.cautious, seconds)
        lower = rate is not None and (self.rate is None or rate < self.rate)
        self.valid_until = begun + PATIENCE_SECONDS
        if holds or not lower:
            self.rate = rate


def is_limited(location: Location) -> bool:
    """Tell whether what is read of a location is limited, at whatever time."""
    return bool(location.bandwidth and parse_bandwidth(location.bandwidth).least)


def share_of(location: Location, place: Place, secrets: Secrets) -> Share:
    """Return a new share of the bandwidth of a location that is limited; nothing is opened before it looks.

    Args:
        location: the location.
        place: the folder where all leases of the region are.
        secrets: finds the credential of that folder's location.
    """

    @cache
    def store() -> OpenStore:
        return OpenStore(place.location, secrets, LEASE_TIMEOUT_SECONDS)

    return Share(Leases(store, "/".join(filter(None, (place.path, location.id)))), location.bandwidth or "off")


def _minute_of_week() -> int:
    now = datetime.now()
    return (now.isoweekday() % 7) * 1440 + now.hour * 60 + now.minute
