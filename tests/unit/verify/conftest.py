import pytest

from sterna.storage.spill.sorted_rows import ExternalSorter, SorterLimits


@pytest.fixture(autouse=True)
def on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no row in memory, in some modules: what verify finds is the same."""
    if request.path.stem in ("test_broken", "test_synced"):
        monkeypatch.setattr(ExternalSorter, "limits", SorterLimits(memory_bytes=0, batch_bytes=1, chunk_rows=2))
