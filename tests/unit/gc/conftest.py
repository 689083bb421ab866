from pathlib import Path

import pytest

from sterna.maintenance.deletion import delete, passes
from sterna.replication.sync import stages
from sterna.storage.spill.integer_set import Int64Set
from sterna.storage.spill.sorted_rows import ExternalSorter, SorterLimits
from tests.support.small_world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "MAX_WAIT_SECONDS", 0.0)


@pytest.fixture(autouse=True)
def on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep next to nothing in memory, in some modules: what a clean-up finds and does is the same."""
    if request.path.stem in ("test_gc", "test_decide", "test_files"):
        monkeypatch.setattr(Int64Set, "max_in_memory", 2)
        monkeypatch.setattr(ExternalSorter, "limits", SorterLimits(memory_bytes=200, chunk_rows=2))
    if request.path.stem == "test_files":
        monkeypatch.setattr(ExternalSorter, "limits", SorterLimits(memory_bytes=200, batch_bytes=1, chunk_rows=2))
        monkeypatch.setattr(passes, "MAX_OBJECT_FILES", 3)
        monkeypatch.setattr(delete, "MAX_PART_FILES", 2)
