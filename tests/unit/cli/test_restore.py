"""`sterna restore` on the command line: a signal ends it, and nothing of it is left."""

from __future__ import annotations

import os
import shutil
import signal
from typing import Any

import pytest

from sterna.maintenance.restore import run as restore_run
from tests.support.small_world import World, run
from tests.unit.cli.conftest import Sterna


def _tags(world: World) -> list[str]:
    return [reference.name for reference in world.catalog.references() if reference.kind == "TAG"]


def test_sigterm_leaves_no_pin(world: World, sterna: Sterna, monkeypatch: pytest.MonkeyPatch) -> None:
    as_of = world.commit(t=world.write("t"))
    run(world)
    world.commit(t=None)
    shutil.rmtree(world.folder / "us" / "lake" / "t")
    pins, before = list[str](), signal.getsignal(signal.SIGTERM)

    def terminate(*_: Any) -> str:
        pins.extend(_tags(world))
        os.kill(os.getpid(), signal.SIGTERM)
        return ""

    monkeypatch.setattr(restore_run, "replica_fault", terminate)
    answer = sterna("restore", "ns.t", "--region", "eu", "--as-of", as_of, "--yes")
    assert (answer.code, len(pins), _tags(world)) == (130, 1, [])
    assert signal.getsignal(signal.SIGTERM) is before
