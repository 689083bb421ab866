"""Options of the test suites, and which of them are left out unless they are asked for."""

from __future__ import annotations

import pytest

# `python3 run.py test -m long` runs these alone, `-m ''` everything.
LONG = {
    "test_catalog_content",
    "test_histories",
    "test_residency",
    "test_tables_broken",
    "test_tables_deletes",
    "test_tables_evolution",
    "test_tables_formats",
    "test_tables_history",
    "test_tables_locations",
    "test_tables_odd_keys",
    "test_tables_statistics",
    "test_tables_writers",
    "test_verify",
}


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the long ones."""
    if item.path.stem in LONG:
        item.add_marker("long")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("histories", "random table histories")
    group.addoption("--histories", type=int, default=15, help="how many random histories to play (15)")
    group.addoption("--history-minutes", type=float, help="start no further history after so many minutes")
    group.addoption("--history-seed", type=int, help="play the history of this seed, and no other")
