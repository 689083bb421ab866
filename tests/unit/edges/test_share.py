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
from pathlib import Path

import pytest

from sterna.edges.rclone.rclone_child import watch
from sterna.edges.rclone.transfer import order
from sterna.edges.secrets import environment_secrets
from sterna.edges.stores.leases import EXPIRY_SECONDS, LEASE, Leases
from sterna.edges.stores.objects import Objects
from sterna.edges.stores.open_store import OpenStore
from sterna.edges.stores.pace import Pace
from sterna.edges.stores.ranges import ObjectReader
from sterna.edges.stores.share import BEAT_SECONDS, CAUTIOUS, PATIENCE_SECONDS, Share
from sterna.errors import StoreUnreachable
from sterna.registry.model import Location
from sterna.verify.hashing import sha256_of
from tests.unit.registry import samples

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

    def others(self) -> list[int | None]:
        self.book.between()
        found: list[int | None] = [rate for number, rate in self.book.rates.items() if number != self.number]
        self.book.between()
        return found

    def drop(self) -> None:
        self.book.rates.pop(self.number, None)


@dataclass
class Process:
    """What takes a share; a slow one goes lower only the second time that it is asked to."""

    share: Share
    slow: bool
    takes: int = 0
    asked: int = 0

    def apply(self, rate: int | None, cautious: int, seconds: float) -> bool:
        assert rate is not None
        if rate < self.takes and self.slow and rate != self.asked:
            self.asked = rate
            return False
        self.takes = self.asked = rate
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
        made = Process(Share(self.book.of(number), "1M"), slow=self.chance.random() < 0.3)
        made.share.apply = made.apply
        self.processes[number] = made

    def end(self) -> None:
        number = self.chance.choice(list(self.processes))
        del self.processes[number]
        self.book.of(number).drop()

    def look(self) -> None:
        number = self.chance.choice(list(self.processes))
        if number not in self.looking:
            self.looking.add(number)
            self.processes[number].share.look()
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
    share = Share(Book().of(1), "1M")
    share.begin()
    assert share.rate == LIMIT


def test_a_newcomer_waits_for_room(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book({1: LIMIT})
    share = Share(book.of(2), "1M")
    assert share.look() == 0
    assert book.rates[2] == LIMIT // 2, "what it is about to take"
    book.rates[1] = LIMIT // 2
    assert share.look() == LIMIT // 2


def test_after_a_minute_without_room_a_newcomer_begins_cautiously(monkeypatch: pytest.MonkeyPatch) -> None:
    share = Share(Book({1: LIMIT}).of(2), "1M")
    share.begin(deadline=0.0)
    assert share.rate == LIMIT // CAUTIOUS


def test_a_place_that_cant_be_used_leaves_the_cautious_share(monkeypatch: pytest.MonkeyPatch) -> None:
    book = Book()
    share = Share(book.of(1), "1M", pause_seconds=0.0)
    share.begin()

    def dark() -> None:
        raise StoreUnreachable("dark")

    book.between = dark
    share.look_when_due()
    now = time.monotonic()
    assert share.rate_at(now) == LIMIT
    assert share.rate_at(now + PATIENCE_SECONDS) == LIMIT // CAUTIOUS
    late = Share(book.of(2), "1M", pause_seconds=0.0)
    late.begin()
    assert late.rate == LIMIT // CAUTIOUS


def test_who_comes_back_after_long_asks_for_room_anew() -> None:
    book = Book()
    share = Share(book.of(1), "1M")
    share.begin()
    share.valid_until = time.monotonic()
    book.rates = {2: LIMIT}
    assert share.look() == LIMIT // CAUTIOUS


def test_a_timetable_is_followed() -> None:
    minutes = iter((7 * 60, 8 * 60, 13 * 60, 19 * 60, 1440 + 9 * 60))
    share = Share(Book().of(1), "08:00,512k 12:00,off 19:00,1M", lambda: next(minutes))
    rates = [share.look() for _ in range(5)]
    assert rates == [1 << 20, 512 << 10, None, 1 << 20, 512 << 10]


def test_what_was_unlimited_is_limited_by_time_though_leases_fail() -> None:
    """The limit begins by the timetable while nobody can see the others: the cautious rate, and not none."""
    book, minutes = Book(), iter((13 * 60, 19 * 60, 19 * 60))
    share = Share(book.of(1), "12:00,off 19:00,1M", lambda: next(minutes))
    assert share.look() is None
    assert share.rate_at(time.monotonic() + PATIENCE_SECONDS) == LIMIT // CAUTIOUS

    def dark() -> None:
        raise StoreUnreachable("dark")

    book.between = dark
    asked: list[int | None] = []

    def apply(rate: int | None, cautious: int, seconds: float) -> bool:
        asked.append(rate)
        return True

    share.apply = apply
    with pytest.raises(StoreUnreachable):
        share.look()
    assert (share.rate, asked) == (LIMIT // CAUTIOUS, [LIMIT // CAUTIOUS])


def test_without_a_limit_for_now_nothing_is_taken_that_no_lease_tells_of(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody whose clock has a limit already could not know of it."""

    def dark() -> None:
        raise StoreUnreachable("dark")

    share = Share(Book(between=dark).of(1), "12:00,off 19:00,1M", lambda: 13 * 60, pause_seconds=0.0)
    with pytest.raises(StoreUnreachable):
        share.look()
    assert share.rate == 0
    share.begin()
    assert share.rate == LIMIT // CAUTIOUS


@pytest.mark.parametrize("seconds", [float("-inf"), -3.0, 0.0])
def test_an_order_that_has_run_out_is_one_of_no_seconds(seconds: float) -> None:
    assert order(1, 1, seconds) == {"rate": 1, "cautious": 1, "seconds": 0.0}


@pytest.mark.parametrize("seconds", [float("-inf"), -3.0])
def test_a_watch_outlives_an_order_that_has_run_out(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of the parent has to be seen, whatever it last said."""

    class Over(Exception):
        pass

    def end() -> None:
        raise Over

    reader, writer = os.pipe()
    with pytest.raises(Over):
        watch(reader, {"rate": 2, "cautious": 1, "seconds": seconds}, lambda rate: os.close(writer), end)
    os.close(reader)


def leases(folder: Path) -> Leases:
    location = Location.model_validate(samples.location("eu", f"file://{folder}", "eu"))
    store = OpenStore(location, environment_secrets(), 5.0)
    return Leases(lambda: store, "leases/us")


def test_leases_of_two_hosts_are_seen_and_one_that_isnt_understood_counts_as_all(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    first.write(7)
    second.write(0)
    assert (first.others(), second.others()) == ([0], [7])
    second.write(9)
    assert first.others() == [9], "what changed is read anew"
    (tmp_path / "leases/us" / second.name).write_text("{")
    assert first.others() == [None]
    share = Share(first, "1M")
    assert share.look() == 0
    second.drop()
    assert share.look() == LIMIT


def test_a_lease_runs_out_by_the_stores_clock(tmp_path: Path) -> None:
    first, second = leases(tmp_path), leases(tmp_path)
    second.write(7)
    first.write(7)
    path = tmp_path / "leases/us" / second.name
    for age, found in ((EXPIRY_SECONDS - 5, [7]), (EXPIRY_SECONDS + 5, [])):
        at = (tmp_path / "leases/us" / first.name).stat().st_mtime - age
        os.utime(path, (at, at))
        assert first.others() == found
    assert 2 * BEAT_SECONDS < PATIENCE_SECONDS < EXPIRY_SECONDS / 1.5, "who is late goes lower before others take it"


def test_each_way_of_reading_another_region_is_paced_and_holds_a_lease(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    paid: list[int] = []
    real = Pace.pay
    monkeypatch.setattr(Pace, "pay", lambda pace, size: (paid.append(size), real(pace, size)))
    objects = Objects(_two_regions(tmp_path), environment_secrets())
    size = 3 << 20
    (tmp_path / "us/f").write_bytes(b"x" * size)
    (tmp_path / "eu/f").write_bytes(b"x" * size)
    uri = f"file://{tmp_path}/us/f"
    reads: list[Callable[[], object]] = [
        lambda: objects.read(uri),
        lambda: objects.fetching(f"file://{tmp_path}/eu/replica/_sterna/runs/r").passing().read(uri),
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

    class Held(Share):
        def begin(self, deadline: float | None = None) -> None:
            self.rate, self.valid_until = 1000, float("inf")

        def look_when_due(self) -> None:
            pass

    share, slept = Held(Book({1: 0}).of(2), "2k"), [0.0]
    pace = Pace(lambda: share, lambda: sum(slept), slept.append)
    pace.pay(5000)
    assert sum(slept) == pytest.approx(5.0, abs=1.0)
    share.valid_until = float("-inf")
    pace.pay(5000)
    assert sum(slept) > 100.0, "the cautious rate"


def test_a_replica_without_a_credential_is_no_trouble_of_what_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    mapping = _two_regions(tmp_path, "s3://eu-replica", credential_id="eu_replica")
    (tmp_path / "us/f").write_bytes(b"x")
    assert Objects(mapping, environment_secrets()).read(f"file://{tmp_path}/us/f") == b"x"
    (said,) = caplog.messages
    assert said.startswith("leases on bandwidth can't be used") and "eu_replica" in said


def test_who_comes_while_a_share_begins_waits_for_it_and_holds_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Share] = []

    class Beginning(Share):
        def begin(self, deadline: float | None = None) -> None:
            made.append(self)
            end = time.monotonic() + 20
            while pace.unpaid < 3:
                assert time.monotonic() < end, "the other one can't say what it wants"
                time.sleep(0.01)
            if len(made) == 1:
                raise StoreUnreachable("and whoever waits begins another one")
            super().begin()

    pace = Pace(lambda: Beginning(Book().of(1), "1M"))
    with ThreadPoolExecutor(2) as pool:
        paying = [pool.submit(pace.pay, size) for size in (1, 2)]
        failed = [each.exception(60) for each in paying]
    assert sorted(map(str, failed)) == ["None", "and whoever waits begins another one"]
    assert len(made) == 2 and pace.unpaid == 0


def _two_regions(folder: Path, root: str = "", **more: str) -> samples.Mapping:
    for name in ("us", "eu"):
        (folder / name).mkdir()
    roots = {"us": f"file://{folder}/us/replica", "eu": root or f"file://{folder}/eu/replica"}
    made = samples.content(regions=[samples.region(name, roots[name]) for name in ("us", "eu")])
    made["locations"] = [
        samples.location("us", f"file://{folder}/us", "us", bandwidth="100M"),
        samples.location("eu", f"file://{folder}/eu", "eu"),
        *([samples.location("eu-root", root, "eu", **more)] if root else []),
    ]
    registry = samples.Registry.model_validate(made)
    return samples.Mapping(registry, registry.region("eu"))


def _leases(folder: Path) -> list[Path]:
    return list((folder / "eu/replica/_sterna/bandwidth/us").iterdir())
