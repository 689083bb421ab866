"""Verifying the structure of one big table: every path reached is local, exists and has its size.

Each round is a process of its own: its memory is that of verify alone, and not of the seed before it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

from bench.common import Result, alternate, report
from bench.regions import Regions, regions, report_progress
from bench.tables import BigTable, build_table, place_files
from sterna.replication.plan.options import SyncOptions
from sterna.replication.sync.run import sync

_FILE_SIZE = 1024  # bytes: the endpoint reads a file to list it
GOAL = 60.0  # seconds for a million files; in proportion for fewer
MOST = 1024.0  # MiB, however many files there are
GROWTH = 1.15  # seconds a file in the largest table by those in the smallest


def bench(entries: list[int], rounds: int, per_manifest: int, work: Path | None) -> None:
    """Measure tables of these many files, one after the other in a catalog of their own; and what grows with them."""
    a_file: dict[int, float] = {}
    for count in sorted(entries):
        with regions(work, memory="1g") as world:
            table = seeded(world, count, per_manifest)
            a_file[count] = measure(world, table, rounds) / count
    if len(a_file) > 1:
        smallest, largest = min(a_file), max(a_file)
        sides = {f"{count} files, each million": (seconds * 1e6,) for count, seconds in a_file.items()}
        grown = a_file[largest] / a_file[smallest]
        case = f"{smallest} and {largest} files"
        report(Result("verify", case, GROWTH, "at most", "times", sides, measured=grown))


def seeded(world: Regions, entries: int, per_manifest: int) -> BigTable:
    """Create a table whose data files are local already, sparse ones of the right size, and replicate it."""
    table = build_table(world, entries, per_manifest=per_manifest, file_size=_FILE_SIZE)
    with world.context() as context:
        place_files(world, table, context.mapping.replica_uri(table.location), linked=True)
        report_progress(f"{entries} files are in place")
        report = sync(context, SyncOptions(), report_progress)
        assert not report.held, report.held
    return table


def measure(world: Regions, table: BigTable, rounds: int) -> float:
    """Measure and report; return the seconds of a round."""
    peaks: list[float] = []

    # By default this server computes an MD5 of each file that it lists; object stores have theirs at hand.
    world.stage.endpoints["eu"].start("--etag-hash", "")

    def run() -> float:
        verified = _verified(world)
        assert not verified["faults"], verified
        assert verified["files"] == table.entries + len(table.manifests()) + 2, verified
        peaks.append(verified["peak"])
        return float(verified["seconds"])

    timings = alternate({"verify structure": run}, rounds, report_progress)
    goal = GOAL * table.entries / 1_000_000
    details = {"manifests": len(table.manifests())}
    report(Result("verify", f"{table.entries} files", goal, "at most", "s", timings, details=details))
    memory = {"verify structure": tuple(peaks)}
    case = f"{table.entries} files, memory"
    report(Result("verify", case, MOST, "at most", "MiB", memory, measured=max(peaks), details=details))
    return median(timings["verify structure"])


def _verified(world: Regions) -> dict[str, Any]:
    job = json.dumps({"registry": str(world.stage.registry), "stage": "verify"})
    command = [sys.executable, "-m", "bench.stage", job]
    child = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1], check=True)
    outcome: dict[str, Any] = json.loads(child.stdout)
    return outcome
