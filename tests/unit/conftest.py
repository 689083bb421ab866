"""What the tests of single rooms have in common."""

from __future__ import annotations

from functools import cache

import pytest
import typer.main

from sterna.sync import copy
from tests.support.doubles.rclone import copy_here

# Typer builds all commands anew for each call of `main`; they are the same, and hold nothing of a call.
typer.main.get_command = cache(typer.main.get_command)


@pytest.fixture(autouse=True)
def no_rclone(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """With `--quick` files are copied in this process: every other run takes the real rclone."""
    if request.config.getoption("quick"):
        monkeypatch.setattr(copy, "copy_files", copy_here)
