"""The command line in this process, over a region with the in-memory catalog and real files on disk."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from sterna.cli.main import main
from sterna.replication.replica import region as replica_region
from sterna.spark import pandas_import
from tests.support.small_world import World, make_world


@dataclass(frozen=True)
class Answer:
    """What a command said and how it ended."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        return self.out.splitlines()[-1]


Sterna = Callable[..., Answer]


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = make_world(tmp_path)
    monkeypatch.setattr(replica_region, "open_region", lambda path, region, secrets: world.context(region))
    monkeypatch.setattr(pandas_import, "block_pandas", lambda: None)
    monkeypatch.setenv("STERNA_REGION", "eu")
    return world


@pytest.fixture
def sterna(capsys: pytest.CaptureFixture[str]) -> Sterna:
    def run(*arguments: str) -> Answer:
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(arguments)
        captured = capsys.readouterr()
        return Answer(int(ended.value.code or 0), captured.out, captured.err)

    return run
