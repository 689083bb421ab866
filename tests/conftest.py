"""Options of the test suites."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import settings

# Whole regions are killed and cut off there, for some 20 minutes: a run of its own, `--regions`.
_REGIONS = ("failover", "test_copies.py", "test_cutoff.py", "test_promotion_dag.py", "test_site_airflow.py")

# A slow machine proves nothing: the first example of a test also pays for its imports.
settings.register_profile("sterna", deadline=None)
settings.load_profile("sterna")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("histories", "random table histories")
    group.addoption("--histories", type=int, default=8, help="how many random histories to play (8)")
    group.addoption("--history-minutes", type=float, help="start no further history after so many minutes")
    group.addoption("--history-seed", type=int, help="play the history of this seed, and no other")
    fuzzing = parser.getgroup("fuzz", "damaged metadata")
    fuzzing.addoption(
        "--fuzz-seconds", type=float, default=60, help="how long to damage files, all kinds together (60)"
    )
    fuzzing.addoption("--fuzz-seed", type=int, help="the one file of this seed")
    simulation = parser.getgroup("simulation", "seeded simulation of the stages, and the soak")
    simulation.addoption("--simulation-seeds", type=int, default=1000, help="how many seeds to play (1000)")
    simulation.addoption("--soak-minutes", type=float, default=5, help="how long to kill syncs while writers go on (5)")
    simulation.addoption("--simulation-seed", type=int, help="play this seed, and no other")
    group = parser.getgroup("regions", "catalogs of several regions")
    group.addoption("--regions", action="store_true", help="also kill regions and links between them (tests/ha)")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    left_out = collection_path.parent.name == "ha" and collection_path.name in _REGIONS
    return True if left_out and not config.getoption("regions") else None
