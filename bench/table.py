"""The README's table of last results, made from bench/results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.common import RESULTS, latest

README = Path(__file__).with_name("README.md")
START, END = "<!-- results: written by `python3 run.py bench table` -->", "<!-- end of results -->"
_NOT_YET = "not yet measured"
_CASES = {
    "scale": ("1000000 entries", "1000000 entries, 1 and 2 cores"),
    "beside": ("1000000 entries",),
    "place": ("4 manifests of 100 entries", "16 manifests of 100 entries", "64 manifests of 100 entries"),
    "copy": ("10000 x 64 KiB", "16 x 262144 KiB"),
    "latency": ("command line", "through Airflow"),
    "growth": (
        "tables of 1000 / 100000 / 1000000 files",
        "catalogs of 10 / 1000 / 10000 tables",
        "histories of 10 / 1440 / 43200 snapshots",
    ),
    "churn": ("60 commits a minute, 20 tables", "30 commits a minute, 1 table"),
    "changes": ("one commit in 1000000 files", "one deleted row, 60 files"),
    "compact": ("10000 files of 64 KiB, alone", "10000 files of 64 KiB, beside writers"),
    "upkeep_day": ("planning a read, 1440 commits", "a sync, 1440 commits", "a commit, 1440 commits"),
    "clean": ("50000 files, 60 commits a minute, 20 tables",),
    "sweep": ("1000000 files, 1 % garbage",),
    "kept": ("60 commits on 1440 snapshots",),
    "seed": ("200 tables",),
    "distance": ("copy 100 x 1 MiB", "a commit of one small file", "a query"),
    "idle": ("20 tables",),
    "lanes": ("60 commits, 20 GB at 50 MB/s",),
    "bandwidth": ("1 copy, 32 MiB at 2 MiB/s", "4 copies, 32 MiB at 2 MiB/s"),
    "replication": (
        "5 commits a second",
        "20 commits a second",
        "as many as go",
        "planned switch: writers refused",
        "forced promotion",
    ),
    "notify": ("1000 clients", "1000 clients, against nchan", "main to 1000 clients, with follow", "10000 clients"),
    "resume": ("1000 clients, 1000 events",),
    "outlet": (),
    "flood": (
        "backlog at 56 files a second, 10 min",
        "files into one at 56 files a second, 10 min",
    ),
    "day": ("8.1 files/s, 0.5 of a day's bytes, 5 min",),
    "commits": (
        "60 a minute from one region, 1 min, p99",
        "30 a minute from each of two regions, 1 min, p99",
    ),
    "rest_catalog": (
        "load 100 kB, p99",
        "load 5 MB, p99",
        "append by PyIceberg, committed",
        "append by PyIceberg, readable in eu",
        "append by Spark, committed",
        "append by Spark, readable in eu",
        "30 a minute from two regions, 5 min, p99",
    ),
    "arrive": ("accepted, until on main, p50", "on main, until eu serves it, with follow, p50"),
    "kafka": ("1000000 rows", "files of 1000000 rows"),
    "workers": ("20 batches of 100 files, 4 tables, over an ocean",),
    "capacity": (),
    "kpi": ("a figure of 10000000 rows", "1000 askers"),
    "materialize": ("1000000 rows", "1000 changes in 1000000 rows"),
    "online": ("one entity, p99", "100 entities at once", "4000 requests over 8 connections"),
    "layers": ("2000 rows/s, a commit each 30 s: lag of the third, p99",),
    "fresh": ("with follow", "through Airflow"),
    "training": ("1000000 labels",),
    "cdc": (
        "2000 changes/s: lag, p99",
        "2000 changes/s: lag, p99, against upsert",
        "2000 changes/s: log kept",
        "2000 changes/s: reads",
    ),
    "verify": ("1000000 files",),
    "memory": ("1000000 files",),
}


def write_table(readme: Path = README, results: Path = RESULTS) -> None:
    """Put the last result of each case, and the plots that there are, into the README."""
    head, _, rest = readme.read_text().partition(START)
    _, _, tail = rest.partition(END)
    readme.write_text(f"{head}{START}\n\n{table(results)}\n{END}{tail}")


def table(results: Path) -> str:
    """Return the table, and after it each bench's plot and what both sides came to, as Markdown of short lines."""
    lines = ["| bench | case | result | goal |", "|---|---|---|---|"]
    parts = []
    for name, wanted in _CASES.items():
        measured = {line["case"]: line for line in latest(results / f"{name}.json")}
        lines += [_row(name, case, measured.get(case)) for case in dict.fromkeys((*wanted, *measured))]
        if measured:
            parts += [f"**{name}**", "", f"![{name}]({results.name}/{name}.svg)", ""]
            parts += [text for case in dict.fromkeys((*wanted, *measured)) for text in _sides(measured.get(case))]
            parts.append("")
    return "\n".join([*lines, "", *parts])


def _row(name: str, case: str, line: dict[str, Any] | None) -> str:
    if line is None:
        return f"| {name} | {case} | {_NOT_YET} | |"
    verdict = f"{line['figure']:g} {line['unit']}" + {True: ", met", False: ", **missed**", None: ""}[line["met"]]
    return f"| {name} | {case} | {verdict} | {line['goal'] or ''} |"


def _sides(line: dict[str, Any] | None) -> list[str]:
    """Return what each side of a case came to, in the median, and where and when that was."""
    if line is None:
        return []
    unit = "MiB" if line["unit"] == "MiB" else "s"
    where = f"{line['at']}, {line['cores']} cores, {line['rounds']} rounds, {line['versions']['sterna']}"
    sides = (f"  * {side}: {values['median']:g} {unit}" for side, values in line["sides"].items())
    return [f"* {line['case']}", f"  ({where})", *sides]
