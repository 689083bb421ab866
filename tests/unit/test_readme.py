"""README is read in a minute, and each of its numbers is a bench's result of the day that stands beside it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = " ".join((ROOT / "README.md").read_text().split())
LONGEST_README = 200  # lines
_SECONDS = re.compile(r"\b(\d+(?:\.\d+)?) s\b")

QUOTED = {
    "Queries stay in the region.": {
        "0.26": ("distance", "a query", "on main_replica_eu"),
        "3.2": ("distance", "a query", "on main"),
    },
    "Replicas are fresh.": {
        "3.0": ("latency", "through Airflow", "through Airflow"),
        "0.7": ("arrive", "on main, until eu serves it, with follow, p50", "sterna"),
    },
    "Large tables are no slower.": {
        "0.41": ("growth", "tables of 1000 / 100000 / 1000000 files", "1000 files"),
        "0.42": ("growth", "tables of 1000 / 100000 / 1000000 files", "1000000 files"),
    },
    "Engines need nothing of sterna.": {
        "0.6": ("rest_catalog", "append by Spark, committed", "address of eu"),
        "2.0": ("rest_catalog", "append by Spark, committed", "on main, natively"),
    },
    "A region may be lost.": {
        "0.08": ("replication", "planned switch: writers refused", "longest pause"),
        "0.12": ("replication", "forced promotion", "until a commit is accepted"),
    },
    "of Iceberg rewrites one table's paths.": {
        "120": ("scale", "1000000 entries", "rewrite_table_path"),
        "40": ("scale", "1000000 entries", "sterna"),
    },
}
"""The numbers of each entry, in seconds: bench, case and side of the result."""


def medians(bench: str, case: str, side: str, dates: list[str]) -> list[float]:
    """Return a side's medians in the results of some days."""
    lines = (ROOT / "bench" / "results" / f"{bench}.json").read_text().splitlines()
    rows = [row for line in lines if (row := json.loads(line))["case"] == case and row["at"][:10] in dates]
    return [row["sides"][side]["median"] for row in rows]


def test_readme_is_read_in_a_minute() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= LONGEST_README


@pytest.mark.parametrize("title", QUOTED)
def test_numbers_are_those_of_the_benches(title: str) -> None:
    entry = README.partition(title)[2].partition(" * ")[0].partition(" These are ")[0]
    numbers = QUOTED[title]
    assert sorted(_SECONDS.findall(entry)) == sorted(numbers)
    dates = re.findall(r"\b20\d\d-\d\d-\d\d\b", entry)
    for shown, (bench, case, side) in numbers.items():
        digits = len(shown.partition(".")[2])
        assert shown in [f"{median:.{digits}f}" for median in medians(bench, case, side, dates)], shown
