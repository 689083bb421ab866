"""What the tests of single rooms have in common."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
import typer.main

from sterna.replication.execution import copy
from tests.support.doubles.rclone import copy_here

# Typer builds all commands anew for each call of `main`; they are the same, and hold nothing of a call.
typer.main.get_command = cache(typer.main.get_command)


# The tests whose matter is what a copy does: outside of `--quick` they start rclone. Others need files that arrive.
_WITH_RCLONE = (
    "repair/",
    "sync/test_damaged.py",
    "sync/test_unreachable_stores.py",
    "sync/test_faults.py",
    "sync/test_large_tables.py",
    "sync/test_sizes.py",
    "sync/test_many_batches.py",
    "sync/test_sync.py",
)


@pytest.fixture(autouse=True)
def no_rclone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Copy files in this process, but for the tests above; `tests/unit/storage/test_rclone.py` compares the two."""
    path = request.path.relative_to(Path(__file__).parent).as_posix()
    starts = path.startswith(_WITH_RCLONE) or request.config.getoption("long")
    if request.config.getoption("quick") or not starts:
        monkeypatch.setattr(copy, "copy_files", copy_here)
