"""Memory while a big table is seeded: of the command, of each stage as a task, of a Spark Python worker.

No real million files is copied. For the command, the data files are at home already (sparse files of the right size),
so that it plans, localizes and publishes. For the tasks nothing is at home: the plan lists all files and cuts them into
batches, one of these is really copied, and publish gets a report that the others were.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.common import Result, peak_memory, report
from bench.regions import Regions, regions, report_progress, settle
from bench.tables import BigTable, build_table, place_files
from sterna.catalog.model import Put
from sterna.replication.replica import run_folder

GOAL = 1024.0
_FILE_SIZE = 1024
_AGAIN = ("bench", "again")
_LOOK_SECONDS = 0.1


def bench(entries: list[int], per_manifest: int, work: Path | None) -> None:
    """Measure tables of these many files, each in a catalog of its own."""
    for count in entries:
        with regions(work, memory="1g") as world:
            measure(world, build_table(world, count, per_manifest=per_manifest, file_size=_FILE_SIZE))


def measure(world: Regions, table: BigTable) -> None:
    """Measure one table and report it."""
    peaks: dict[str, float] = {}
    with world.context() as context:
        home, root = context.mapping.replica_uri(table.location), context.region.replica_root
    place_files(world, table, home)
    assert _stage(world, peaks, stage="sync")["outcome"] == "published"
    world.remove(root)
    _commit_again(world, table)
    planned = _stage(world, peaks, stage="plan")
    assert planned["files"] == table.entries, planned
    copied = _copy(world, peaks, planned["run"])
    localized = _stage(world, peaks, stage="localize", run=planned["run"])
    assert localized["files"] == len(table.manifests()) + 2, localized
    assert _stage(world, peaks, stage="publish", run=planned["run"], files=table.entries)["outcome"] == "published"
    ours = max(peak for kind, peak in peaks.items() if kind != "Spark JVM")
    sides = {kind: (peak,) for kind, peak in sorted(peaks.items(), key=lambda item: -item[1])}
    details = {
        "manifests": len(table.manifests()),
        "batches": planned["batches"],
        "files in the copied batch": copied["files"],
    }
    report(Result("memory", f"{table.entries} files", GOAL, "at most", "MiB", sides, measured=ours, details=details))


def _copy(world: Regions, peaks: dict[str, float], run: str) -> dict[str, Any]:
    """Really copy the first batch."""
    with world.context() as context:
        listed = run_folder.load_plan(context, run).batches[0].list_name
        sources = run_folder.load_files(context, run, batch=0, list_name=listed).column("source").to_pylist()
    for uri in sources:
        path = world.path(uri)
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("wb") as file:
            os.ftruncate(file.fileno(), _FILE_SIZE)
    settle()
    copied = _stage(world, peaks, stage="copy", run=run)
    assert copied == {**copied, "files": len(sources), "missing": 0}, copied
    return copied


def _commit_again(world: Regions, table: BigTable) -> None:
    """Commit the table under another key: one that no replica has."""
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [table.key])[table.key]
    world.catalog.commit("main", head, [Put(_AGAIN, content.with_id(None))], "bench: the same table again")


def _stage(world: Regions, peaks: dict[str, float], **job: Any) -> dict[str, Any]:
    """Run a stage in a process of its own, and take down the most memory that it and its children took."""
    text = json.dumps({"registry": str(world.stage.registry), **job})
    command = [sys.executable, "-m", "bench.stage", text]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as child:
        with peak_memory(child.pid, _LOOK_SECONDS) as sampled_peaks:
            output, _ = child.communicate()
        assert child.returncode == 0, f"{job['stage']} failed with {child.returncode}"
    result: dict[str, Any] = json.loads(output)
    name = "sync, a process" if job["stage"] == "sync" else f"{job['stage']} task"
    peaks[name] = result.pop("peak")
    for kind, shown in (("worker", "Spark Python worker"), ("jvm", "Spark JVM")):
        if kind in sampled_peaks:
            peaks[shown] = max(peaks.get(shown, 0.0), sampled_peaks[kind])
    report_progress(
        f"{name}: {peaks[name]:.0f} MiB, children { ({kind: round(peak) for kind, peak in sampled_peaks.items()}) }"
    )
    return result
