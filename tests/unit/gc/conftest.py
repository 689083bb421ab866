from pathlib import Path

import pytest

from sterna.cleaning import deleting, passes
from sterna.edges.disk import numbers, rows
from sterna.sync import stages
from tests.support.small_world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "_PATIENCE", 0.0)


@pytest.fixture(autouse=True)
def on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep next to nothing in memory, in some modules: what a clean-up finds and does is the same."""
    if request.path.stem in ("test_collect", "test_decide", "test_files"):
        monkeypatch.setattr(numbers, "_IN_MEMORY", 2)
        monkeypatch.setattr(rows, "_IN_MEMORY", 200)
        monkeypatch.setattr(rows, "_STRETCH", 2)
    if request.path.stem == "test_files":
        monkeypatch.setattr(rows, "_BATCH", 1)
        monkeypatch.setattr(passes, "_AT_ONCE", 3)
        monkeypatch.setattr(deleting, "AT_ONCE", 2)
