"""Small files into one table: to its gateway and on `main` by a worker, against a PyIceberg append a file."""

from __future__ import annotations

import asyncio
import io
import time
from itertools import count
from pathlib import Path
from statistics import median

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench.common import Result, alternate, percentile, report, rounded
from bench.intake import Door, check_rows, gateways, make_table, waited, working
from bench.regions import Pair, pair, report_progress
from bench.writer import NAMESPACE, open_writer

RATE = 56.0  # files a second: 200,000 an hour, the source's figure
BACKLOG, INTO_ONE = 60.0, 50.0
_TABLE, _RIVAL = f"{NAMESPACE}.flood", f"{NAMESPACE}.flood_rival"
_BYTES = 16 << 10
_BURST = 400  # files of one round in which as many come as are taken
_APPENDS = 10
_ROWS = _BYTES // 16  # an id and a random number
_RULES = {"files": 500, "age": "5s"}
_MAX_WAIT_SECONDS = 600.0
_RIVAL_SECONDS = 120.0  # it is later and later from its first file on


def bench(minutes: float, rate: float, rounds: int, work: Path | None) -> None:
    """Send files for so many minutes, then append them; then send as many as are taken, in turn with the rival."""
    with pair(work, postgres=True) as world, gateways(world, rules={_TABLE: _RULES}) as doors:
        door = doors["eu"]
        with working(world, door):
            ours = measure_steady(world, door, minutes, rate)
        measure_rival(world, minutes, rate, ours)
        measure_most(world, door, rounds)


def measure_steady(world: Pair, door: Door, minutes: float, rate: float) -> list[float]:
    """Measure and report files that come at a rate: when each is acknowledged, and how many are one file on `main`.

    Returns:
        How long each batch's oldest file waited until it was on `main`, in seconds.
    """
    files = some_files(max(1, round(minutes * 60 * rate)), 0)
    make_table(world, _TABLE, _rows(files[0][1]).schema)
    began = time.monotonic()
    seconds, ids = asyncio.run(door.send(_TABLE, files, rate))
    took = time.monotonic() - began
    batches = door.published(_TABLE, len(ids), _MAX_WAIT_SECONDS)
    drops = [drop.id for batch in batches for drop in door.ingest.queue.list_uploads(batch.id)]
    assert sorted(drops) == sorted(ids), "a file is in no batch, or in two"
    written = check_rows(world, _TABLE, len(ids) * _ROWS)
    summary = {"files a second": rounded(len(ids) / took), "acknowledged, p50": rounded(percentile(seconds, 0.5))}
    report_progress(f"{len(ids)} files in {took:.0f} s, on main after {max(waited(batches)):.1f} s at most: {summary}")
    case = f"{rate:g} files a second, {minutes:g} min"
    sides = {"acknowledged, p99": (percentile(seconds, 0.99),)}
    report(Result("flood", f"acknowledged at {case}", None, "at most", "s", sides, details=summary))
    details = {"files sent": len(ids), "batches": len(batches), "files on main": written, "lost": 0, "twice": 0}
    into_one = len(ids) / written
    sides = {"files sent by files on main": (into_one,)}
    report(Result("flood", f"files into one at {case}", INTO_ONE, "at least", "times", sides, into_one, details))
    return waited(batches)


def measure_rival(world: Pair, minutes: float, rate: float, ours: list[float]) -> None:
    """Append files that come at the same rate one by one, for two minutes at most; report how late both are at most."""
    files = some_files(max(1, round(minutes * 60 * rate)), 0)
    table = open_writer(world).create_table(_RIVAL, _rows(files[0][1]).schema)
    late, began = list[float](), time.monotonic()
    for place, (_, content) in enumerate(files):
        if time.monotonic() > began + min(minutes * 60, _RIVAL_SECONDS):
            break
        due = began + place / rate
        time.sleep(max(due - time.monotonic(), 0.0))
        table.append(_rows(content))
        late.append(time.monotonic() - due)
    details = {
        "of": "the oldest file of each batch: durable until on main; a file of the rival: due until on main",
        "sterna, p50": rounded(median(ours)),
        "rival appended": f"{len(late)} of {len(files)} files",
    }
    sides = {"sterna, at most": (max(ours),), "PyIceberg's append, at most": (max(late),)}
    case = f"backlog at {rate:g} files a second, {minutes:g} min"
    report(Result("flood", case, BACKLOG, "at most", "s", sides, max(ours), details))


def measure_most(world: Pair, door: Door, rounds: int) -> None:
    """Measure and report how many files are taken a second, against how many are appended."""
    numbers, table = count(1), open_writer(world).load_table(_RIVAL)

    def ours() -> float:
        files = some_files(_BURST, next(numbers) * 1_000_000)
        began = time.monotonic()
        asyncio.run(door.send(_TABLE, files))
        return (time.monotonic() - began) / _BURST

    def theirs() -> float:
        files = [_rows(content) for _, content in some_files(_APPENDS, 0)]
        began = time.monotonic()
        for rows in files:
            table.append(rows)
        return (time.monotonic() - began) / _APPENDS

    timings = alternate({"acknowledged": ours, "PyIceberg's append": theirs}, rounds, report_progress)
    details = {
        "files a second": rounded(1 / sorted(timings["acknowledged"])[rounds // 2]),
        "not part of it": "publishing",
    }
    report(Result("flood", "a file acknowledged", None, "at least", "times", timings, details=details))


def some_files(files: int, first: int) -> list[tuple[str, bytes]]:
    """Return Parquet files of about 16 KiB, each with its key."""
    return [(str(first + number), some_file(first + number)) for number in range(files)]


def some_file(number: int, rows: int = _ROWS) -> bytes:
    """Return a Parquet file of so many rows of 16 bytes, whose ids follow those of the file before."""
    values = np.random.default_rng(number).random(rows)
    sink = io.BytesIO()
    pq.write_table(pa.table({"id": np.arange(rows) + number * rows, "value": values}), sink, compression="none")
    return sink.getvalue()


def _rows(content: bytes) -> pa.Table:
    return pq.read_table(io.BytesIO(content))
