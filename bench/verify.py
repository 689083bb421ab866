"""Verifying the structure of one big table: every path reached is local, exists and has its size."""

from __future__ import annotations

import time
from pathlib import Path

from bench.common import Result, alternate, peak_memory, report
from bench.regions import Regions, regions, say
from bench.tables import BigTable, build_table, place_files
from sterna.sync.options import SyncOptions
from sterna.sync.run import sync
from sterna.verify.structure import verify_structure

_FILE_SIZE = 1024  # bytes: the endpoint reads a file to list it
GOAL = 60.0  # seconds for a million files; in proportion for fewer


def bench(entries: list[int], rounds: int, per_manifest: int, work: Path | None) -> None:
    """Measure tables of these many files, one after the other in a catalog of their own."""
    for count in entries:
        with regions(work, memory="1g") as world:
            table = seeded(world, count, per_manifest)
            measure(world, table, rounds)


def seeded(world: Regions, entries: int, per_manifest: int) -> BigTable:
    """Make a table whose data files are at home already, sparse ones of the right size, and replicate it."""
    table = build_table(world, entries, per_manifest=per_manifest, file_size=_FILE_SIZE)
    with world.context() as context:
        place_files(world, table, context.mapping.replica(table.location))
        say(f"{entries} files are in place")
        report = sync(context, SyncOptions(), say)
        assert not report.held, report.held
    return table


def measure(world: Regions, table: BigTable, rounds: int) -> None:
    """Measure and report."""

    # By default this server computes an MD5 of each file that it lists; object stores have theirs at hand.
    world.stage.endpoints["eu"].start("--etag-hash", "")

    def run() -> float:
        started = time.monotonic()
        with world.context() as context:
            found = verify_structure(context)
        seconds = time.monotonic() - started
        assert not found.findings, found.findings[:3]
        assert found.files == table.entries + len(table.manifests()) + 2, found
        return seconds

    with peak_memory() as peaks:
        found = alternate({"verify structure": run}, rounds, say)
    goal = GOAL * table.entries / 1_000_000
    details = {"manifests": len(table.manifests()), "peak MiB": {kind: round(peak) for kind, peak in peaks.items()}}
    report(Result("verify", f"{table.entries} files", goal, "at most", "s", found, details=details))
