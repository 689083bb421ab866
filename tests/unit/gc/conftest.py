from pathlib import Path

import pytest

from tests.unit.sync.world import World, make_world


@pytest.fixture
def world(tmp_path: Path) -> World:
    return make_world(tmp_path)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sterna.sync.stages._PATIENCE", 0.0)
