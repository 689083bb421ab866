"""A worker in a process of its own, which is killed: it is named, and its batches are free.

What else falls under it: one that is slow and lives keeps its batches, also past the end of a lease that it couldn't
renew in time; one that lives and hangs loses them; one that another has overtaken gets nothing back by a late sign;
one that ends in order leaves nothing; a batch that the tracker gave to a worker that never heard of it is free after
its lease. Clocks of hosts play no part: all times are the database's.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from sterna.errors import LeaseLost
from sterna.pipelines.ingest.counts import count_states, sum_counts
from sterna.pipelines.ingest.heartbeat import Heartbeat, WorkerStatus, list_workers
from tests.support.ingest import TrackedInbox

_ROOT = Path(__file__).parents[3]
_WORKER = """
import json, sys, threading
from pathlib import Path
from sterna.servers.postgres import Database
from sterna.pipelines.ingest import worker as working
from sterna.pipelines.ingest.work_queue import PostgresQueue
from tests.support.ingest import pool_of

class StuckPublisher:
    def __init__(self, step_context, batch, name, on_progress):
        self.batch = batch
    def prepare(self):
        threading.Event().wait()
    def close(self):
        pass

working.BatchPublisher = StuckPublisher
step_context = type("StepContext", (), {"queue": PostgresQueue(pool_of(Database(**json.loads(sys.argv[1]))))})()
working.Worker(step_context, print, print, lease=4.5, stall=float(sys.argv[2])).run()
"""


@pytest.fixture
def busy(eu: TrackedInbox, request: pytest.FixtureRequest) -> Iterator[subprocess.Popen[bytes]]:
    """A worker that has a batch, and never gets on with it; it gives signs for so long."""
    stall = getattr(request, "param", 1_000_000)
    eu.drop()
    eu.close(asked=True)
    fields = {name: getattr(eu.database, name) for name in ("host", "port", "name", "user", "password")}
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), *sys.path])}
    process = subprocess.Popen([sys.executable, "-c", _WORKER, json.dumps(fields), str(stall)], cwd=_ROOT, env=environ)
    try:
        until(lambda: sum_counts(count_states(eu.pool).values()).claimed == 1)
        yield process
    finally:
        process.kill()
        process.wait(30)


def until(holds: Callable[[], Any]) -> None:
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "it never held"
        time.sleep(0.05)


def only_worker(eu: TrackedInbox) -> WorkerStatus:
    (worker,) = list_workers(eu.pool)
    return worker


def advance_clock(eu: TrackedInbox, seconds: int) -> None:
    """Let time pass, as far as the tracker knows."""
    with eu.pool.connection() as connection, connection.transaction():
        back = f"interval '{seconds} s'"
        connection.execute(f"UPDATE sterna_ingest_worker SET begun = begun - {back}, seen = seen - {back}".encode())
        connection.execute(f"UPDATE sterna_ingest_batch SET leased_until = leased_until - {back}".encode())


def test_a_worker_that_is_killed_is_named_and_its_batch_is_free(
    eu: TrackedInbox, busy: subprocess.Popen[bytes]
) -> None:
    living = only_worker(eu)
    assert (living.host, living.pid, living.alive) == (socket.gethostname(), busy.pid, True)
    assert living.batches == ("acme.events eu.acme.default 1",)
    # It is slow, and lives: a lease that was over is its own again, unless another was first.
    advance_clock(eu, 60)
    assert not only_worker(eu).alive
    until(lambda: only_worker(eu).alive and sum_counts(count_states(eu.pool).values()).claimed == 1)
    assert eu.queue.claim("another", 60.0) is None
    busy.send_signal(signal.SIGKILL)
    busy.wait(30)
    advance_clock(eu, 46)
    counts = sum_counts(count_states(eu.pool).values())
    assert (counts.abandoned, counts.claimed, counts.waiting) == (1, 0, 1)
    dead = only_worker(eu)
    assert (dead.name, dead.pid, dead.alive, dead.batches) == (living.name, busy.pid, False, living.batches)
    taken = eu.queue.claim("another", 60.0)
    assert taken is not None and taken.number == 1
    # It is named for a day, though it has nothing any more.
    assert (only_worker(eu).pid, only_worker(eu).batches) == (busy.pid, ())
    eu.queue.deregister("another")
    assert only_worker(eu).pid == busy.pid
    advance_clock(eu, 2 * 86_400)
    assert list_workers(eu.pool) == []


@pytest.mark.parametrize("busy", [2], indirect=True)
def test_a_worker_that_hangs_is_named_and_its_batch_is_free(eu: TrackedInbox, busy: subprocess.Popen[bytes]) -> None:
    until(lambda: sum_counts(count_states(eu.pool).values()).abandoned == 1)
    assert busy.poll() is None, "it lives, and would go on to say so"
    advance_clock(eu, 46)
    standing = only_worker(eu)
    assert (standing.pid, standing.alive, len(standing.batches)) == (busy.pid, False, 1)
    taken = eu.queue.claim("another", 60.0)
    assert taken is not None and taken.number == 1


def test_a_worker_that_died_keeps_its_name_for_as_long_as_it_has_a_batch(eu: TrackedInbox) -> None:
    for _ in range(2):
        eu.drop()
        eu.close(asked=True)
    left = eu.queue.claim("dead", 60.0)
    assert left is not None
    for name in ("dead", "idle", "living"):
        eu.queue.send_heartbeat(Heartbeat(name, "h", 1, 60.0, (left.id,) if name == "dead" else ()))
    advance_clock(eu, 3 * 86_400)
    eu.queue.deregister("living")
    assert [(worker.name, worker.batches) for worker in list_workers(eu.pool)] == [
        ("dead", ("acme.events eu.acme.default 1",))
    ]
    assert sum_counts(count_states(eu.pool).values()).abandoned == 1
    taken = eu.queue.claim("another", 60.0)
    assert taken is not None and taken.id == left.id
    eu.queue.deregister("another")
    assert list_workers(eu.pool) == []
    with eu.pool.connection() as connection:
        assert connection.execute("SELECT count(*) FROM sterna_ingest_worker").fetchone() == (0,)


def test_a_late_sign_takes_nothing_back_and_keeps_nothing_that_a_worker_never_heard_of(eu: TrackedInbox) -> None:
    for _ in range(2):
        eu.drop()
        eu.close(asked=True)
    kept, lost = eu.queue.claim("slow", 60.0), eu.queue.claim("slow", 60.0)
    assert kept is not None and lost is not None
    advance_clock(eu, 61)
    eu.queue.send_heartbeat(Heartbeat("slow", "h", 1, 60.0, (kept.id,)))  # the answer to the second one never came
    reclaimed = eu.queue.claim("quick", 60.0)
    assert reclaimed is not None and reclaimed.id == lost.id
    eu.queue.renew(kept.id, "slow", 60.0)
    eu.queue.send_heartbeat(Heartbeat("slow", "h", 1, 600.0, (kept.id, lost.id)))
    after = eu.tracker.batch(lost.id)
    assert after is not None and (after.worker, after.leased_until) == ("quick", reclaimed.leased_until)
    with pytest.raises(LeaseLost):
        eu.queue.renew(lost.id, "slow", 60.0)
    eu.queue.deregister("slow")
    assert list_workers(eu.pool) == []
