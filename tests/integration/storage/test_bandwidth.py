"""`bandwidth` of a location is one budget of all that a region copies from there: rclone itself says its rate.

Two copies that know nothing of one another stand for two hosts: what they share is the region's store alone. No rates
are measured here (`python -m bench bandwidth` does): they are asked for.
"""

from __future__ import annotations

import http.client
import json
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest

from sterna.config.registry.model import Location, Remote
from sterna.errors import EngineError
from sterna.storage import bandwidth
from sterna.storage.bandwidth import LEASE, utc_now
from sterna.storage.rclone.transfer import Folder, copy_files

pytestmark = pytest.mark.xdist_group("bandwidth")
LIMIT = 4 << 20
SIZE = 1 << 30  # minutes: no copy ends by itself


class Ended(Exception):
    """A test is over: its copies end."""


class World:
    """A location with a limit, a region, and copies between them.

    Args:
        folder: where everything lies.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("us", "eu", "tmp"):
            (folder / name).mkdir()
        for name in ("a", "b"):
            with open(folder / "us" / name, "wb") as file:
                file.truncate(SIZE)
        (folder / "us" / "small").write_bytes(b"1")
        self.ended: set[str] = set()

    def side(self, id: str, **more: str) -> Folder:
        prefix = f"file://{self.folder}/{id}"
        return Folder(Location(id=id, prefix=prefix, region=id, remote=Remote(type="local"), **more), None)

    @contextmanager
    def copy(self, name: str, limit: str = "4M", clock: Callable[[], datetime] = utc_now) -> Iterator[None]:
        """Copy a file while the block runs."""

        def progress(*_: int) -> None:
            if name in self.ended:
                raise Ended

        def run() -> None:
            with suppress(Ended, EngineError):
                copy_files(
                    self.side("us", bandwidth=limit),
                    self.side("eu"),
                    [name],
                    progress=progress,
                    timeout=90.0,
                    clock=clock,
                )

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield
        finally:
            self.ended.add(name)
            thread.join()

    def leases(self) -> list[int]:
        return sorted(LEASE.loads(path.read_bytes()).rate for path in (self.folder / "eu/us").glob("*.json"))

    def rates(self) -> list[int]:
        """Ask every rclone that runs for its rate."""
        rates = []
        for path in (self.folder / "tmp").glob("sterna-copy-*/rc.sock"):
            with suppress(OSError):
                rates.append(_read_bandwidth_limit(path))
        return sorted(rates)


def _read_bandwidth_limit(path: Path) -> int:
    connection = http.client.HTTPConnection("localhost", timeout=30)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(os.path.relpath(path))
    connection.request("POST", "/core/bwlimit", "{}", {"Content-Type": "application/json"})
    rate = json.loads(connection.getresponse().read())["bytesPerSecond"]
    connection.close()
    return int(rate)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    folder = Path(tempfile.mkdtemp(prefix="bw"))  # short: a socket's path has 100 letters at most
    bandwidth_world = World(folder)
    monkeypatch.setattr(tempfile, "tempdir", str(folder / "tmp"))
    yield bandwidth_world
    shutil.rmtree(folder)


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + 60.0
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_two_copies_share_the_limit_and_the_last_one_has_all_of_it_again(world: World) -> None:
    with world.copy("a"):
        wait_for(lambda: world.rates() == [LIMIT])
        assert world.leases() == [LIMIT]
        with world.copy("b"):

            def shared() -> bool:
                assert sum(world.rates()) <= LIMIT
                return world.rates() == [LIMIT // 2, LIMIT // 2]

            wait_for(shared)
            wait_for(lambda: world.leases() == [LIMIT // 2, LIMIT // 2])
        wait_for(lambda: world.rates() == [LIMIT])
        assert world.leases() == [LIMIT]
    assert world.leases() == []


def test_copies_under_way_follow_a_timetable_with_what_they_share(world: World) -> None:
    hour = [17]

    def clock() -> datetime:
        return datetime(2026, 11, 30, hour[0], tzinfo=UTC)

    limit = "08:00,4M 20:00,2M 22:00,8M Europe/Berlin"  # an hour ahead of UTC
    with world.copy("a", limit, clock), world.copy("b", limit, clock):
        wait_for(lambda: world.rates() == [LIMIT // 2, LIMIT // 2])
        hour[0] = 19
        wait_for(lambda: world.rates() == [LIMIT // 4, LIMIT // 4])
        wait_for(lambda: world.leases() == [LIMIT // 4, LIMIT // 4])
        hour[0] = 21
        wait_for(lambda: world.rates() == [LIMIT, LIMIT])


def test_a_copy_whose_leases_cant_be_written_goes_on_cautiously(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bandwidth, "VALID_SECONDS", 4.0)
    with world.copy("a"):
        wait_for(lambda: world.rates() == [LIMIT])
        shutil.rmtree(world.folder / "eu/us")
        (world.folder / "eu/us").write_text("no folder can be here")
        wait_for(lambda: world.rates() == [LIMIT // 64])
        (world.folder / "eu/us").unlink()
        wait_for(lambda: world.rates() == [LIMIT])


def test_a_copy_that_begins_without_leases_takes_its_share_once_they_can_be_written(world: World) -> None:
    (world.folder / "eu/us").write_text("no folder can be here")
    with world.copy("a"):
        wait_for(lambda: world.rates() == [LIMIT // 64])
        (world.folder / "eu/us").unlink()
        wait_for(lambda: world.rates() == [LIMIT])


def test_without_a_limit_nothing_is_shared(world: World) -> None:
    for limit in ({}, {"bandwidth": "off"}):
        assert not copy_files(world.side("us", **limit), world.side("eu"), ["small"], progress=lambda *_: None).errors
        assert not (world.folder / "eu/us").exists()
