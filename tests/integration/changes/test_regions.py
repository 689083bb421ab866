"""The rows between two snapshots of a replica: read from the region's own files, by its catalog and its keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from sterna.cli.main import main
from sterna.errors import EngineError, Gap, NeedsClassicSpark, NotAKey, Remedy, StoreDenied, UsageError
from sterna.pipelines.changes import CHANGE, between
from sterna.pipelines.changes.region import ChangesRequest, read_arrow
from tests.support.world import MERGE_ON_READ, World


@pytest.fixture(scope="module")
def table(world: World) -> Iterator[str]:
    """A table with files in both regions, deletes, and a replica in eu that came in two syncs."""
    with world.namespace("changing") as name:
        table = f"{name}.t"
        world.sql(f"CREATE TABLE main_us.{table} (id BIGINT, v STRING, day DATE) USING iceberg {MERGE_ON_READ}")
        row = "id, concat('v', id), DATE'2026-01-01'"
        for start, region in ((0, "us"), (30, "eu")):
            place = f"'write.data.path'='{world.stage.warehouse(region)}/changing'"
            world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ({place})")
            world.sql(f"INSERT INTO main_us.{table} SELECT {row} FROM range({start}, {start + 30})")
        world.sync()
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN (3, 33)")
        world.sql(f"INSERT INTO main_us.{table} VALUES (9007199254740993, '<b>\u001b', NULL)")
        world.sync()
        yield table


def changed(rows: list[tuple[object, ...]]) -> set[tuple[object, ...]]:
    return {row[:2] for row in rows}


EXPECTED = {("delete", 3), ("delete", 33), ("insert", 9007199254740993)}


def test_a_replica_says_what_main_says_while_the_other_region_is_dark(world: World, table: str) -> None:
    _, start, _, end = world.snapshots(f"main_us.{table}")
    ours = [tuple(row) for row in between(world.spark, f"main_us.{table}", start, end).collect()]
    with world.dark("us"):
        theirs = [tuple(row) for row in between(world.spark, f"replica_eu.{table}", start, end).collect()]
        with world.context() as context:
            changes = read_arrow(context, ChangesRequest(table, str(start), str(end)))
    assert changed(ours) == EXPECTED
    assert sorted(ours) == sorted(theirs)
    assert {(row[CHANGE], row["id"]) for row in changes.to_pylist()} == EXPECTED


def test_main_is_read_with_the_keys_of_all_regions(world: World, table: str) -> None:
    _, start, _, end = world.snapshots(f"main_us.{table}")
    with world.context() as context:
        changes = read_arrow(context, ChangesRequest(table, str(start), str(end), ("id",), "main"))
        assert {(row[CHANGE], row["id"]) for row in changes.to_pylist()} == EXPECTED
        with pytest.raises(NotAKey, match="have the same day"):
            read_arrow(context, ChangesRequest(table, None, None, ("day",), "main"))
        with pytest.raises(Gap):
            read_arrow(context, ChangesRequest(table, "1"))
        with pytest.raises(UsageError, match=r"there is no table changing\.none on main_replica_eu"):
            read_arrow(context, ChangesRequest("changing.none"))


def test_a_store_that_is_dark_is_an_error_of_ours(world: World, table: str) -> None:
    _, start, _, end = world.snapshots(f"main_us.{table}")
    with world.dark("eu"), world.context() as context, pytest.raises(EngineError) as raised:
        read_arrow(context, ChangesRequest(table, str(start), str(end)))
    assert world.stage.endpoints["eu"].secret_key not in str(raised.value)


def test_a_store_that_refuses_the_key_is_told_as_that(world: World, table: str) -> None:
    """A later run has the same key: it isn't `retry`. The store says so to Spark's driver, which reads the metadata."""
    _, start, _, end = world.snapshots(f"main_us.{table}")
    with world.context() as context:
        wrong = replace(context, secrets=lambda id: replace(context.secrets(id), password="another"))
        with pytest.raises(StoreDenied, match=r"a store denies access to Spark: .*403") as raised:
            read_arrow(wrong, ChangesRequest(table, str(start), str(end)))
    assert (raised.value.table, raised.value.remedy) == (table, Remedy.STOP)
    assert "\n" not in str(raised.value)


def test_the_command(world: World, table: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    _, start, _, end = map(str, world.snapshots(f"main_us.{table}"))

    def sterna(*arguments: str, registry: Path = world.stage.registry) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["changes", table, "--region", "eu", "--registry", str(registry), *arguments])
        assert ended.value.code in (0, None), capsys.readouterr().err
        return capsys.readouterr().out

    answer = json.loads(sterna("--from", start, "--to", end, "--json").splitlines()[-1])
    assert (answer["branch"], answer["counts"]) == ("main_replica_eu", {"delete": 2, "insert": 1})
    new = next(row for row in answer["rows"] if row[CHANGE] == "insert")
    assert new == {CHANGE: "insert", "id": "9007199254740993", "v": "<b>\x1b", "day": None}
    text = sterna("--from", start, "--key", "id")
    assert "2 delete, 1 insert; 5 data files read" in text
    assert "- id: 3  v: v3" in text and "\\x1b" in text and "\x1b" not in text
    assert "no changes; 0 data files read" in sterna("--from", end)
    assert "… 59 more rows" in sterna("--rows", "0")

    document = yaml.safe_load(world.stage.registry.read_text())
    for region in document["regions"]:
        region["spark"] = "sc://127.0.0.1:1"
    remote = tmp_path / "registry.yaml"
    remote.write_text(yaml.safe_dump(document))
    with pytest.raises(SystemExit) as ended:
        main(["changes", table, "--region", "eu", "--registry", str(remote)])
    stderr = capsys.readouterr().err
    assert ended.value.code == NeedsClassicSpark.exit_code and "NeedsClassicSpark" in stderr
