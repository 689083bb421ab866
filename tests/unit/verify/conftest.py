import pytest

from sterna.edges.disk.rows import RowLimits, Rows


@pytest.fixture(autouse=True)
def on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no row in memory, in some modules: what verify finds is the same."""
    if request.path.stem in ("test_broken", "test_synced"):
        monkeypatch.setattr(Rows, "limits", RowLimits(memory_bytes=0, batch_bytes=1, part_rows=2))
