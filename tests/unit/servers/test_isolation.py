"""What a machine has already changes nothing of what a demo, a test or a bench starts on it."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from sterna.jvm.jars import cache_folder
from sterna.servers.isolation import isolate
from tests.support.hostile import hostile_machine

_STAYS = {"HOME", "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "all_proxy", "JAVA_HOME", "LC_ALL", "TZ"}


def test_settings_of_other_programs_are_taken_away_and_ways_to_packages_stay(tmp_path: Path) -> None:
    variables = hostile_machine(tmp_path / "home")
    before = dict(variables)
    isolate(variables)
    changed = {name for name, value in before.items() if variables.get(name) != value}
    assert not changed & (_STAYS | {"PATH", "STERNA_CACHE"})
    left = {name for name, value in variables.items() if str(tmp_path) in value or value.endswith(":9")}
    assert left <= _STAYS
    assert variables["NO_PROXY"] == "example.com,127.0.0.1,localhost,::1"
    assert variables["no_proxy"] == "127.0.0.1,localhost,::1"
    assert variables["AWS_CONFIG_FILE"] == "/dev/null"
    assert variables["PYICEBERG_HOME"] == str(cache_folder() / "empty")
    again = dict(variables)
    isolate(again)
    assert again == variables


def test_who_begins_beside_others_takes_nothing_away_from_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is the machine's: a file that is empty for a moment failed whoever read it just then."""
    monkeypatch.setenv("STERNA_CACHE", str(tmp_path / "cache"))
    variables, over = dict[str, str](), threading.Event()
    isolate(variables)
    settings = Path(variables["PYICEBERG_HOME"]) / ".pyiceberg.yaml"
    original, seen = settings.read_text(), set[str]()

    def begin() -> None:
        for _ in range(2_000):
            isolate({})
        over.set()

    thread = threading.Thread(target=begin, daemon=True)
    thread.start()
    while not over.is_set():
        seen.add(settings.read_text())
    thread.join()
    assert seen == {original}
    settings.write_text("")  # one that was killed as an older version wrote it
    isolate({})
    assert settings.read_text() == original
    assert [path.name for path in settings.parent.iterdir()] == [settings.name]
