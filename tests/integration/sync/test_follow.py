"""`sterna follow` as a process of its own, over real servers: told, ended by a signal, and nothing is torn."""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from sterna.replication.replica.head import read_head
from tests.support.command import STERNA
from tests.support.world import MERGE_ON_READ, World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("w") as name:
        yield name


@contextmanager
def following(world: World, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A follower of eu; what it tells goes to a file. The environment has this deployment's credentials."""
    command = [*STERNA, "follow", "--region", "eu", "--registry"]
    with log.open("ab") as out:
        process = subprocess.Popen([*command, str(world.stage.registry)], stdout=out, stderr=subprocess.STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def until(what: Callable[[], object], log: Path, seconds: float = 90) -> float:
    begun = time.monotonic()
    while not what():
        assert time.monotonic() - begun < seconds, log.read_text()
        time.sleep(0.02)
    return time.monotonic() - begun


def catches_sigterm(pid: int) -> bool:
    """Tell whether a process has its handler by now; before that the signal ends it as any other."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    caught = next(line.partition(":")[2] for line in lines if line.startswith("SigCgt"))
    return bool(int(caught, 16) >> (signal.SIGTERM - 1) & 1)


def is_at_main(world: World) -> bool:
    names = {reference.name for reference in world.catalog.references()}
    if "main_replica_eu" not in names:
        return False
    return read_head(world.catalog, "main_replica_eu").watermark == world.catalog.reference("main").hash


def test_each_commit_is_published_at_once_and_a_signal_leaves_nothing_torn(
    world: World, ns: str, tmp_path: Path
) -> None:
    log, table = tmp_path / "told", f"{ns}.orders"
    world.sql(f"CREATE TABLE main_us.{table} (id BIGINT, name STRING) USING iceberg {MERGE_ON_READ}")
    seconds = []
    with following(world, log) as process:
        until(lambda: is_at_main(world), log)
        for number in range(3):
            world.sql(f"INSERT INTO main_us.{table} SELECT id, 'n' FROM range({number * 10}, {number * 10 + 10})")
            seconds.append(until(lambda: is_at_main(world), log))
        world.sql(f"DELETE FROM main_us.{table} WHERE id = 5")
        until(lambda: is_at_main(world), log)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, log.read_text()
    lines = log.read_text().splitlines()
    # The first one may be full of what other tests left, and the last one is committed before it is told.
    assert len([line for line in lines if line.startswith("published main@")]) >= 4, lines
    assert lines[-1] == "ended; the next sync continues from here"
    assert not any("Spark" in line for line in lines)
    print(f"seconds from a commit to the replica: {[round(delay, 2) for delay in seconds]}")
    world.assert_equal(table)


@pytest.mark.rare
def test_a_signal_in_the_middle_of_a_sync_leaves_nothing_torn(world: World, ns: str, tmp_path: Path) -> None:
    log, table = tmp_path / "told", f"{ns}.cut"
    world.sql(f"CREATE TABLE main_us.{table} (id BIGINT, name STRING) USING iceberg {MERGE_ON_READ}")
    world.sync()
    for number, delay in enumerate((0.05, 0.25, 0.5, 0.8)):
        with following(world, log) as process:
            until(lambda: catches_sigterm(process.pid), log)
            world.sql(f"INSERT INTO main_us.{table} SELECT id, 'n' FROM range({number * 100}, {number * 100 + 100})")
            time.sleep(delay)
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0, log.read_text()
    world.sync()
    ids = [
        commit.properties.get("sterna.run-id") for commit in world.catalog.history("main_replica_eu", operations=False)
    ]
    assert len(ids) == len(set(ids))
    world.assert_equal(table)
