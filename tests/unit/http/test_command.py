"""The command `sterna serve`, as a process of its own: it serves, logs without secrets, and ends in order."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import httpx
import pytest

from sterna.cli.main import main
from sterna.serving.http.logs import JsonFormatter
from tests.support.command import STERNA
from tests.support.http_server import Branch


@pytest.mark.slow
def test_it_begins_and_ends_in_order(branch: Branch, tmp_path: Path) -> None:
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(branch.registry.model_dump(mode="json")))
    command = [*STERNA, "serve", "--region", "eu", "--port", "0"]
    environment = {**os.environ, "STERNA_REGISTRY": str(registry)}
    with subprocess.Popen(command, env=environment, cwd=tmp_path, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = []
        for line in process.stderr:
            lines.append(json.loads(line))
            if "running on" in lines[-1]["message"]:
                break
        url = lines[-1]["message"].partition("running on ")[2].split()[0]
        # Nothing answers at the registry's Nessie: the gateway says so, and takes no streams.
        answer = httpx.get(f"{url}/health")
        assert (answer.status_code, answer.json()) == (503, {"status": "starting"})
        refused = httpx.get(f"{url}/v1/events", headers={"X-Secret": "hunter2"}, params={"ticket": "hunter2"})
        assert refused.status_code == 503 and "retry-after" in refused.headers
        process.send_signal(signal.SIGTERM)
        rest = process.stderr.read()
        process.wait(20)
        assert "hunter2" not in rest
        requests = [record for record in map(json.loads, rest.splitlines()) if record["message"] == "request"]
        assert [record["path"] for record in requests][-1:] == ["/v1/events"]


def test_what_can_t_be_served_is_told(branch: Branch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(branch.registry.model_dump(mode="json")))
    for arguments in (["--host", "0.0.0.0"], ["--only", "kpi"], ["--keep", "soon"], ["--allow-origin", "a.example"]):
        with pytest.raises(SystemExit) as ended:
            main(["serve", "--region", "eu", "--registry", str(registry), *arguments])
        assert ended.value.code == 2
    assert "loopback" in capsys.readouterr().err


def test_a_credential_that_is_missing_is_told_before_anything_is_served(
    branch: Branch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    document = branch.registry.model_dump(mode="json")
    for region in document["regions"]:
        region["catalog"]["credential_id"] = "nobodys"
    registry = tmp_path / "registry.json"
    registry.write_text(json.dumps(document))
    monkeypatch.delenv("AIRFLOW_CONN_NOBODYS", raising=False)
    with pytest.raises(SystemExit) as ended:
        main(["serve", "--region", "eu", "--registry", str(registry)])
    assert ended.value.code == 3
    assert "credential 'nobodys' is missing" in capsys.readouterr().err


def test_queries_are_checked_where_they_are_served(
    branch: Branch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    registry, services = tmp_path / "registry.json", tmp_path / "services.yaml"
    registry.write_text(json.dumps(branch.registry.model_dump(mode="json")))

    def usage_error(text: str, *arguments: str) -> str:
        services.write_text(text)
        with pytest.raises(SystemExit) as ended:
            main(["serve", "--region", "eu", "--registry", str(registry), "--services", str(services), *arguments])
        assert ended.value.code == 2
        return capsys.readouterr().err

    bad = "queries: {late: {sql: SELECT now() AS n FROM ns.a}}"
    assert "now" in usage_error(bad) and "now" in usage_error(bad, "--only", "events,queries")
    # Who serves events alone isn't kept from it; what is told is the next thing that is wrong.
    assert "loopback" in usage_error(bad, "--only", "events", "--host", "0.0.0.0")
    assert "no queries to serve" in usage_error("version: 1", "--only", "queries")
    assert "no service" in usage_error("version: 1", "--only", "events,")


def test_no_token_gets_into_a_log() -> None:
    import logging

    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJl"
    record = logging.LogRecord("sterna", logging.INFO, "", 1, f"GET /v1/events?ticket=abc Bearer {token}\n", (), None)
    line = JsonFormatter().format(record)
    assert token not in line and "abc" not in line and line.count("\n") == 0
