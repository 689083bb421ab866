"""The catalog across regions: how long a commit takes to the other region, by how many there are.

How long a switch stops the writers.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from uuid import uuid4

import httpx

from bench.common import Result, percentile, report, rounded
from bench.regions import report_progress
from sterna.catalog.model import Unchanged
from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import Deadlines
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import CatalogUnreachable, SternaError
from sterna.replication.failover.promote import plan_promotion, promote
from sterna.replication.failover.rejoin import rejoin
from sterna.servers.sites import Sites, kill, sites

_WRITERS = 4  # each on a branch of its own, so that none waits for another's
_DRAIN_SECONDS = 60.0
_TABLE = "t"


def bench(rates: Sequence[float], seconds: float, rounds: int, work: Path | None) -> None:
    """Measure the apply delay at some rates, for so many seconds each round; then a planned and a forced promotion."""
    with tempfile.TemporaryDirectory(prefix="sterna-bench-") as temporary, sites(work or Path(temporary)) as world:
        for rate in rates:
            measure(world, rate, seconds, rounds)
        switches(world, rounds)


def measure(world: Sites, rate: float, seconds: float, rounds: int) -> None:
    """Commit in us at a rate, and report when eu's own Nessie shows it."""
    delays, count, looks = [], 0, 0
    for number in range(rounds + 1):  # the first one warms both servers up
        round_delays, looked = _round(world, rate, seconds)
        report_progress(
            f"round {number}: {len(round_delays)} commits, p50 {percentile(round_delays, 0.5):.4f} s, p99 "
            f"{percentile(round_delays, 0.99):.4f} s"
        )
        if number:
            delays.append(round_delays)
            count, looks = count + len(round_delays), looks + looked
    sides = {
        name: tuple(percentile(round_delays, share) for round_delays in delays)
        for name, share in (("p50", 0.5), ("p99", 0.99))
    }
    details = {
        "commits": count,
        "commits a second": rounded(count / (seconds * rounds)),
        "longest": rounded(max(map(max, delays))),
        "seconds between two looks": rounded(seconds * rounds / looks),
    }
    report(
        Result(
            "replication",
            f"{rate:g} commits a second" if rate else "as many as go",
            None,
            "at most",
            "s",
            sides,
            details=details,
        )
    )


def _round(world: Sites, rate: float, seconds: float) -> tuple[list[float], int]:
    """Return each commit's seconds from its acknowledgement until eu showed it, and how often eu was polled."""
    ended, shown = threading.Event(), dict[str, float]()
    with ThreadPoolExecutor(_WRITERS + 1) as pool:
        watch = pool.submit(_watch, world.by_region["eu"].uri, shown, ended)
        writers = [pool.submit(_write, world.by_region["us"].uri, phase, rate, seconds) for phase in range(_WRITERS)]
        try:
            lines = [writer.result() for writer in writers]
            deadline = time.monotonic() + _DRAIN_SECONDS
            while any(line and line[-1][0] not in shown for line in lines) and time.monotonic() < deadline:
                time.sleep(0.01)
        finally:
            ended.set()
        looks = watch.result()
    return [delay for line in lines for delay in _delays(line, shown)], looks


def _delays(line: list[tuple[str, float]], shown: dict[str, float]) -> list[float]:
    """A head that was not seen itself counts from when a later one was."""
    delays, at = [], float("inf")
    for hash, acknowledged in reversed(line):
        at = min(at, shown.get(hash, float("inf")))
        delays.append(max(0.0, at - acknowledged))  # eu may show it before us's answer is here
    return delays


def _watch(uri: str, shown: dict[str, float], ended: threading.Event) -> int:
    looks = 0
    with NessieCatalog(uri) as catalog:
        while not ended.is_set():
            try:
                references = catalog.references()
            except CatalogUnreachable:  # a copy can't list references in the moment in which one has arrived by half
                continue
            now = time.monotonic()
            for reference in references:
                shown.setdefault(reference.hash, now)
            looks += 1
    return looks


def _write(uri: str, phase: int, rate: float, seconds: float) -> list[tuple[str, float]]:
    """Commit new metadata of one table to a branch of its own; return each hash and when it was acknowledged."""
    line: list[tuple[str, float]] = []
    branch = f"bench_{uuid4().hex}"
    with NessieCatalog(uri) as catalog:
        head = catalog.create_branch(branch).hash
    id = None
    # Past our own client: that reads a commit back before it returns, and the other region would have it by then.
    with httpx.Client(base_url=f"{uri}/", timeout=30) as http:
        began = time.monotonic()
        for number in itertools.count():
            due = began + ((number * _WRITERS + phase) / rate if rate else 0.0)
            if max(due, time.monotonic()) - began >= seconds:
                break
            time.sleep(max(0.0, due - time.monotonic()))
            put = {"type": "PUT", "key": {"elements": [_TABLE]}, "content": _table(number, id)}
            body = {"commitMeta": {"message": "bench"}, "operations": [put]}
            answer = http.post(f"trees/{branch}@{head}/history/commit", json=body)
            acknowledged = time.monotonic()
            committed = answer.raise_for_status().json()
            head = committed["targetBranch"]["hash"]
            id = id or committed["addedContents"][0]["contentId"]
            line.append((head, acknowledged))
    return line


def _table(number: int, id: str | None) -> dict[str, object]:
    location = f"s3://us-lake/warehouse/bench/t/metadata/{number:05d}.metadata.json"
    fields = {"metadataLocation": location, "snapshotId": number, "schemaId": 0, "specId": 0, "sortOrderId": 0}
    return {"type": "ICEBERG_TABLE", **fields, **({"id": id} if id else {})}


def switches(world: Sites, rounds: int) -> None:
    """Measure how long a planned switch refuses writers, and how long a forced one takes from the command to the
    first commit.
    """
    planned, commands, forced = [], [], []
    for _ in range(rounds):
        planned += [_planned(world, "eu"), _planned(world, "us")]
        command, commit = _forced(world)
        commands.append(command)
        forced.append(commit)
    report(
        Result(
            "replication", "planned switch: writers refused", None, "at most", "s", {"longest pause": tuple(planned)}
        )
    )
    sides = {"until a commit is accepted": tuple(forced), "until the command ends": tuple(commands)}
    report(Result("replication", "forced promotion", None, "at most", "s", sides))


def _planned(world: Sites, region: str) -> float:
    """Return the longest time between two acknowledged commits while a region is promoted."""
    times, ended = list[float](), threading.Event()
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(_keep_committing, world, times, ended)
        time.sleep(1.0)
        _promote(world, region, planned=True)
        time.sleep(1.0)
        ended.set()
        writer.result()
    pause = max(later - earlier for earlier, later in itertools.pairwise(times))
    report_progress(
        f"planned switch to {region}: {pause:.3f} s without a commit, "
        f"{median(b - a for a, b in itertools.pairwise(times)):.3f} s is usual"
    )
    return pause


def _forced(world: Sites) -> tuple[float, float]:
    """Kill us's Postgres, promote eu, and make us the primary again.

    Return seconds of the command, and until a commit was accepted.
    """
    times, ended = list[float](), threading.Event()
    kill(world.by_region["us"].postgres.process)
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(_keep_committing, world, times, ended)
        began = time.monotonic()
        _promote(world, "eu", planned=False)
        command = time.monotonic() - began
        while not times:
            time.sleep(0.01)
        ended.set()
        writer.result()
    report_progress(f"forced promotion: {times[0] - began:.3f} s until a commit, {command:.3f} s in all")
    world.by_region["us"].start_postgres()
    rejoin(world.read_registry(), world.secrets, "us", report_progress)
    _promote(world, "us", planned=True)
    return command, times[0] - began


def _promote(world: Sites, region: str, *, planned: bool) -> None:
    registry = world.read_registry()
    promote(registry, world.secrets, plan_promotion(registry, world.secrets, region, planned=planned), report_progress)


def _keep_committing(world: Sites, times: list[float], ended: threading.Event) -> None:
    """Commit to `main` through whichever region accepts, as fast as possible; record the times."""
    short = Deadlines(connect=1.0, read=5.0, total=5.0, attempts=1)
    catalogs = [NessieCatalog(site.uri, deadlines=short) for site in world.by_region.values()]
    while not ended.is_set():
        try:
            head = catalogs[0].reference(SOURCE_BRANCH).hash
            catalogs[0].commit(SOURCE_BRANCH, head, [Unchanged((_TABLE,))], "bench", {})
            times.append(time.monotonic())
        except SternaError:
            catalogs.append(catalogs.pop(0))
    for catalog in catalogs:
        catalog.close()
