"""A day of ingestion, 700,000 files and 1.5 TB over 7 tables, at its rate for some minutes, against dlt."""

from __future__ import annotations

import asyncio
import io
import json
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import pyarrow.parquet as pq

from bench.common import Result, percentile, report, rounded
from bench.flood import some_file
from bench.intake import Door, check_rows, gateways, make_table, waited, working
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE

RATE, BYTES = 8.1, 17.4e6  # files and bytes a second: 700,000 files and 1.5 TB a day
GOAL = 60.0
_DLT = "1.31.0"
_TABLES = 7
_AGE = 20  # seconds: each batch costs a commit of its table, whatever its size
_ROW = 16
_MAX_WAIT_SECONDS = 600.0


def bench(minutes: float, share: float, work: Path | None, env: Path) -> None:
    """Send files at the rate, each with so large a share of a day's bytes; then let dlt load as many."""
    python = environment(env)
    rows, files = round(BYTES / RATE * share / _ROW), max(_TABLES, round(minutes * 60 * RATE))
    rules = {f"{NAMESPACE}.day_*": {"files": 500, "age": f"{_AGE}s"}}
    with pair(work, postgres=True) as world, gateways(world, rules=rules) as doors:
        with working(world, doors["eu"]):
            ours, written, acknowledged = _ours(world, doors["eu"], files, rows)
        theirs = _theirs(world.stage.work / "dlt", python, files, rows)
    details = {
        "of": "the oldest file of each batch: durable until on main; of dlt a file: due until in a local folder",
        "files sent": files,
        "files on main": written,
        "megabytes a second": rounded(RATE * rows * _ROW / 1e6),
        "sterna, p50": rounded(median(ours)),
        "sterna, acknowledged, p99": rounded(percentile(acknowledged, 0.99)),
        "dlt loaded": f"{theirs['loaded']} of {files} files",
        "dlt, p50": rounded(median(theirs["late"])),
    }
    sides = {"sterna, at most": (max(ours),), "dlt, at most": (max(theirs["late"]),)}
    case = f"{RATE:g} files/s, {share:g} of a day's bytes, {minutes:g} min"
    report(Result("day", case, GOAL, "at most", "s", sides, max(ours), details))


def environment(folder: Path) -> Path:
    """Make a Python environment with dlt in it, once; return its Python."""
    python = folder / "bin" / "python"
    if not (folder / "bin" / "dlt").exists():
        report_progress(f"installing dlt {_DLT} into an environment of its own")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([python, "-m", "pip", "install", "-q", f"dlt[filesystem,parquet]=={_DLT}"], check=True)
    return python


def _ours(world: Pair, door: Door, files: int, rows: int) -> tuple[list[float], int, list[float]]:
    """Send the files; return for how long each batch waited, how many files are on `main`, and the acknowledgements."""
    file_counts = {place % _TABLES: 0 for place in range(_TABLES)}
    schema = pq.read_schema(io.BytesIO(some_file(0, 1)))
    for table in file_counts:
        make_table(world, _name(table), schema)

    async def send() -> list[float]:
        began, sending = time.monotonic(), []
        for place in range(files):
            await asyncio.sleep(max(began + place / RATE - time.monotonic(), 0.0))
            table, number = place % _TABLES, place // _TABLES
            content = await asyncio.to_thread(some_file, number, rows)
            sending.append(asyncio.create_task(door.send(_name(table), [(f"{table}-{number}", content)])))
            file_counts[table] += 1
        return [seconds for latencies, _ in await asyncio.gather(*sending) for seconds in latencies]

    began = time.monotonic()
    acknowledged = asyncio.run(send())
    report_progress(f"{files} files in {time.monotonic() - began:.0f} s")
    batches = [
        batch
        for table, count in file_counts.items()
        for batch in door.published(_name(table), count, _MAX_WAIT_SECONDS)
    ]
    written = sum(check_rows(world, _name(table), count * rows) for table, count in file_counts.items())
    return waited(batches), written, acknowledged


def _theirs(folder: Path, python: Path, files: int, rows: int) -> dict[str, Any]:
    """Let dlt load as many files of the same sizes; return how late each was, and how many it loaded."""
    come = folder / "come"
    come.mkdir(parents=True)
    order = [f"day_{place % _TABLES}-{place // _TABLES}.parquet" for place in range(files)]
    for place, name in enumerate(order):
        (come / name).write_bytes(some_file(place // _TABLES, rows))
    job = {"folder": str(come), "order": order, "rate": RATE, "into": str(folder / "into"), "every": _AGE}
    job["up"] = files / RATE * 2
    output = subprocess.run(
        # -P: files beside that one have names of the standard library's modules.
        [python, "-P", Path(__file__).with_name("dlt_child.py")],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={"PATH": "/usr/bin:/bin", "HOME": str(folder), "RUNTIME__DLTHUB_TELEMETRY": "false"},
    ).stdout
    summary: dict[str, Any] = json.loads(output.splitlines()[-1])
    return summary


def _name(table: int) -> str:
    return f"{NAMESPACE}.day_{table}"
