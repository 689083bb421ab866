"""MariaDB's connector: told when it is missing, and where it is once it was fetched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sterna.cli.main import main
from sterna.errors import EngineError
from sterna.pipelines.cdc.connector import mariadb_connector_jars, mariadb_jars


def test_a_connector_that_is_missing_is_told_and_one_that_is_there_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path))
    with pytest.raises(EngineError, match="MariaDB's connector is missing") as caught:
        mariadb_jars()
    assert caught.value.hint == "sterna cdc fetch"
    (tmp_path / "jars").mkdir()
    for jar in mariadb_connector_jars():
        with (tmp_path / "jars" / jar.file_name).open("wb") as file:
            file.truncate(jar.size)
    with pytest.raises(SystemExit) as ended:
        main(["cdc", "fetch", "--json"])
    assert not ended.value.code
    assert json.loads(capsys.readouterr().out) == {"jars": [str(path) for path in mariadb_jars()]}
