"""Bad input and its answer: nothing is published, nothing is lost, and the message says what to do."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from sterna.catalog.model import Put, namespace_content
from sterna.config.secrets import environment_secrets
from sterna.errors import (
    BranchChanged,
    CatalogUnreachable,
    CredentialError,
    RegistryError,
    SternaError,
    StoreUnreachable,
    UsageError,
)
from sterna.operations.status.read import read_status
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.servers.process import free_port
from sterna.servers.s3 import Endpoint
from tests.support.command import STERNA
from tests.support.world import MERGE_ON_READ, World

Change = Callable[[dict[str, Any]], None]


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("bad") as name:
        yield name


@pytest.fixture
def third_region(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> Callable[[Change], RegionContext]:
    """A region of the test's own with a replica branch of its own, under a registry that the test may change."""
    name = re.sub("[^a-z0-9]", "", request.node.name.lower())[:40]

    def make(change: Change) -> RegionContext:
        registry = yaml.safe_load(world.stage.registry.read_text())
        eu = next(region for region in registry["regions"] if region["name"] == "eu")
        lake = next(location for location in registry["locations"] if location["region"] == "eu")
        registry["regions"].append(
            {
                **eu,
                "name": name,
                "replica_branch": f"main_replica_{name}",
                "replica_root": f"s3://eu-lake/{name}/replica",
            }
        )
        registry["locations"].append({**lake, "id": f"home-{name}", "region": name, "prefix": f"s3://eu-lake/{name}"})
        change(registry)
        path = tmp_path / "registry.yaml"
        path.write_text(yaml.safe_dump(registry))
        return open_region(path, name, environment_secrets())

    return make


def narrow(registry: dict[str, Any]) -> None:
    """Let us-lake stand for less than the bucket."""
    lake = next(location for location in registry["locations"] if location["id"] == "us-lake")
    registry["locations"].append({**lake, "id": "us-replica", "prefix": "s3://us-lake/replica"})
    lake["prefix"] = "s3://us-lake/warehouse"


def run(context: RegionContext, **options: Any):
    with context:
        return sync(context, SyncOptions(**options), lambda line: None)


def table(world: World, name: str, extra: str = MERGE_ON_READ, rows: int = 10) -> str:
    world.sql(f"CREATE TABLE main_us.bad.{name} (id BIGINT) USING iceberg {extra}")
    world.sql(f"INSERT INTO main_us.bad.{name} SELECT id FROM range({rows})")
    return f"bad.{name}"


def test_a_table_outside_the_registry_is_held_and_recovers_once_its_prefix_is_registered(
    world: World, ns: str, third_region
):
    readable = table(world, "inside")
    held = table(world, "outside", "TBLPROPERTIES ('write.data.path'='s3://us-lake/elsewhere')")

    def register(registry: dict[str, Any]) -> None:
        narrow(registry)
        lake = next(location for location in registry["locations"] if location["id"] == "us-lake")
        registry["locations"].append({**lake, "id": "us-else", "prefix": "s3://us-lake/elsewhere"})

    context = third_region(narrow)
    report = run(context)
    assert readable in report.published
    (fault,) = (item for item in report.held if item.key == held)
    assert fault.kind == "UnregisteredUri"
    assert fault.file.startswith("s3://us-lake/elsewhere")
    status = read_status(context)
    assert held in {item.held.key for item in status.held}
    again = run(context)
    assert again.outcome == "idle", "the same held table is no news"
    report = run(third_region(register))
    assert held in report.published
    assert report.held == ()


def test_a_missing_credential_is_named(world: World, ns: str):
    context = open_region(world.stage.registry, "eu", environment_secrets({}))
    table(world, "no_credential")
    with pytest.raises(CredentialError, match=r"AIRFLOW_CONN_"):
        run(context)
    world.sync()


def test_a_catalog_that_does_not_answer_is_named(third_region):
    port = free_port()

    def away(registry: dict[str, Any]) -> None:
        for region in registry["regions"]:
            region["catalog"] = {"read": f"http://127.0.0.1:{port}/api/v2"}

    with pytest.raises(CatalogUnreachable, match=str(port)):
        run(third_region(away))


def test_a_store_that_does_not_answer_stops_the_sync_and_the_next_one_resumes(world: World, ns: str):
    name = table(world, "dark")
    before = (
        world.catalog.reference("main_replica_eu").hash
        if "main_replica_eu" in {r.name for r in world.catalog.references()}
        else None
    )
    with world.dark("us"), pytest.raises(StoreUnreachable) as caught:
        world.sync()
    assert str(world.stage.endpoints["us"].port) in str(caught.value)
    now = {reference.name: reference.hash for reference in world.catalog.references()}
    assert now.get("main_replica_eu") == before
    world.sync()
    world.assert_equal(name)


def test_a_replica_branch_changed_by_somebody_else_is_refused(world: World, ns: str, third_region):
    context = third_region(lambda registry: None)
    run(context)
    branch = context.region.replica_branch
    head = world.catalog.reference(branch).hash
    foreign = world.catalog.commit(branch, head, [Put(("mine",), namespace_content(("mine",)))], "by hand")
    table(world, "after_change")
    with pytest.raises(BranchChanged, match=foreign):
        run(context)
    assert world.catalog.reference(branch).hash == foreign
    assert foreign in read_status(context).problem


def test_an_id_keeps_its_prefix(world: World, ns: str, third_region):
    context = third_region(lambda registry: None)
    run(context)

    with pytest.raises(RegistryError, match=r"s3://us-lake us.*s3://us-lake/warehouse us"):
        run(third_region(narrow))


def test_what_does_not_exist_is_answered_with_what_does(world: World, ns: str):
    with pytest.raises(UsageError, match="eu"):
        open_region(world.stage.registry, "nowhere", environment_secrets())
    with pytest.raises(RegistryError, match="absent"):
        open_region("/absent.yaml", "eu", environment_secrets())
    world.sync()
    with pytest.raises(UsageError, match=r"no table 'bad\.missing'"):
        verify_structure(world.context(), ["bad.missing"])


def test_errors_become_exit_codes_and_one_line(world: World, tmp_path: Path):
    broken = tmp_path / "broken.yaml"
    broken.write_text("regions: []\n")
    answer = sterna("status", "--region", "eu", "--registry", str(broken), "--json")
    assert answer.returncode == 2
    assert "broken.yaml:1" in json.loads(answer.stderr.splitlines()[-1])["message"]
    assert sterna("status", "--region", "mars", "--registry", str(world.stage.registry)).returncode == 2
    assert sterna("status", "--region", "eu", "--registry", str(world.stage.registry)).returncode == 0


@pytest.mark.rare
def test_a_killed_sync_is_taken_up_where_it_was(world: World, ns: str):
    name = table(world, "killed", rows=20_000)
    for number in range(8):
        world.sql(f"INSERT INTO main_us.{name} SELECT id + {number} FROM range(20000)")
    eu = world.stage.endpoints["eu"]
    progress = []
    for words, pause in (("copying batch", 0.05), (" manifest files", 0.0), ("publishing", 0.0)):
        kill_at(world, words, pause)
        progress.append((stored(eu), len(eu.requests())))
    report = world.sync()
    assert report.held == ()
    assert name in world.replica(), "published by this sync, or by the last one, killed right after its commit"
    world.assert_equal(name)
    whole = stored(eu)
    for there, mark in progress:
        sent = {request.key for request in eu.requests(mark) if request.method in ("PUT", "COMPLETE")}
        arrived = {key for key, size in there.items() if whole.get(key) == size}
        assert not sent & arrived, "what arrived is not sent again; what was cut off is"
    assert arrived, "the last one was killed when all was here"


def stored(endpoint: Endpoint) -> dict[str, int]:
    """The data files that an endpoint has, with their sizes."""
    assert endpoint.folder
    sizes = {path.relative_to(endpoint.folder): path.stat().st_size for path in endpoint.folder.rglob("*.parquet")}
    return {"/".join(path.parts[1:]): size for path, size in sizes.items() if "_sterna" not in path.parts}


# It watches itself: from outside, a machine that is busy would see it too late.
KILLS_ITSELF = """
import os, signal, sys, threading, time
from sterna.cli.main import main

def watch(said, words, pause):
    for line in said:
        if words in line:
            time.sleep(float(pause))
            os.killpg(0, signal.SIGKILL)

reading, writing = os.pipe()
os.dup2(writing, 2)
threading.Thread(target=watch, args=(os.fdopen(reading), sys.argv.pop(1), sys.argv.pop(1)), daemon=True).start()
main()
"""


def kill_at(world: World, words: str, pause: float) -> None:
    """Start a sync in a process of its own that kills itself, with all it started, soon after it says something."""
    command = [sys.executable, "-c", KILLS_ITSELF, words, str(pause), "sync", "--region", "eu"]
    command += ["--registry", str(world.stage.registry)]
    ended = subprocess.run(command, stdout=subprocess.DEVNULL, start_new_session=True)
    assert ended.returncode == -signal.SIGKILL, f"the sync ended without saying {words!r}"


def sterna(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*STERNA, *arguments], capture_output=True, text=True, timeout=120)


def test_every_error_says_what_to_do():
    def below(kind: type[SternaError]) -> Iterator[type[SternaError]]:
        for child in kind.__subclasses__():
            yield child
            yield from below(child)

    for kind in below(SternaError):
        assert kind.remedy is not None
        assert kind.exit_code in range(1, 9)
