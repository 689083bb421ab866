"""The command line over real servers: what it prints, as text and as JSON, and its exit codes."""

from __future__ import annotations

import json
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from sterna.cli.main import app
from sterna.replication.execution import spark_executor
from sterna.servers.process import free_port
from sterna.spark import session
from tests.support.command import STERNA
from tests.support.world import World


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    world.sql("CREATE NAMESPACE IF NOT EXISTS main_us.cli")
    world.sql("CREATE TABLE main_us.cli.t (id BIGINT) USING iceberg")
    world.sql("INSERT INTO main_us.cli.t SELECT id FROM range(10)")
    yield "cli"
    world.sql("DROP TABLE main_us.cli.t")
    world.sql("DROP NAMESPACE main_us.cli")


def sterna(world: World, *arguments: str, registry: Path | None = None) -> subprocess.CompletedProcess[str]:
    command = [*STERNA, *arguments, "--registry", str(registry or world.stage.registry)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def changed(world: World, tmp_path: Path, **fields: str) -> Path:
    registry = yaml.safe_load(world.stage.registry.read_text())
    next(region for region in registry["regions"] if region["name"] == "eu").update(fields)
    path = tmp_path / "registry.yaml"
    path.write_text(yaml.safe_dump(registry))
    return path


def test_plan_sync_status_verify(world: World, ns: str):
    planned = sterna(world, "plan", "--region", "eu")
    assert planned.returncode == 0, planned.stderr
    assert "put iceberg_table cli.t: copy" in planned.stdout
    assert "estimated egress cost" in planned.stdout
    synced = sterna(world, "sync", "--region", "eu", "--json")
    assert synced.returncode == 0, synced.stderr
    report = json.loads(synced.stdout.splitlines()[-1])
    assert report["outcome"] == "published"
    assert "cli.t" in report["published"]
    status = json.loads(sterna(world, "status", "--region", "eu", "--json").stdout)
    assert status["watermark"] == status["source_hash"]
    assert status["lag_seconds"] == 0.0
    assert status["last_run"] == report["run_id"]
    runner = CliRunner()
    registry = ["--region", "eu", "--registry", str(world.stage.registry)]
    assert "cli.t in eu: fresh" in runner.invoke(app, ["why", "cli.t", *registry]).stdout
    assert "cli.no in eu: never on main" in runner.invoke(app, ["why", "cli.no", *registry]).stdout
    verified = sterna(world, "verify", "--region", "eu", "--table", "cli.t")
    assert verified.returncode == 0
    assert "0 faults" in verified.stdout
    assert "nothing to do" in sterna(world, "plan", "--region", "eu").stdout


def test_registry_check_says_what_works_and_what_does_not(world: World, monkeypatch: pytest.MonkeyPatch):
    passing = sterna(world, "registry", "check", "--region", "eu", "--json")
    assert passing.returncode == 0, passing.stdout
    assert json.loads(passing.stdout)["ok"]
    # The Spark that has just worked isn't started once more.
    monkeypatch.setattr(spark_executor, "open_spark", lambda context: None)
    monkeypatch.setattr(session, "close_session", lambda opened: None)
    with world.dark("us"):
        failing = CliRunner().invoke(
            app, ["registry", "check", "--region", "eu", "--registry", str(world.stage.registry)]
        )
    assert failing.exit_code == 4
    assert "FAIL eu: store s3://us-lake" in failing.stdout
    assert "ok   eu: store s3://eu-lake" in failing.stdout
    assert "     StoreUnreachable: retry, see docs/operations.md#storeunreachable-" in failing.stdout


def test_doctor_tries_rights_and_clocks_and_its_report_has_no_secret(
    world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(spark_executor, "open_spark", lambda context: None)
    monkeypatch.setattr(session, "close_session", lambda opened: None)
    report = tmp_path / "report.tar.gz"
    arguments = ["--region", "eu", "--registry", str(world.stage.registry), "--bundle", str(report)]
    answer = CliRunner().invoke(app, ["doctor", *arguments])
    assert answer.exit_code == 0, answer.output
    assert "all checks passed" in answer.stdout
    root = world.context("eu").region.replica_root
    for step in ("writing", "reading", "listing", "deleting"):
        assert f"ok   eu: {step} below {root}" in answer.stdout
    assert f"ok   eu: clock of {world.stage.endpoints['eu'].url}" in answer.stdout
    assert list(world.context("eu").objects.list(f"{root}/_sterna/doctor")) == []
    with tarfile.open(report) as bundle:
        texts = [bundle.extractfile(name).read().decode() for name in bundle.getnames()]
    for endpoint in world.stage.endpoints.values():
        assert endpoint.secret_key not in "".join(texts)


def test_a_spark_that_does_not_answer_is_named_and_nothing_is_published(world: World, ns: str, tmp_path: Path):
    address = f"sc://127.0.0.1:{free_port()}"
    world.sql("INSERT INTO main_us.cli.t VALUES (11)")
    before = {reference.name: reference.hash for reference in world.catalog.references()}
    answer = sterna(world, "sync", "--region", "eu", registry=changed(world, tmp_path, spark=address, localize="spark"))
    assert answer.returncode == 4, answer.stderr
    assert address in answer.stderr
    assert {reference.name: reference.hash for reference in world.catalog.references()} == before


def test_a_region_that_runs_another_registry_is_shown(world: World, ns: str, tmp_path: Path):
    world.sync()
    warning = "region eu runs another registry"
    other_registry = changed(world, tmp_path, spark="local[1]")
    assert warning not in sterna(world, "status", "--region", "eu", registry=other_registry).stdout, (
        "it decides the same replica"
    )
    other_registry.write_text(other_registry.read_text() + "\npolicies: [{tables: [elsewhere.*], replicate: false}]\n")
    assert warning in sterna(world, "status", "--region", "eu", registry=other_registry).stdout


def test_no_secret_is_said(world: World, ns: str):
    world.sql("INSERT INTO main_us.cli.t VALUES (12)")
    answer = sterna(world, "sync", "--region", "eu")
    for endpoint in world.stage.endpoints.values():
        assert endpoint.secret_key not in answer.stdout + answer.stderr
