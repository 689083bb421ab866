"""What a machine has already changes nothing of what a demo, a test or a bench starts on it."""

from __future__ import annotations

from pathlib import Path

from sterna.edges.jars import cache_folder
from sterna.embedded.isolation import isolate
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
