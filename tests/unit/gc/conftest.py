from pathlib import Path

import pytest

from sterna.cleaning import deleting, passes
from sterna.edges.disk.numbers import Numbers
from sterna.edges.disk.rows import RowLimits, Rows
from sterna.sync import stages
from tests.support.small_world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "PATIENCE_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep next to nothing in memory, in some modules: what a clean-up finds and does is the same."""
    if request.path.stem in ("test_collect", "test_decide", "test_files"):
        monkeypatch.setattr(Numbers, "in_memory", 2)
        monkeypatch.setattr(Rows, "limits", RowLimits(memory_bytes=200, part_rows=2))
    if request.path.stem == "test_files":
        monkeypatch.setattr(Rows, "limits", RowLimits(memory_bytes=200, batch_bytes=1, part_rows=2))
        monkeypatch.setattr(passes, "OBJECT_FILES", 3)
        monkeypatch.setattr(deleting, "AT_ONCE", 2)
