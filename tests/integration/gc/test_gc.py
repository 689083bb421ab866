"""Clean-ups over real servers: exactly the garbage goes, under syncs that go on meanwhile, and nobody else's files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.run import run_gc
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import head
from sterna.replication.replica.head import read_head
from sterna.replication.sync.run import sync
from sterna.replication.verify.run import verify_structure
from sterna.storage.objects import Objects
from tests.support.command import STERNA
from tests.support.own_region import OwnRegion, own_region
from tests.support.world import World, merge_on_read

AGO = 3 * 86400.0


@pytest.fixture
def region(world: World, tmp_path: Path) -> Iterator[OwnRegion]:
    """A region of the test's own, with a table whose files go through all that makes garbage."""
    with world.namespace("collect"):
        world.sql(f"CREATE TABLE main_us.collect.t (id BIGINT) USING iceberg {merge_on_read(2)}")
        own = own_region(world, tmp_path, "collect")
        own.registry["policies"] = [{"tables": ["collect.**"]}, {"tables": ["**"], "replicate": False}]
        churned(own)
        yield own


def churned(own: OwnRegion) -> None:
    """Rows, deletes, a compaction and an expiry on main, with syncs in between."""
    sql = own.world.sql
    for start in (0, 10):
        sql(f"INSERT INTO main_us.collect.t SELECT id FROM range({start}, {start + 10})")
        sql(f"DELETE FROM main_us.collect.t WHERE id = {start + 1}")
        own.sync()
    sql("CALL main_us.system.rewrite_data_files(table => 'collect.t', options => map('rewrite-all', 'true'))")
    sql("ALTER TABLE main_us.collect.t SET TBLPROPERTIES ('gc.enabled'='true')")
    sql("CALL main_us.system.expire_snapshots(table => 'collect.t', older_than => now(), retain_last => 1)")
    own.sync()


def folder(own: OwnRegion) -> Path:
    served = own.world.stage.endpoints["eu"].folder
    assert served is not None
    return served / own.root.removeprefix("s3://")


def below(own: OwnRegion) -> set[str]:
    root = folder(own)
    return {
        f"{own.root}/{path.relative_to(root)}"
        for path in root.rglob("*")
        if path.is_file() and "_sterna" not in path.parts
    }


def aged(own: OwnRegion) -> None:
    """Everything below the root was last changed days ago; the endpoint, which remembers times, is started anew."""
    for path in folder(own).rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - AGO, time.time() - AGO))
    own.world.stage.endpoints["eu"].start()


def clean(own: OwnRegion, **options: Any) -> GcReport:
    with own.context() as context:
        return run_gc(
            context,
            GcOptions(**{"keep": GcOptions.keep * 0, "delete": True, "max_wait_seconds": 0.0, **options}),
            own.world.lines.append,
        )


def needed(own: OwnRegion) -> set[str]:
    """What the replica's tables reach, as Spark tells it: every file of every kept snapshot, and what leads to it."""
    table = f"{own.spark_catalog}.collect.t"
    columns = {
        "all_data_files": "file_path",
        "all_delete_files": "file_path",
        "all_manifests": "path",
        "snapshots": "manifest_list",
    }
    uris = {
        str(row[0]) for name, column in columns.items() for row in own.world.sql(f"SELECT {column} FROM {table}.{name}")
    }
    uris.add(own.replica()["collect.t"].metadata_location or "")
    return {uri for uri in uris if uri.startswith(own.root)}


def requests(own: OwnRegion, region: str) -> int:
    return len(own.world.stage.endpoints[region].requests())


def test_exactly_the_garbage_goes_and_nobody_elses_files(region: OwnRegion):
    world = region.world
    own_file = folder(region) / "hand-made" / "x.parquet"
    own_file.parent.mkdir()
    own_file.write_bytes(b"mine")
    mark = {name: requests(region, name) for name in ("us", "eu")}
    first = clean(region)
    assert (first.deleted.files, first.garbage.files) == (0, 0)
    aged(region)
    before, wanted = below(region), needed(region)
    assert wanted < before
    second = clean(region)
    assert second.failed == 0
    assert second.deleted == second.garbage
    assert second.deleted.files > 0
    assert below(region) - {f"{region.root}/hand-made/x.parquet"} == wanted
    assert own_file.read_bytes() == b"mine"
    for name in ("us", "eu"):
        changes = [
            one for one in world.stage.endpoints[name].requests(mark[name]) if one.method in ("PUT", "DELETE", "COPY")
        ]
        assert all(
            name == "eu" and (one.key == "" or one.key.startswith(f"{region.name}/replica/")) for one in changes
        ), changes
    region.assert_equal("collect.t")
    assert region.sync().outcome == "idle"
    world.sql("INSERT INTO main_us.collect.t VALUES (500)")
    assert region.sync().outcome == "published"
    region.assert_equal("collect.t")


def test_under_syncs_that_never_stop(region: OwnRegion, monkeypatch: pytest.MonkeyPatch):
    world = region.world
    listing = Objects.list

    def older(self: Objects, prefix: str, **options: Any) -> Iterator[tuple[str, int, datetime]]:
        for uri, size, modified in listing(self, prefix, **options):
            yield uri, size, modified if "/_sterna/runs/" in uri else modified - timedelta(seconds=AGO)

    monkeypatch.setattr(Objects, "list", older)
    clean(region, delete=False)
    ended = threading.Event()
    failed: list[BaseException] = []
    deleted = 0

    def syncing() -> None:
        try:
            with region.context() as context:
                while not ended.is_set():
                    sync(context, SyncOptions(), lambda line: None)
        except BaseException as error:  # noqa: BLE001 - it is shown by the test
            failed.append(error)

    thread = threading.Thread(target=syncing)
    thread.start()
    try:
        for number in range(4):
            world.sql(f"INSERT INTO main_us.collect.t VALUES ({1000 + number})")
            deleted += clean(region, max_wait_seconds=120.0).deleted.files
            with region.context() as context:
                assert verify_structure(context).findings == ()
    finally:
        ended.set()
        thread.join(timeout=120)
    assert failed == []
    assert deleted > 0
    region.sync()
    region.assert_equal("collect.t")


def sterna(own: OwnRegion, *arguments: str) -> subprocess.CompletedProcess[str]:
    own.context().close()
    command = [*STERNA, *arguments, "--region", own.name, "--registry", str(own.path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=300)


def test_the_command_line_counts_and_with_yes_deletes(region: OwnRegion):
    before = below(region)
    time.sleep(1.1)  # the heads before the last one are out of the shortest window that can be asked for
    dry = sterna(region, "gc", "--keep", "1s", "--json")
    assert dry.returncode == 0, dry.stderr
    report = json.loads(dry.stdout.splitlines()[-1])
    assert report["dry_run"]
    assert report["unreachable"]["files"] > 0
    aged(region)
    text = sterna(region, "gc", "--keep", "1s")
    assert "would be deleted now" in text.stdout
    assert text.stdout.splitlines()[-1] == "nothing was changed: --yes does it"
    assert below(region) == before
    acted = json.loads(sterna(region, "gc", "--keep", "1s", "--yes", "--json").stdout.splitlines()[-1])
    assert acted["deleted"]["files"] > 0
    assert acted["failed"] == 0
    assert below(region) == needed(region)
    assert sterna(region, "gc", "--grace", "1m").returncode == 2
    assert sterna(region, "gc", "--keep", "a week").returncode == 2


KILLS_ITSELF = """
import os, signal
from sterna.cli.main import main
from sterna.maintenance.deletion import delete
from sterna.storage import objects

delete.MAX_PART_FILES = 500  # it dies in the first part of several
delete_objects = objects.delete_objects

def delete_and_die(*arguments):
    delete_objects(*arguments)
    os.kill(os.getpid(), signal.SIGKILL)

objects.delete_objects = delete_and_die
main()
"""


def test_a_clean_up_that_is_killed_is_taken_up_again(region: OwnRegion, monkeypatch: pytest.MonkeyPatch):
    left = folder(region) / "us-lake" / "left"
    left.mkdir()
    files = 1_200
    for number in range(files):
        (left / f"{number}.parquet").write_bytes(b"x")
    aged(region)
    clean(region, delete=False)
    aged(region)
    command = [sys.executable, "-c", KILLS_ITSELF, "gc", "--keep", "1s", "--yes", "--region", region.name]
    ended = subprocess.run([*command, "--registry", str(region.path)], capture_output=True)
    assert ended.returncode == -signal.SIGKILL
    assert 0 < len(os.listdir(left)) < files
    # Nobody waits a quarter of an hour in a test: the killed one is taken for dead at once.
    monkeypatch.setattr(head, "GC_EXPIRY_SECONDS", 0.0)
    with region.context() as context:
        assert read_head(context.primary, region.branch).run_id.startswith("collect-")
    assert clean(region).failed == 0
    assert below(region) == needed(region)
    region.assert_equal("collect.t")


def test_what_residency_forbids_is_evicted(region: OwnRegion):
    region.registry["residency"] = [{"tables": ["collect.t"], "only": ["us"]}]
    region.sync()
    assert "collect.t" not in region.replica()
    status = json.loads(sterna(region, "status", "--json").stdout)
    shown = {item["key"]: item for item in status["refused"]}["collect.t"]
    assert shown["files"] > 0
    assert shown["bytes"] > 0
    evicted = clean(region, evict=True, keep=GcOptions.keep)
    assert evicted.deleted == evicted.refused
    assert (evicted.failed, below(region)) == (0, set())
    left = json.loads(sterna(region, "status", "--json").stdout)
    assert not [item for item in left["refused"] if item["bytes"]]
    assert left["stored"]["unreachable"] == asdict(evicted.left)
