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
from bench.events import event_file
from bench.intake import Door, check_rows, gateways, make_table, waited, working
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE, open_writer, properties
from sterna.servers.s3 import CLIENT_ENVIRONMENT

RATE, BYTES = 8.1, 17.4e6  # files and bytes a second: 700,000 files and 1.5 TB a day
GOAL = 60.0
_DLT = "1.31.0"
_TABLES = 7
_AGE = 20  # seconds: each batch costs a commit of its table, whatever its size
_SAMPLE_ROWS = 5_000
_RIVAL = f"{NAMESPACE}_dlt"
_MAX_WAIT_SECONDS = 600.0


def bench(minutes: float, share: float, work: Path | None, env: Path) -> None:
    """Send files at the rate, each with so large a share of a day's bytes; then let dlt load as many."""
    python = environment(env)
    row = len(event_file(0, _SAMPLE_ROWS)) / _SAMPLE_ROWS
    rows, files = round(BYTES / RATE * share / row), max(_TABLES, round(minutes * 60 * RATE))
    rules = {f"{NAMESPACE}.day_*": {"files": 500, "age": f"{_AGE}s"}}
    with pair(work, postgres=True) as world, gateways(world, rules=rules) as doors:
        with working(world, doors["eu"]):
            ours, written, acknowledged = _ours(world, doors["eu"], files, rows)
        theirs = _theirs(world, python, files, rows)
    details = {
        "of": "the oldest file of each batch: durable until on main; of dlt a file: due until committed",
        "files sent": files,
        "files on main": written,
        "bytes a row": rounded(row),
        "rows a second": round(RATE * rows),
        "megabytes a second": rounded(RATE * rows * row / 1e6),
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
        subprocess.run([python, "-m", "pip", "install", "-q", f"dlt[filesystem,pyiceberg,s3]=={_DLT}"], check=True)
    return python


def _ours(world: Pair, door: Door, files: int, rows: int) -> tuple[list[float], int, list[float]]:
    """Send the files; return for how long each batch waited, how many files are on `main`, and the acknowledgements."""
    file_counts = {place % _TABLES: 0 for place in range(_TABLES)}
    schema = pq.read_schema(io.BytesIO(event_file(0, 1)))
    for table in file_counts:
        make_table(world, _name(table), schema)

    async def send() -> list[float]:
        began, sending = time.monotonic(), []
        for place in range(files):
            await asyncio.sleep(max(began + place / RATE - time.monotonic(), 0.0))
            table, number = place % _TABLES, place // _TABLES
            content = await asyncio.to_thread(event_file, number, rows)
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


def _theirs(world: Pair, python: Path, files: int, rows: int) -> dict[str, Any]:
    """Let dlt load the same files into `main`'s catalog, in us; return how late each was, and how many it loaded."""
    come, store = world.stage.work / "come", world.stage.endpoints["us"]
    come.mkdir(parents=True)
    order = [f"day_{place % _TABLES}-{place // _TABLES}.parquet" for place in range(files)]
    for place, name in enumerate(order):
        (come / name).write_bytes(event_file(place // _TABLES, rows))
    job = {
        "folder": str(come),
        "order": order,
        "rate": RATE,
        "into": f"{world.stage.warehouse('us')}/dlt",
        "every": _AGE,
        "up": files / RATE * 2,
        "dataset": _RIVAL,
        "store": {
            "aws_access_key_id": store.access_key,
            "aws_secret_access_key": store.secret_key,
            "endpoint_url": store.url,
            "region_name": store.region,
        },
        "catalog": {
            "type": "rest",
            "uri": f"{world.stage.nessie.iceberg_uri}/main",
            "warehouse": "us",
            **properties(store),
        },
    }
    output = subprocess.run(
        # -P: files beside that one have names of the standard library's modules.
        [python, "-P", Path(__file__).with_name("dlt_child.py")],
        input=json.dumps(job),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(world.stage.work),
            "RUNTIME__DLTHUB_TELEMETRY": "false",
            **CLIENT_ENVIRONMENT,
        },
    ).stdout
    summary: dict[str, Any] = json.loads(output.splitlines()[-1])
    for table in range(_TABLES):
        snapshot = open_writer(world).load_table(f"{_RIVAL}.day_{table}").current_snapshot()
        assert snapshot is not None and snapshot.summary is not None
        summary["rows"] = summary.get("rows", 0) + int(snapshot.summary["total-records"] or 0)
    assert summary["rows"] >= summary["loaded"] * rows, summary["rows"]  # the first seven come twice: it warms up
    return summary


def _name(table: int) -> str:
    return f"{NAMESPACE}.day_{table}"
