"""Expiry and sweep over real servers: a lagging region's snapshots stay, then exactly the garbage goes."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Collection, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from sterna.config.secrets import environment_secrets
from sterna.config.sections.maintenance import Maintenance
from sterna.errors import StoreDenied, UpkeepBlocked, UsageError
from sterna.maintenance.gc.pin import pin
from sterna.maintenance.tables.expire import SparkSnapshotRemover, expire_snapshots, require_unblocked
from sterna.maintenance.tables.orphan_files import sweep
from sterna.maintenance.tables.results import ExpiredTable, SweepReport
from sterna.replication.replica.region import open_region
from tests.support.command import STERNA
from tests.support.iceberg_java import load_table
from tests.support.own_region import OwnRegion, own_region, put_object, remove_object
from tests.support.world import World

AGO = 3 * 86_400.0
SOON = timedelta(hours=2)  # after which what was written now is older than `keep`
TABLE = "main_us.behind.t"
SWEEPER, LOGIN = "sweeper", "AIRFLOW_CONN_SWEEPER"


@pytest.fixture
def region(world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OwnRegion]:
    """A region of the test's own, and a table of us of which it has the first three snapshots. Who may delete its files
    has a credential of its own.
    """
    with world.namespace("behind"):
        own = own_region(world, tmp_path, "behind")
        own.registry["policies"] = [{"tables": ["behind.**"]}, {"tables": ["**"], "replicate": False}]
        folder = f"s3://us-lake/{own.name}"
        lake = next(location for location in own.registry["locations"] if location["region"] == "us")
        sweep = {"sweep": True, "sweep_credential_id": SWEEPER}
        own.registry["locations"].append({**lake, "id": f"swept-{own.name}", "prefix": folder, **sweep})
        monkeypatch.setenv(LOGIN, os.environ[f"AIRFLOW_CONN_{lake['credential_id'].upper()}"])
        world.sql(
            f"CREATE TABLE {TABLE} (id BIGINT) USING iceberg LOCATION '{folder}/t' "
            "TBLPROPERTIES ('gc.enabled'='false', 'write.delete.mode'='copy-on-write')"
        )
        for number in range(3):
            world.sql(f"INSERT INTO {TABLE} VALUES ({number}), ({number + 10})")
        own.sync()
        yield own
        world.catalog.delete_tag("kept", world.catalog.reference("kept").hash) if "kept" in names(world) else None


def names(world: World) -> set[str]:
    return {reference.name for reference in world.catalog.references()}


def settings(own: OwnRegion, **more: Any) -> Maintenance:
    others = [registered["name"] for registered in own.registry["regions"] if registered["name"] != own.name]
    rule = {"match": ["behind.**"], "keep": "1h"}
    options = {"tables": [rule], "exclude_regions": others, "keep_heads": "1h", "grace": "24h"}
    return Maintenance.model_validate({**options, **more})


def expired(own: OwnRegion, *, act: bool = True, later: timedelta = SOON, **more: Any) -> ExpiredTable:
    with own.context() as context:
        now = datetime.now(UTC) + later
        expiry = expire_snapshots(
            context, settings(own, **more), remove=SparkSnapshotRemover(context) if act else None, now=now
        )
    (table,) = expiry.tables
    return table


def swept(own: OwnRegion, *, delete: bool = True, near_roots: Collection[str] = (), **more: Any) -> SweepReport:
    own.context().close()  # writes the registry
    now = datetime.now(UTC) + timedelta(days=1, hours=3)
    with open_region(own.path, "us", environment_secrets()) as context:
        return sweep(context, settings(own, **more), delete=delete, near_roots=near_roots, now=now)


def snapshots(own: OwnRegion) -> int:
    return int(own.world.sql(f"SELECT count(*) FROM {TABLE}.snapshots")[0][0])


def folder(own: OwnRegion) -> Path:
    served = own.world.stage.endpoints["us"].folder
    assert served is not None
    return served / "us-lake" / own.name


def beside(own: OwnRegion) -> Path:
    """A folder that isn't opted in."""
    return folder(own).with_name(f"{own.name}-beside")


def files(own: OwnRegion) -> set[str]:
    return {str(path.relative_to(folder(own))) for path in folder(own).rglob("*") if path.is_file()}


def aged(own: OwnRegion, days: float = 3) -> None:
    """Whatever was written was written days ago, records of passes included."""
    root = own.world.stage.endpoints["us"].folder
    assert root is not None
    places = (folder(own), beside(own), *root.rglob("_sterna/sweep"))
    for place in places:
        for path in place.rglob("*"):
            if path.is_file():
                os.utime(path, (time.time() - days * 86_400, time.time() - days * 86_400))
    own.world.stage.endpoints["us"].start()


def forgotten(own: OwnRegion) -> None:
    """No record of a pass is left for another test."""
    root = own.world.stage.endpoints["us"].folder
    assert root is not None
    for path in [file for file in root.rglob("_sterna/sweep/*") if file.is_file()]:
        path.unlink()
    own.world.stage.endpoints["us"].start()


def test_what_a_lagging_region_needs_stays_until_it_has_caught_up(region: OwnRegion) -> None:
    world = region.world
    first = world.sql(f"SELECT snapshot_id FROM {TABLE}.snapshots ORDER BY committed_at")
    for number in range(3, 6):
        world.sql(f"INSERT INTO {TABLE} VALUES ({number})")
    assert snapshots(region) == 6
    assert len(expired(region, act=False).expired) == 2, "it stands for the third snapshot, and needs all since"
    assert snapshots(region) == 6, "a dry run"
    done = expired(region)
    assert (done.done, set(done.expired), snapshots(region)) == (True, {first[0][0], first[1][0]}, 4)
    assert not expired(region).expired, "there is nothing more"
    assert not expired(region, later=timedelta(0), exclude_regions=[]).expired
    region.sync()
    world.catalog.create_tag("kept", "main", world.catalog.reference("main").hash)
    world.sql(f"INSERT INTO {TABLE} VALUES (6)")
    region.sync()
    done = expired(region, later=SOON)
    assert done.done and snapshots(region) == 2, "the current one, and the tag's"
    world.catalog.delete_tag("kept", world.catalog.reference("kept").hash)
    assert expired(region).done and snapshots(region) == 1
    assert world.sql(f"SELECT count(*), sum(id) FROM {TABLE}") == [(10, 54)]
    assert world.sql(f"SHOW TBLPROPERTIES {TABLE} ('gc.enabled')") == [("gc.enabled", "false")]
    region.sync()
    region.assert_equal("behind.t")


def test_a_region_that_knows_nothing_blocks_until_it_is_left_out(region: OwnRegion) -> None:
    eu = next(registered for registered in region.registry["regions"] if registered["name"] == "eu")
    eu["replica_branch"] = f"main_replica_never_{region.name}"
    with region.context() as context:
        now = datetime.now(UTC) + SOON
        expiry = expire_snapshots(
            context, settings(region, exclude_regions=["us"]), remove=SparkSnapshotRemover(context), now=now
        )
        assert [block.region for block in expiry.blocks] == ["eu"]
        assert "it has no watermark" in expiry.tables[0].problem and not expiry.tables[0].done
        with pytest.raises(UpkeepBlocked):
            require_unblocked(expiry)
        with pytest.raises(UsageError):
            expire_snapshots(context, settings(region), tables=["behind.other"])
    with pytest.raises(UpkeepBlocked, match="eu: it has no watermark"):
        swept(region, exclude_regions=["us"])
    assert expired(region).done


def test_a_writer_that_is_faster_is_looked_at_again(region: OwnRegion) -> None:
    world = region.world
    with region.context() as context:
        real, tries = SparkSnapshotRemover(context), []

        def beaten(key: str, metadata: str, ids: Any) -> bool:
            tries.append(metadata)
            if len(tries) == 1:
                world.sql(f"INSERT INTO {TABLE} VALUES (99)")
            return real(key, metadata, ids)

        (table,) = expire_snapshots(context, settings(region), remove=beaten, now=datetime.now(UTC) + SOON).tables
    assert table.done and len(set(tries)) == 2
    assert snapshots(region) == 2
    assert world.sql(f"SELECT count(*) FROM {TABLE}") == [(7,)]


def test_a_sweep_deletes_exactly_the_garbage_in_two_passes(region: OwnRegion, monkeypatch: pytest.MonkeyPatch) -> None:
    world = region.world
    forgotten(region)
    world.sql(f"DELETE FROM {TABLE} WHERE id < 2")
    region.sync()
    expired(region)
    region.sync()
    put_object(world, f"s3://us-lake/{region.name}/t/data/orphan.parquet", b"nobody's")
    put_object(world, f"s3://us-lake/{region.name}/other/readme.txt", b"no table's")
    put_object(world, f"s3://us-lake/{region.name}-beside/data/x.parquet", b"not opted in")
    before = files(region)
    assert swept(region).deleted.files == 0, "in the first pass nothing goes"
    aged(region)
    assert swept(region, delete=False).garbage.files > 0
    assert files(region) == before
    with region.context() as context:
        held = pin(context, context.primary.reference(region.branch).hash, timedelta(days=400))
    login = os.environ[LOGIN]
    monkeypatch.setenv(LOGIN, json.dumps({**json.loads(login), "password": "another"}))
    with pytest.raises(StoreDenied):
        swept(region)
    assert files(region) == before, "who may only read and write deletes nothing"
    monkeypatch.setenv(LOGIN, login)
    done = swept(region)
    assert (done.failed, done.deleted) == (0, done.garbage)
    gone = before - files(region)
    assert "t/data/orphan.parquet" in gone
    assert len([name for name in gone if name.endswith(".parquet")]) > 1, "files that the delete rewrote"
    assert {name for name in gone if name.startswith("t/metadata/snap-")}
    assert "other/readme.txt" in files(region)
    assert gone == before - needed(region) - {"other/readme.txt"}
    assert world.sql(f"SELECT count(*), sum(id) FROM {TABLE}") == [(4, 35)]
    region.sync()
    region.assert_equal("behind.t")
    world.sql(f"INSERT INTO {TABLE} VALUES (500)")
    assert region.sync().outcome == "published"
    region.assert_equal("behind.t")
    world.catalog.delete_tag(held.tag, world.catalog.reference(held.tag).hash)
    assert_near_is_swept(region)
    remove_object(world, f"s3://us-lake/{region.name}-beside/data/x.parquet")
    forgotten(region)


def assert_near_is_swept(own: OwnRegion) -> None:
    """See that in a location of a REST address, which isn't opted in, garbage goes from the folders of tables alone."""
    forgotten(own)
    root = f"s3://us-lake/{own.name}-beside"
    for path in (f"near/{uuid4()}/data/x.parquet", f"_sterna/rest/{uuid4()}/metadata/00000-x.metadata.json"):
        put_object(own.world, f"{root}/{path}", b"nobody's")
    swept(own, near_roots=[root])
    aged(own)
    done = swept(own, near_roots=[root])
    assert (done.failed, done.locations[1:]) == (0, (f"{root}/near", f"{root}/_sterna/rest"))
    left = [str(path.relative_to(beside(own))) for path in beside(own).rglob("*") if path.is_file()]
    assert left == ["data/x.parquet"]


def needed(own: OwnRegion) -> set[str]:
    """What `main` reaches, as Spark tells it, and its earlier metadata.json as far as it names them."""
    columns = {
        "all_data_files": "file_path",
        "all_delete_files": "file_path",
        "all_manifests": "path",
        "snapshots": "manifest_list",
        "metadata_log_entries": "file",
    }
    uris = {
        str(row[0]) for name, column in columns.items() for row in own.world.sql(f"SELECT {column} FROM {TABLE}.{name}")
    }
    uris.add(own.world.content(("behind", "t")).metadata_location or "")
    return {uri.removeprefix(f"s3://us-lake/{own.name}/") for uri in uris}


def test_metadata_that_is_gone_blocks_a_sweep(region: OwnRegion) -> None:
    world = region.world
    (name,) = world.sql(f"SELECT path FROM {TABLE}.manifests LIMIT 1")[0]
    path = folder(region) / str(name).removeprefix(f"s3://us-lake/{region.name}/")
    data = path.read_bytes()
    remove_object(world, str(name))
    try:
        with pytest.raises(UpkeepBlocked) as caught:
            swept(region)
        assert (caught.value.table, caught.value.file) == ("behind.t", name)
    finally:
        put_object(world, str(name), data)


def test_the_command_line(region: OwnRegion, tmp_path: Path) -> None:
    services = tmp_path / "services.yaml"
    others = [registered["name"] for registered in region.registry["regions"] if registered["name"] != region.name]
    rule = {"match": ["behind.**"], "keep": "1s"}
    services.write_text(json.dumps({"maintenance": {"tables": [rule], "exclude_regions": others, "keep_heads": "1s"}}))

    def sterna(*arguments: str) -> subprocess.CompletedProcess[str]:
        region.context().close()
        command = [*STERNA, "maintenance", *arguments, "--region", "us"]
        more = ["--registry", str(region.path), "--services", str(services)]
        return subprocess.run([*command, *more], capture_output=True, text=True, timeout=300)

    region.world.sql(f"INSERT INTO {TABLE} VALUES (7)")
    region.sync()
    time.sleep(1.1)  # than `keep`
    dry = sterna("expire", "--json")
    assert dry.returncode == 0, dry.stderr
    (table,) = json.loads(dry.stdout.splitlines()[-1])["tables"]
    assert (table["key"], table["done"]) == ("behind.t", False)
    assert table["expired"]
    assert sterna("expire", "nothing.there").returncode == 2
    counted = sterna("sweep")
    assert counted.returncode == 0, counted.stderr
    assert counted.stdout.splitlines()[-1] == "nothing was changed: --yes does it"
    forgotten(region)


def test_what_the_table_and_its_branches_ask_for_stays_as_in_icebergs_own_expiry(region: OwnRegion) -> None:
    """The oracle is Iceberg's `RemoveSnapshots`, which commits nothing here; its own default age is turned off."""
    world, before = region.world, set(names(region.world))
    for number in range(3, 6):
        world.sql(f"INSERT INTO {TABLE} VALUES ({number})")
    world.sql(f"ALTER TABLE {TABLE} CREATE BRANCH dev WITH SNAPSHOT RETENTION 3 SNAPSHOTS")
    for number in range(6, 9):
        world.sql(f"INSERT INTO {TABLE} VALUES ({number})")
    world.sql(f"ALTER TABLE {TABLE} CREATE TAG first AS OF VERSION {world.snapshots(TABLE)[0]}")
    region.sync()
    for least in (1, 2, 20):
        properties = f"'history.expire.min-snapshots-to-keep'='{least}', 'gc.enabled'='true'"
        world.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ({properties})")
        region.sync()
        table = load_table(world.spark, TABLE)
        wanted = table.expireSnapshots().expireOlderThan(int((time.time() + 86_400) * 1000)).apply()
        assert set(expired(region, act=False).expired) == {snapshot.snapshotId() for snapshot in wanted}
    world.sql(f"ALTER TABLE {TABLE} SET TBLPROPERTIES ('history.expire.min-snapshots-to-keep'='many')")
    region.sync()
    expiry = expired(region, act=False)
    assert not expiry.expired and "is not a number" in expiry.problem
    assert set(names(world)) == before
