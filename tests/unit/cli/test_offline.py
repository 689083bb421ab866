"""What needs no server: `sterna --version` and `sterna registry check --offline`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Sterna

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "storage_registry.yaml"
_CHECK = """
import socket, sys
def refuse(*arguments):
    raise AssertionError("a connection")
socket.socket.connect = socket.socket.connect_ex = refuse
from sterna.cli.main import main
before = {name.partition(".")[0] for name in sys.modules}
try:
    main(["registry", "check", "--offline", "--json", "--registry", sys.argv[1]])
except SystemExit as ended:
    after = {name.partition(".")[0] for name in sys.modules}
    print(ended.code, sorted(after - before - sys.stdlib_module_names))
"""


def test_the_version(sterna: Sterna) -> None:
    answer = sterna("--version")
    assert answer.code == 0
    assert answer.out.startswith("sterna ") and answer.out.count("\n") == 1


def test_it_imports_nothing_more_than_the_version_and_connects_to_nothing() -> None:
    """So it takes a fraction of a second longer than `--version`, on any machine: no Spark, no store, no credential."""
    environment = {name: text for name, text in os.environ.items() if not name.startswith("AIRFLOW_CONN_")}
    command = [sys.executable, "-c", _CHECK, str(EXAMPLE)]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=True, timeout=120)
    printed, end = answer.stdout.splitlines()
    assert end == "0 []"
    check = json.loads(printed)
    assert check["ok"] and [probe["region"] for probe in check["probes"]] == ["us", "eu"]
    assert "credentials nessie, lake_us, lake_eu" in check["probes"][0]["message"]


def test_one_region_or_an_error(sterna: Sterna, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STERNA_REGION", raising=False)
    offline = ("registry", "check", "--offline", "--registry", str(EXAMPLE))
    assert sterna(*offline, "--region", "eu").out.startswith("ok   eu: settings: branch main_replica_eu; ")
    unknown = sterna(*offline, "--region", "ap")
    assert (unknown.code, "there are us, eu" in unknown.err) == (2, True)
    card = "docs/operations.md#usageerror-registryerror-serviceserror"
    assert unknown.err.splitlines()[-1] == f"UsageError: stop, see {card}"
    as_json = sterna(*offline, "--region", "ap", "--json")
    assert (as_json.out, json.loads(as_json.err)["card"]) == ("", card)
    wrong = tmp_path / "registry.yaml"
    wrong.write_text(EXAMPLE.read_text().replace("replica_root", "replica_rot"))
    answer = sterna("registry", "check", "--offline", "--registry", str(wrong))
    assert (answer.code, "registry.yaml:" in answer.err) == (2, True)


def test_a_shell_completes_commands() -> None:
    environment = {**os.environ, "_STERNA_COMPLETE": "complete_bash", "COMP_WORDS": "sterna regi", "COMP_CWORD": "1"}
    command = [sys.executable, "-m", "sterna.cli.main"]
    answer = subprocess.run(command, capture_output=True, text=True, env=environment, check=False, timeout=120)
    assert answer.stdout.split() == ["registry"]
