import pytest

from sterna.edges.disk import rows


@pytest.fixture(autouse=True)
def on_disk(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no row in memory, in some modules: what verify finds is the same."""
    if request.path.stem in ("test_broken", "test_synced"):
        monkeypatch.setattr(rows, "_IN_MEMORY", 0)
        monkeypatch.setattr(rows, "_BATCH", 1)
        monkeypatch.setattr(rows, "_STRETCH", 2)
