"""Writers in both regions, both regions' syncs, and somebody who kills them all the time.

python3 run.py test tests/faults/test_soak.py --soak-minutes 120     longer than the seconds of each run
"""

from __future__ import annotations

import os
import random
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest
from pyiceberg.exceptions import CommitFailedException

from tests.support.faults.pair import Pair

_ROOT = Path(__file__).parents[2]
_REGIONS = ("us", "eu")
_MOST_TABLES = 12
_PAUSE_SECONDS = (20.0, 40.0)  # between two kills
_SHORT_PAUSE_SECONDS = (6.0, 9.0)  # where it is over within a minute
outputs: list[str] = []


def test_whoever_is_killed_all_the_time_ends_equal(pair: Pair, pytestconfig: pytest.Config) -> None:
    seed = secrets.randbits(32)
    print(f"seed {seed}")
    minutes = pytestconfig.getoption("soak_minutes")
    pauses = _PAUSE_SECONDS if minutes >= 1 else _SHORT_PAUSE_SECONDS
    rng = random.Random(seed)
    with writing(pair, seed) as written:
        end = time.monotonic() + 60 * minutes
        kills = 0
        syncs = {region: start(pair, region) for region in _REGIONS}
        while time.monotonic() < end:
            time.sleep(min(rng.uniform(*pauses), max(0.0, end - time.monotonic())))
            for region in rng.sample(_REGIONS, rng.choice((1, 1, 2))):
                kill(syncs[region])
                syncs[region] = start(pair, region)
                kills += 1
        for process in syncs.values():
            kill(process)
    assert written and kills
    for region in _REGIONS:
        assert pair.sync(region=region).held == ()
        pair.assert_equal(region)
    pair.assert_no_secret(*outputs)
    print(f"{len(written)} commits, {kills} kills")


def start(pair: Pair, region: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.support.faults.syncing", str(pair.stage.registry), region]
    return subprocess.Popen(command, cwd=_ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True)


def kill(process: subprocess.Popen[str]) -> None:
    """Kill a region's syncs with all that they started; they must not have ended by themselves."""
    ended = process.poll()
    if ended is None:
        os.killpg(process.pid, signal.SIGKILL)
    _, errors = process.communicate()
    outputs.append(errors)
    assert ended is None, errors


@contextmanager
def writing(pair: Pair, seed: int) -> Iterator[list[str]]:
    """Let a writer in each region commit; yield what they did."""
    done: list[str] = []
    over = threading.Event()
    with ThreadPoolExecutor(len(_REGIONS)) as pool:
        writers = [
            pool.submit(_write, pair, region, random.Random(seed + number), done, over)
            for number, region in enumerate(_REGIONS)
        ]
        try:
            yield done
        finally:
            over.set()
        for writer in writers:
            writer.result()


def _write(pair: Pair, region: str, rng: random.Random, done: list[str], over: threading.Event) -> None:
    tables = [pair.create(region)]
    while not over.wait(rng.uniform(0.2, 1.5)):
        kind = rng.choices(("append", "delete", "create", "drop"), (8, 2, 1, 1))[0]
        table = rng.choice(tables)
        try:
            if kind == "create" and len(tables) < _MOST_TABLES:
                tables.append(pair.create(region))
            elif kind == "drop" and len(tables) > 1:
                tables.remove(table)
                pair.writers[region].drop_table(table)
            elif kind == "delete":
                pair.writers[region].load_table(table).delete(f"id < {rng.randrange(1_000)}")
            else:
                pair.append(table)
        except CommitFailedException:
            continue  # the other region's writer was first
        done.append(f"{kind} {table}")
