"""A process's share of a location's bandwidth, which all processes of a region divide among themselves.

Each holds a lease with its rate, `<folder>/<lease>.json`, beside the replica: all processes of a region, on whichever
host, write to its replica root, so that is where they see one another. A lease is overwritten while its holder lives.
Ages are measured by the store's own clock, against the reader's own lease.

Every few seconds a process reads the others' leases and moves towards an equal share. It lowers its rate before its
lease does. It raises it only after its lease has done so, and only where all leases together, read after that, stay
within the limit. So the sum of those that see one another stays within it, in spite of delays. See docs/architecture.md
for what comes on top.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, Protocol

from sterna.codec import INTEGER, Field, Record, UnknownFields
from sterna.concurrency.periodic import run_periodically
from sterna.config.mapping import UriLocation
from sterna.config.registry.bandwidth import parse_bandwidth
from sterna.config.registry.model import Location
from sterna.config.secrets import Secrets
from sterna.errors import ObjectMissing, SternaError, StoreUnreachable
from sterna.storage.client import OpenStore, call_store, list_pages

_log = logging.getLogger(__name__)

REFRESH_SECONDS: Final = 3.0
LEASE_EXPIRY_SECONDS: Final = 20.0
VALID_SECONDS: Final = 10.0
"""Seconds for which a share holds without reading the others' leases; far less than a lease's expiry."""
FALLBACK_DIVISOR: Final = 64
"""Part of the limit that a process takes which can't see the others."""
LEASE_TIMEOUT_SECONDS: Final = 5.0
"""Timeout for reading leases from the region's store; without them a copy takes the cautious rate."""
_START_SECONDS: Final = 60.0
_MAX_FAILURES: Final = 3

ApplyRate = Callable[[int | None, int, float], bool]
"""Takes bytes a second (None: no limit), the fallback rate, and after how many seconds; returns whether it applies."""


@dataclass(frozen=True)
class Lease:
    """What a process may send or read.

    Args:
        rate: bytes a second, at most; what it is about to take counts as taken.
    """

    rate: int


LEASE: Final = Record(Lease, (Field("rate", INTEGER),), UnknownFields.IGNORE)


@dataclass
class Leases:
    """One process's lease, and those beside it.

    Args:
        store: returns the region's store; called for each read.
        folder: where the leases on one location are: a path below the store's prefix.
        name: of this process's lease.
    """

    store: Callable[[], OpenStore]
    folder: str
    name: str = field(default_factory=lambda: f"{secrets.token_hex(8)}.json")
    _rates: dict[tuple[str, Any], int | None] = field(default_factory=dict)
    _released: bool = False

    def write(self, rate: int) -> None:
        """Write the lease, which shows that its holder lives.

        Raises:
            StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
        """
        import obstore

        if self._released:
            return  # by a look that was under way
        store, body = self.store(), LEASE.dumps(Lease(rate)).encode()
        key = store.key(f"{self.folder}/{self.name}")
        call_store(store, self._uri(store), lambda: obstore.put(store.client, key, body, use_multipart=False))

    def other_rates(self) -> list[int | None]:
        """Return the rates of all other living leases; None for one that can't be understood.

        Raises:
            StoreUnreachable, StoreDenied, CredentialError: the store can't be used, or hides the lease just written.
        """
        store = self.store()
        listed = {
            meta["path"].rpartition("/")[2]: meta
            for page in list_pages(store, self._uri(store), store.key(self.folder))
            for meta in page
        }
        own = listed.pop(self.name, None)
        if own is None:
            raise StoreUnreachable("the lease just written isn't listed", file=self._uri(store))
        living = [
            meta
            for meta in listed.values()
            if (own["last_modified"] - meta["last_modified"]).total_seconds() <= LEASE_EXPIRY_SECONDS
        ]
        self._rates = {tag: rate for meta in living for tag, rate in self._read_rate(store, meta).items()}
        return list(self._rates.values())

    def release(self) -> None:
        """Take the lease away; where that fails it runs out."""
        import obstore

        self._released = True
        with suppress(SternaError):
            store = self.store()
            key = store.key(f"{self.folder}/{self.name}")
            call_store(store, self._uri(store), lambda: obstore.delete(store.client, key))

    def _read_rate(self, store: OpenStore, meta: dict[str, Any]) -> dict[tuple[str, Any], int | None]:
        """Return a lease's record, read again only where it changed; nothing where it is gone by now."""
        import obstore

        tag = (meta["path"], meta.get("e_tag"))
        if tag[1] is not None and tag in self._rates:
            return {tag: self._rates[tag]}
        try:
            body = call_store(store, self._uri(store), lambda: bytes(obstore.get(store.client, meta["path"]).bytes()))
            return {tag: LEASE.loads(body).rate}
        except ObjectMissing:
            return {}
        except ValueError:
            return {tag: None}

    def _uri(self, store: OpenStore) -> str:
        return f"{store.location.prefix}/{self.folder}/{self.name}"


def utc_now() -> datetime:
    """Return the time by which timetables are followed."""
    return datetime.now(UTC)


class LeaseBook(Protocol):
    """Writes a share's lease, and reads the others'; see `Leases`."""

    def write(self, rate: int) -> None:
        """Write the lease."""
        ...

    def other_rates(self) -> list[int | None]:
        """Return the rates of the other living leases."""
        ...

    def release(self) -> None:
        """Delete the lease."""
        ...


class BandwidthShare:
    """One process's share.

    Args:
        leases: its lease, and the others'.
        bandwidth: the location's limit, as the registry has it.
        clock: returns the time, with its zone, by which a timetable is followed.
        pause_seconds: until the next read, where there is no equal share yet or the region's store can't be used.

    Attributes:
        rate: bytes a second that it takes at most; None: no limit.
        valid_until: when that runs out, by the monotonic clock.
        fallback_rate: bytes a second that are taken without reading the others' leases.
        apply: puts a rate in force.
    """

    def __init__(
        self,
        leases: LeaseBook,
        bandwidth: str,
        clock: Callable[[], datetime] = utc_now,
        *,
        pause_seconds: float = 1.0,
    ) -> None:
        self.leases = leases
        self.rate: int | None = 0
        self.valid_until = float("-inf")
        self._bandwidth = parse_bandwidth(bandwidth)
        self.fallback_rate = max(1, self._bandwidth.lowest_rate // FALLBACK_DIVISOR)
        self._clock = clock
        self._leased_rate = 0
        self._warned = False
        self._next_refresh = float("-inf")
        self._pause_seconds = pause_seconds
        self.apply: ApplyRate = lambda rate, fallback_rate, seconds: True

    def begin(self, timeout: float | None = None) -> None:
        """Wait for a share of the bandwidth. Begin with the cautious rate where there is none within a minute, or where
        the region's store can't be used.

        Args:
            timeout: seconds after which it begins in any case.
        """
        deadline = time.monotonic() + min(_START_SECONDS, _START_SECONDS if timeout is None else timeout)
        failures = 0
        while self.rate == 0:
            try:
                self.refresh()
            except SternaError as error:
                failures += 1
                self._warn(error)
            if self.rate == 0:
                if failures == _MAX_FAILURES or time.monotonic() >= deadline:
                    self.rate = self.fallback_rate
                    return
                time.sleep(self._pause_seconds)

    def rate_at(self, now: float) -> int | None:
        """Return the rate at a time by the monotonic clock: the cautious one where the leases weren't read for long."""
        if now < self.valid_until or self.rate == 0:
            return self.rate
        # Without a limit too: the timetable may have started one meanwhile.
        return self.fallback_rate if self.rate is None else min(self.rate, self.fallback_rate)

    @contextmanager
    def maintained(self, apply: ApplyRate) -> Iterator[None]:
        """Read the others' leases periodically while a block runs, whose rate is what `apply` is called with.

        Args:
            apply: puts a rate in force.
        """
        self.apply = apply
        try:
            with run_periodically(self.refresh_when_due, self._pause_seconds, "sterna-share", 1.0):
                yield
        finally:
            self.leases.release()

    def refresh_when_due(self) -> None:
        """Read the others' leases when due; where the store can't be used, the share runs out."""
        if time.monotonic() < self._next_refresh:
            return
        try:
            self.refresh()
        except SternaError as error:
            self._next_refresh = time.monotonic() + self._pause_seconds
            self._warn(error)

    def _warn(self, error: SternaError) -> None:
        """Log once why this process is slow: it may stay so for hours."""
        if not self._warned:
            self._warned = True
            _log.warning(
                "leases on bandwidth can't be used, at most %d bytes a second are taken: %s", self.fallback_rate, error
            )

    def refresh(self) -> int | None:
        """Read the others' leases once; return the new rate.

        Raises:
            StoreUnreachable, StoreDenied, CredentialError: the region's store can't be used.
        """
        started = time.monotonic()
        self.rate = self.rate_at(started)  # others may have taken what it had before
        limit = self._bandwidth.rate_at(self._clock())
        if limit is None:
            # A process whose timetable has a limit now waits for this lease.
            self.leases.write(self._bandwidth.highest_rate)
            self._apply_rate(None, started)
            self._next_refresh = started + REFRESH_SECONDS
        else:
            if self.rate is None:
                self._apply_rate(self.fallback_rate, started)  # before any request: others' leases may be out of reach
            self._approach_fair_rate(limit, started)
        return self.rate

    def _approach_fair_rate(self, limit: int, started: float) -> None:
        self.leases.write(max(self._leased_rate, self.rate or 0))
        other_rates = self.leases.other_rates()
        fair_rate = max(1, limit // (len(other_rates) + 1))
        is_lower = self.rate is None or self.rate > fair_rate
        if is_lower:
            self._apply_rate(fair_rate, started)
        if max(fair_rate, self.rate or 0) != self._leased_rate:
            self._leased_rate = max(fair_rate, self.rate or 0)
            self.leases.write(self._leased_rate)
            other_rates = self.leases.other_rates()
        if not is_lower:
            leased_by_others = sum(limit if other_rate is None else other_rate for other_rate in other_rates)
            self._apply_rate(fair_rate if fair_rate + leased_by_others <= limit else self.rate, started)
        self._next_refresh = started + (REFRESH_SECONDS if self.rate == fair_rate else self._pause_seconds)

    def _apply_rate(self, rate: int | None, started: float) -> None:
        """Put a rate in force; a lower one counts once it is confirmed."""
        seconds = VALID_SECONDS - (time.monotonic() - started)
        if seconds <= 0:
            return
        confirmed = self.apply(rate, self.fallback_rate, seconds)
        is_lower = rate is not None and (self.rate is None or rate < self.rate)
        self.valid_until = started + VALID_SECONDS
        if confirmed or not is_lower:
            self.rate = rate


def is_limited(location: Location) -> bool:
    """Return whether reads of a location are limited at any time."""
    return bool(location.bandwidth and parse_bandwidth(location.bandwidth).lowest_rate)


def open_share(
    location: Location, place: UriLocation, secrets: Secrets, clock: Callable[[], datetime] = utc_now
) -> BandwidthShare:
    """Return a new share of the bandwidth of a location that is limited; nothing is opened before it is read.

    Args:
        place: the folder where all leases of the region are.
        secrets: finds the credential of that folder's location.
        clock: returns the time by which a timetable is followed.
    """

    @cache
    def store() -> OpenStore:
        return OpenStore(place.location, secrets, LEASE_TIMEOUT_SECONDS)

    leases = Leases(store, "/".join(filter(None, (place.path, location.id))))
    return BandwidthShare(leases, location.bandwidth or "off", clock)
