"""Shares of a location's bandwidth: what all processes take together stays within the limit, whoever is late.

Of this kind is all that one process would count for itself alone: each of several takes the whole. What may go wrong
here: two begin at once, one is slow to go lower, one dies, a lease can't be understood, the place of the leases can't
be used, or has no credential.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from sterna.config.registry.model import Location
from sterna.config.secrets import environment_secrets
from sterna.errors import StoreUnreachable
from sterna.replication.verify.content import sha256_of
from sterna.storage.bandwidth import (
    FALLBACK_DIVISOR,
    LEASE,
    LEASE_EXPIRY_SECONDS,
    REFRESH_SECONDS,
    VALID_SECONDS,
    BandwidthShare,
    Leases,
)
from sterna.storage.client import OpenStore
from sterna.storage.objects import Objects
from sterna.storage.ranges import ObjectReader
from sterna.storage.rclone.child import follow_parent
from sterna.storage.rclone.transfer import throttle_message
from sterna.storage.throttle import ReadThrottle
from tests.unit.config import samples

LIMIT = 1024 * 1024


@dataclass
class Book:
    """Leases in memory; between any two steps of one share others take theirs."""

    rates: dict[int, int] = field(default_factory=dict)
    between: Callable[[], None] = lambda: None

    def of(self, number: int) -> _Lease:
        return _Lease(self, number)


@dataclass
class _Lease:
    book: Book
    number: int

    def write(self, rate: int) -> None:
        self.book.between()
        self.book.rates[self.number] = rate
        self.book.between()

    def other_rates(self) -> list[int | None]:
        self.book.between()
        rates: list[int | None] = [rate for number, rate in self.book.rates.items() if number != self.number]
        self.book.between()
        return rates

    def release(self) -> None:
        self.book.rates.pop(self.number, None)


@dataclass
class Process:
    """What takes a share; a slow one goes lower only the second time that it is asked to."""

    share: BandwidthShare
    slow: bool
    takes: int = 0
    requested_rate: int = 0

    def apply(self, rate: int | None, fallback_rate: int, seconds: float) -> bool:
        assert rate is not None
        if rate < self.takes and self.slow and rate != self.requested_rate:
            self.requested_rate = rate
            return False
        self.takes = self.requested_rate = rate
        return True


class Crowd:
    """Processes that begin, look and end in any order.

    Args:
        chance: decides.
    """

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.book = Book(between=self.between)
        self.processes: dict[int, Process] = {}
        self.looking: set[int] = set()

    def begin(self, number: int) -> None:
        process = Process(BandwidthShare(self.book.of(number), "1M"), slow=self.chance.random() < 0.3)
        process.share.apply = process.apply
        self.processes[number] = process

    def end(self) -> None:
        number = self.chance.choice(list(self.processes))
        del self.processes[number]
        self.book.of(number).release()

    def look(self) -> None:
        number = self.chance.choice(list(self.processes))
        if number not in self.looking:
            self.looking.add(number)
            self.processes[number].share.refresh()
            self.looking.discard(number)
        assert sum(process.takes for process in self.processes.values()) <= LIMIT

    def between(self) -> None:
        if self.processes and self.chance.random() < 0.4:
            self.look()


@pytest.mark.parametrize("seed", range(30))
def test_all_together_never_exceed_the_limit_and_come_to_equal_shares(seed: int) -> None:
    crowd = Crowd(random.Random(seed))
    for number in range(60):
        if crowd.chance.random() < 0.4 and len(crowd.processes) < 8:
            crowd.begin(number)
        elif len(crowd.processes) > 1 and crowd.chance.random() < 0.2:
            crowd.end()
        if crowd.processes:
            crowd.look()
    for _ in range(100):
        crowd.look()
    assert {process.takes for process in crowd.processes.values()} == {LIMIT // len(crowd.processes)}


def test_one_alone_has_all_of_it_at_once() -> None:
    share = BandwidthShare(Book().of(1), "1M")
    share.begin()
    assert share.rate == LIMIT


def test_a_newcomer_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book({1: LIMIT})
    share = BandwidthShare(book.of(2), "1M")
    assert share.refresh() == 0
    assert book.rates[2] == LIMIT // 2, "what it is about to take"
    book.rates[1] = LIMIT // 2
    assert share.refresh() == LIMIT // 2


def test_after_a_minute_without_room_a_newcomer_begins_cautiously(monkeypatch: pytest.MonkeyPatch) -> None:
    share = BandwidthShare(Book({1: LIMIT}).of(2), "1M")
    share.begin(timeout=0.0)
    assert share.rate == LIMIT // FALLBACK_DIVISOR


def test_a_place_that_cant_be_used_leaves_the_cautious_share(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    share = BandwidthShare(book.of(1), "1M", pause_seconds=0.0)
    share.begin()

    def dark() -> None:
        raise StoreUnreachable("dark")

    book.between = dark
    share.refresh_when_due()
    now = time.monotonic()
    assert share.rate_at(now) == LIMIT
    assert share.rate_at(now + VALID_SECONDS) == LIMIT // FALLBACK_DIVISOR
    late = BandwidthShare(book.of(2), "1M", pause_seconds=0.0)
    late.begin()
    assert late.rate == LIMIT // FALLBACK_DIVISOR


def test_who_comes_back_after_long_asks_for_room_anew() -> None:
    book = Book()
    share = BandwidthShare(book.of(1), "1M")
    share.begin()
    share.valid_until = time.monotonic()
    book.rates = {2: LIMIT}
    assert share.refresh() == LIMIT // FALLBACK_DIVISOR


def clock(*hours: int) -> Callable[[], datetime]:
    """Return a clock that shows these hours of UTC, one after the other."""
    times = iter(datetime(2026, 11, 29, tzinfo=UTC) + timedelta(hours=hour) for hour in hours)
    return lambda: next(times)


def test_a_timetable_is_followed() -> None:
    share = BandwidthShare(Book().of(1), "08:00,512k 12:00,off 19:00,1M UTC", clock(7, 8, 13, 19, 24 + 9))
    rates = [share.refresh() for _ in range(5)]
    assert rates == [1 << 20, 512 << 10, None, 1 << 20, 512 << 10]


def test_what_was_unlimited_is_limited_by_time_though_leases_fail() -> None:
    """The limit begins by the timetable while nobody can see the others: the cautious rate, and not none."""
    book = Book()
    share = BandwidthShare(book.of(1), "12:00,off 19:00,1M UTC", clock(13, 19, 19))
    assert share.refresh() is None
    assert share.rate_at(time.monotonic() + VALID_SECONDS) == LIMIT // FALLBACK_DIVISOR

    def dark() -> None:
        raise StoreUnreachable("dark")

    book.between = dark
    applied: list[int | None] = []

    def apply(rate: int | None, fallback_rate: int, seconds: float) -> bool:
        applied.append(rate)
        return True

    share.apply = apply
    with pytest.raises(StoreUnreachable):
        share.refresh()
    assert (share.rate, applied) == (LIMIT // FALLBACK_DIVISOR, [LIMIT // FALLBACK_DIVISOR])


def test_without_a_limit_for_now_nothing_is_taken_that_no_lease_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whose clock has a limit already could not know of it."""

    def dark() -> None:
        raise StoreUnreachable("dark")

    share = BandwidthShare(Book(between=dark).of(1), "12:00,off 19:00,1M UTC", clock(*4 * [13]), pause_seconds=0.0)
    with pytest.raises(StoreUnreachable):
        share.refresh()
    assert share.rate == 0
    share.begin()
    assert share.rate == LIMIT // FALLBACK_DIVISOR


@pytest.mark.parametrize("seconds", [float("-inf"), -3.0, 0.0])
def test_an_order_that_has_run_out_is_one_of_no_seconds(seconds: float) -> None:
    assert throttle_message(1, 1, seconds) == {"rate": 1, "cautious": 1, "seconds": 0.0}


@pytest.mark.parametrize("seconds", [float("-inf"), -3.0])
def test_a_watch_outlives_an_order_that_has_run_out(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the parent has to be seen, whatever it last said."""

    class Over(Exception):
        pass

    def end() -> None:
        raise Over

    reader, writer = os.pipe()
    with pytest.raises(Over):
        follow_parent(reader, {"rate": 2, "cautious": 1, "seconds": seconds}, lambda rate: os.close(writer), end)
    os.close(reader)


def leases(folder: Path) -> Leases:
    location = Location.model_validate(samples.location("eu", f"file://{folder}", "eu"))
    store = OpenStore(location, environment_secrets(), 5.0)
    return Leases(lambda: store, "leases/us")


def test_leases_of_two_hosts_are_seen_and_one_that_isnt_understood_counts_as_all(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    first.write(7)
    second.write(0)
    assert (first.other_rates(), second.other_rates()) == ([0], [7])
    second.write(9)
    assert first.other_rates() == [9], "what changed is read anew"
    (tmp_path / "leases/us" / second.name).write_text("{")
    assert first.other_rates() == [None]
    share = BandwidthShare(first, "1M")
    assert share.refresh() == 0
    second.release()
    assert share.refresh() == LIMIT


def test_a_lease_runs_out_by_the_stores_clock(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    second.write(7)
    first.write(7)
    path = tmp_path / "leases/us" / second.name
    for age, expected in ((LEASE_EXPIRY_SECONDS - 5, [7]), (LEASE_EXPIRY_SECONDS + 5, [])):
        at = (tmp_path / "leases/us" / first.name).stat().st_mtime - age
        os.utime(path, (at, at))
        assert first.other_rates() == expected
    assert 2 * REFRESH_SECONDS < VALID_SECONDS < LEASE_EXPIRY_SECONDS / 1.5, (
        "who is late goes lower before others take it"
    )


def test_each_way_of_reading_another_region_is_paced_and_holds_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[int] = []
    real = ReadThrottle.acquire
    monkeypatch.setattr(ReadThrottle, "acquire", lambda pace, size: (paid.append(size), real(pace, size)))
    objects = Objects(_two_regions(tmp_path), environment_secrets())
    size = 3 << 20
    (tmp_path / "us/f").write_bytes(b"x" * size)
    (tmp_path / "eu/f").write_bytes(b"x" * size)
    uri = f"file://{tmp_path}/us/f"
    reads: list[Callable[[], object]] = [
        lambda: objects.read(uri),
        lambda: objects.with_read_cache(f"file://{tmp_path}/eu/replica/_sterna/runs/r").without_read_cache().read(uri),
        lambda: sha256_of(objects, uri),
        lambda: ObjectReader(objects, uri, size).readinto(bytearray(size - 1)),
    ]
    for read in reads:
        paid.clear()
        read()
        assert sum(paid) in (size, size - 1)
    assert [LEASE.loads(path.read_bytes()).rate for path in _leases(tmp_path)] == [100 << 20]
    paid.clear()
    objects.read(f"file://{tmp_path}/eu/f")
    assert not paid, "its own region's"


def test_a_pace_is_the_shares_rate() -> None:
    """What isn't paid for is waited for, by the pace's own clock."""

    class Held(BandwidthShare):
        def begin(self, deadline: float | None = None) -> None:
            self.rate, self.valid_until = 1000, float("inf")

        def look_when_due(self) -> None:
            pass

    share, slept = Held(Book({1: 0}).of(2), "2k"), [0.0]
    pace = ReadThrottle(lambda: share, lambda: sum(slept), slept.append)
    pace.acquire(5000)
    assert sum(slept) == pytest.approx(5.0, abs=1.0)
    share.valid_until = float("-inf")
    pace.acquire(5000)
    assert sum(slept) > 100.0, "the cautious rate"


def test_a_replica_without_a_credential_is_no_trouble_of_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mapping = _two_regions(tmp_path, "s3://eu-replica", credential_id="eu_replica")
    (tmp_path / "us/f").write_bytes(b"x")
    assert Objects(mapping, environment_secrets()).read(f"file://{tmp_path}/us/f") == b"x"
    (message,) = caplog.messages
    assert message.startswith("leases on bandwidth can't be used") and "eu_replica" in message


def test_who_comes_while_a_share_begins_waits_for_it_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[BandwidthShare] = []

    class Beginning(BandwidthShare):
        def begin(self, deadline: float | None = None) -> None:
            begun.append(self)
            end = time.monotonic() + 20
            while pace.pending_bytes < 3:
                assert time.monotonic() < end, "the other one can't say what it wants"
                time.sleep(0.01)
            if len(begun) == 1:
                raise StoreUnreachable("and whoever waits begins another one")
            super().begin()

    pace = ReadThrottle(lambda: Beginning(Book().of(1), "1M"))
    with ThreadPoolExecutor(2) as pool:
        paying = [pool.submit(pace.acquire, size) for size in (1, 2)]
        failed = [payment.exception(60) for payment in paying]
    assert sorted(map(str, failed)) == ["None", "and whoever waits begins another one"]
    assert len(begun) == 2 and pace.pending_bytes == 0


def _two_regions(folder: Path, root: str = "", **more: str) -> samples.Mapping:
    for name in ("us", "eu"):
        (folder / name).mkdir()
    roots = {"us": f"file://{folder}/us/replica", "eu": root or f"file://{folder}/eu/replica"}
    document = samples.content(regions=[samples.region(name, roots[name]) for name in ("us", "eu")])
    document["locations"] = [
        samples.location("us", f"file://{folder}/us", "us", bandwidth="100M"),
        samples.location("eu", f"file://{folder}/eu", "eu"),
        *([samples.location("eu-root", root, "eu", **more)] if root else []),
    ]
    registry = samples.Registry.model_validate(document)
    return samples.Mapping(registry, registry.region("eu"))


def _leases(folder: Path) -> list[Path]:
    return list((folder / "eu/replica/_sterna/bandwidth/us").iterdir())
