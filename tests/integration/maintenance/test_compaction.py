"""Compaction on real servers: beside writers, region by region, as planned, and nothing lost by a kill."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from sterna.config.sections.maintenance import Maintenance
from sterna.errors import EngineError
from sterna.maintenance.tables.model import PRICE_PROPERTY, MaintenanceReport
from sterna.maintenance.tables.plan import plan_maintenance
from sterna.maintenance.tables.run import run_maintenance
from sterna.servers.spark import add_catalog
from sterna.spark.rewrite_data_files import PlannedGroup, TableRewrite, WrittenGroup
from tests.support.iceberg_java import load_table
from tests.support.promoted import (
    ENCODINGS,
    NARROW,
    differing,
    narrow_rows,
    promotions,
    properties,
    wide_rows,
)
from tests.support.world import World, merge_on_read

SPACE = "upkeep"
ROWS = 400


@pytest.fixture
def space(world: World) -> Iterator[World]:
    with world.namespace(SPACE):
        yield world


def settings(**rule: Any) -> Maintenance:
    # What tests write is old enough after a second, where it isn't told to be quiet for longer.
    return Maintenance.model_validate(
        {"tables": [{"match": [f"{SPACE}.**"], "min_age": "1s", **rule}], "spark": "local[2]"}
    )


def later(seconds: float = 60.0) -> datetime:
    """Tests don't wait until a partition is quiet: the clock is told to be later."""
    return datetime.now(UTC) + timedelta(seconds=seconds)


def run(world: World, *tables: str, region: str = "us", options: Maintenance | None = None) -> MaintenanceReport:
    with world.context(region) as context:
        return run_maintenance(context, options or settings(), tables, world.lines.append, dry_run=False, now=later())


def create_table(world: World, name: str, version: int = 2, files: int = 6, more: str = "") -> str:
    """A table of rows that no codec makes smaller, so that what a rewrite writes follows from what it reads."""
    table = f"main_us.{SPACE}.{name}"
    world.sql(f"CREATE TABLE {table} (id BIGINT, part INT, v STRING) USING iceberg {more} {merge_on_read(version)}")
    for number in range(files):
        add(world, table, number * ROWS, ROWS)
    return table


def add(world: World, table: str, first: int, count: int, part: int = 0) -> None:
    noise = "concat(" + ", ".join(f"sha2(concat('{k}-', id), 512)" for k in range(4)) + ")"
    world.sql(f"INSERT INTO {table} SELECT id, {part}, {noise} FROM range({first}, {first + count}, 1, 1)")


def rows(world: World, table: str) -> Counter[Any]:
    return Counter(world.sql(f"SELECT * FROM {table}"))


def files(world: World, table: str) -> list[str]:
    return [row[0] for row in world.sql(f"SELECT file_path FROM {table}.files WHERE content = 0")]


def close_to_plan(done: MaintenanceReport) -> None:
    for table in done.tables:
        assert not table.failed, table.failed
        assert table.written.files == table.planned.files
        assert table.written.bytes == pytest.approx(table.planned.bytes, rel=0.1)
        assert table.written.price == pytest.approx(table.planned.price, rel=0.1)


def test_a_table_that_spark_does_not_read_is_told_with_its_column_and_no_other_waits(space: World) -> None:
    """A column has the name of a metadata column of Iceberg's: that isn't a table that others changed meanwhile."""
    odd, other = create_table(space, "odd_name"), create_table(space, "beside_odd")
    load_table(space.spark, odd).updateSchema().renameColumn("v", "_file").commit()
    done = run(space, f"{SPACE}.odd_name", f"{SPACE}.beside_odd", region="us")
    failed = {table.table: table.failed for table in done.tables}
    assert failed[f"{SPACE}.beside_odd"] == ""
    assert "EngineRefused: Spark doesn't read the table: it has a column _file" in failed[f"{SPACE}.odd_name"]
    assert "\n" not in failed[f"{SPACE}.odd_name"]
    assert (len(files(space, other)), len(files(space, odd))) == (1, 6)


@pytest.mark.parametrize("version", [2, 3])
def test_rows_and_their_ids_stay_and_the_replica_follows(space: World, version: int):
    table = create_table(space, f"kept{version}", version)
    space.sql(f"DELETE FROM {table} WHERE id % 3 = 0")
    before = rows(space, table)
    ids = dict(space.sql(f"SELECT id, _row_id FROM {table}")) if version == 3 else {}
    done = run(space, f"{SPACE}.kept{version}")
    close_to_plan(done)
    assert (done.tables[0].replaced.files, done.tables[0].groups) == (6, 1)
    assert len(files(space, table)) == 1
    assert rows(space, table) == before
    if version == 3:
        assert dict(space.sql(f"SELECT id, _row_id FROM {table}")) == ids
    assert space.sql(f"SELECT count(*) FROM {table}.delete_files") == [(0,)]
    # A second run has nothing to do, and finds what the first one spent.
    assert run(space, f"{SPACE}.kept{version}").tables == ()
    with space.context("us") as context:
        options = settings(match=[f"{SPACE}.kept{version}"], egress_per_day=5.0)
        money = plan_maintenance(context, options, now=later()).money[0]
    prices = space.sql(f"SELECT summary['{PRICE_PROPERTY}'] FROM {table}.snapshots")
    assert money.spent == pytest.approx(sum(float(price) for (price,) in prices if price))
    # A table of version 2 has its files of deletes tidied as well.
    price = done.tables[0].written.price
    assert money.spent > price if version == 2 else money.spent == pytest.approx(price)


def test_a_partition_field_that_went_with_its_column_holds_up_no_other_file(space: World):
    table = create_table(space, "dropped", files=5, more="PARTITIONED BY (part)")
    for number in range(5):
        add(space, table, 10_000 + number * ROWS, ROWS, part=1)
    space.sql(f"ALTER TABLE {table} DROP PARTITION FIELD part")
    space.sql(f"ALTER TABLE {table} DROP COLUMN part")
    for number in range(5):
        space.sql(
            f"INSERT INTO {table} SELECT id, sha2(concat('n', id), 512) FROM range({20_000 + number}, 20900, 1, 1)"
        )
    before = rows(space, table)
    done = run(space, f"{SPACE}.dropped").tables[0]
    assert (done.failed, done.groups) == ("", 1)
    assert ["10 files of us stay as they are" in line and "part were dropped" in line for line in done.left] == [True]
    # What Iceberg can't write is no work: no price, and no Spark.
    again = run(space, f"{SPACE}.dropped")
    assert again.tables == ()
    assert (again.plan.tables[0].groups, again.plan.tables[0].left) == ((), done.left)
    assert rows(space, table) == before
    assert len(files(space, table)) == 11


def test_a_group_that_cannot_be_written_is_its_own(space: World, monkeypatch: pytest.MonkeyPatch):
    table = create_table(space, "one_bad", files=5, more="PARTITIONED BY (part)")
    for number in range(5):
        add(space, table, 10_000 + number * ROWS, ROWS, part=1)
    before, write = rows(space, table), TableRewrite.write

    def fails(self: TableRewrite, chosen: PlannedGroup, number: int) -> WrittenGroup:
        if any("part=0" in path for path in chosen.paths):
            raise EngineError("no room")
        return write(self, chosen, number)

    monkeypatch.setattr(TableRewrite, "write", fails)
    done = run(space, f"{SPACE}.one_bad").tables[0]
    assert (done.groups, done.failed) == (1, "part=0: EngineError: no room")
    assert rows(space, table) == before
    assert len(files(space, table)) == 6
    # Told once: it starts no Spark again until a file of it is another.
    again = run(space, f"{SPACE}.one_b*")  # a run that names the table tries it at once
    assert (again.tables, again.failed) == ((), (f"{SPACE}.one_bad",))
    assert "part=0, could not be written" in again.plan.tables[0].left[-1]
    add(space, table, 90_000, ROWS, part=0)
    before = rows(space, table)
    monkeypatch.undo()
    done = run(space, f"{SPACE}.one_bad").tables[0]
    assert (done.groups, done.failed, done.left) == (1, "", ())
    assert rows(space, table) == before
    assert len(files(space, table)) == 2


def test_a_partition_that_is_being_written_is_left_and_named(space: World):
    table = create_table(space, "parts", files=5, more="PARTITIONED BY (part)")
    for number in range(5):
        add(space, table, 10_000 + number * ROWS, ROWS, part=1)
    before = rows(space, table)
    space.sql(f"ALTER TABLE {table} ADD PARTITION FIELD bucket(2, id)")
    with space.context("us") as context:
        plan = plan_maintenance(context, settings(min_age="10m"), [f"{SPACE}.parts"])
        assert [group.when for group in plan.tables[0].groups] == ["quiet", "quiet"]
        assert plan.tables[0].left == ("part=0: written too recently", "part=1: written too recently")
        # What doesn't fit a day waits: one of the two does.
        price = plan_maintenance(context, settings(), [f"{SPACE}.parts"], now=later()).tables[0].groups[0].price
        options = settings(match=[f"{SPACE}.parts"], egress_per_day=price * 1.5, sort="zorder(id, v)")
    done = run(space, f"{SPACE}.parts", options=options)
    close_to_plan(done)
    assert done.tables[0].groups == 1
    assert "wait for another day" in done.tables[0].left[-1]
    assert len(files(space, table)) == 6
    assert rows(space, table) == before


def test_files_of_older_specs_stay_in_them(space: World):
    """Two specs of a table, deletes in both: rows, their ids and the specs stay."""
    table = create_table(space, "specs", 3, files=5, more="PARTITIONED BY (part)")
    space.sql(f"ALTER TABLE {table} REPLACE PARTITION FIELD part WITH bucket(2, id)")
    for number in range(5):
        add(space, table, 10_000 + number * ROWS, ROWS)
    space.sql(f"DELETE FROM {table} WHERE id % 50 = 3")
    before, ids = rows(space, table), dict(space.sql(f"SELECT id, _row_id FROM {table}"))
    done = run(space, f"{SPACE}.specs", options=settings(match=[f"{SPACE}.specs"]))
    close_to_plan(done)
    specs = space.sql(f"SELECT spec_id, count(*) FROM {table}.files WHERE content = 0 GROUP BY spec_id ORDER BY 1")
    assert [tuple(row) for row in specs] == [(0, 1), (1, 2)]
    assert done.tables[0].groups == 3
    assert rows(space, table) == before
    assert dict(space.sql(f"SELECT id, _row_id FROM {table}")) == ids
    space.sync_and_compare(f"{SPACE}.specs")


def test_files_from_before_their_columns_were_widened_keep_their_values(space: World):
    """Iceberg reads them vectorized: each encoding has code of its own for what is narrower than its column."""
    sorts = {"dictionary": "", "plain": "i, d DESC", "both": "zorder(i, f)"}
    for encoding in ENCODINGS:
        table, queries = f"main_us.{SPACE}.widened_{encoding}", []
        space.sql(f"CREATE TABLE {table} ({NARROW}) USING iceberg {properties(encoding)}")
        for first, kind in ((0, narrow_rows), (50_000, wide_rows)):
            for number, count in enumerate((6_000, 50, 50)):  # more than a batch of the reader's, and less
                queries.append(kind(first + number * 10_000, count))
                space.sql(f"INSERT INTO {table} {queries[-1]}")
            for statement in promotions(table) if kind is narrow_rows else ():
                space.sql(statement)
        assert space.sql(differing(table, *queries)) == []
        options = settings(match=[f"{SPACE}.widened_{encoding}"], sort=sorts[encoding])
        done = run(space, f"{SPACE}.widened_{encoding}", options=options)
        assert (done.tables[0].failed, done.tables[0].replaced.files) == ("", 6)
        assert space.sql(differing(table, *queries)) == []


def test_each_region_rewrites_its_own_files_where_they_lie(space: World):
    table = create_table(space, "both", 3)
    for number in range(5):
        space.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.data.path'='s3://eu-lake/homes/both')")
        add(space, table, 50_000 + number * ROWS, ROWS)
    space.sql(f"ALTER TABLE {table} UNSET TBLPROPERTIES ('write.data.path')")
    space.sql(f"DELETE FROM {table} WHERE id % 100 = 7")
    before, ids = rows(space, table), dict(space.sql(f"SELECT id, _row_id FROM {table}"))
    us = {path for path in files(space, table) if path.startswith("s3://us-lake/")}
    close_to_plan(run(space, f"{SPACE}.both", region="eu"))
    now = files(space, table)
    assert {path for path in now if path.startswith("s3://us-lake/")} == us
    assert [path.rpartition("/")[0] for path in now if path not in us] == ["s3://eu-lake/homes/both"]
    close_to_plan(run(space, f"{SPACE}.both", region="us"))
    assert sorted(path.split("/")[2] for path in files(space, table)) == ["eu-lake", "us-lake"]
    assert rows(space, table) == before
    assert dict(space.sql(f"SELECT id, _row_id FROM {table}")) == ids
    space.sync_and_compare(f"{SPACE}.both")


@pytest.mark.parametrize("version", [2, pytest.param(3, marks=pytest.mark.rare)])
def test_beside_writers_no_append_fails_and_no_row_is_lost(space: World, version: int):
    table = create_table(space, f"beside{version}", version, files=8)
    session = space.spark.newSession()
    concurrent = replace(space, spark=session)
    add_catalog(
        session, "main_us", space.stage.nessie.uri, "main", space.stage.warehouse("us"), space.stage.combined_endpoint
    )
    stop, failed, count = threading.Event(), [], [0]

    def retry_sql(text: str) -> None:
        """Whoever deletes or changes rows of the very files that are being rewritten may have to try again."""
        try:
            concurrent.sql(text)
        except Exception as error:
            if "ValidationException" not in str(error):
                raise
            retry_sql(text)

    def merge(number: int) -> None:
        both = (
            f"SELECT {number * 7 + 1} AS id, 0 AS part, 'merged' AS v UNION ALL SELECT {200_000 + number}, 0, 'merged'"
        )
        matched = "WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
        retry_sql(f"MERGE INTO {table} t USING ({both}) s ON t.id = s.id {matched}")

    def writer() -> None:
        while not stop.is_set():
            try:
                add(concurrent, table, 100_000 + count[0], 1)
                retry_sql(f"DELETE FROM {table} WHERE id = {count[0] * 7}")
                merge(count[0])
                count[0] += 1
            except Exception as error:  # noqa: BLE001 - told below
                failed.append(str(error)[:500])
                return

    thread = threading.Thread(target=writer)
    thread.start()
    try:
        done = [run(space, f"{SPACE}.beside{version}") for _ in range(3)]
    finally:
        stop.set()
        thread.join()
    assert not failed, failed
    assert not [table.failed for compaction in done for table in compaction.tables if table.failed]
    counts = Counter(row[0] for row in space.sql(f"SELECT id FROM {table}"))
    gone = {number * 7 for number in range(count[0])}
    merged = {200_000 + number for number in range(count[0])}
    wanted = {*range(8 * ROWS), *range(100_000, 100_000 + count[0]), *merged} - gone
    assert counts == Counter(wanted)
    # When the writer rests, what was left to do is done: fewer than five files of a partition aren't worth a rewrite.
    run(space, f"{SPACE}.beside{version}")
    assert len(files(space, table)) < 5
    assert Counter(row[0] for row in space.sql(f"SELECT id FROM {table}")) == Counter(wanted)
    merged |= {number * 7 + 1 for number in range(count[0])}
    assert {row[0] for row in space.sql(f"SELECT id FROM {table} WHERE v = 'merged'")} == merged


def test_a_delete_between_look_and_commit_wins_and_a_kill_loses_nothing(space: World, monkeypatch: pytest.MonkeyPatch):
    table = create_table(space, "raced", files=5)
    replace_files = TableRewrite.replace_files
    turns: list[str] = ["delete", "kill"]

    def disturbed(self: TableRewrite, groups: Any, marks: Any) -> None:
        if turns and turns[0] == "delete":
            turns.pop(0)
            space.sql(f"DELETE FROM {table} WHERE id = 5")
        elif turns:
            turns.pop(0)
            raise KeyboardInterrupt
        replace_files(self, groups, marks)

    monkeypatch.setattr(TableRewrite, "replace_files", disturbed)
    with pytest.raises(KeyboardInterrupt):
        run(space, f"{SPACE}.raced")
    assert len(files(space, table)) == 5
    done = run(space, f"{SPACE}.raced").tables[0]
    assert (done.groups, done.failed) == (1, "")
    counts = Counter(row[0] for row in space.sql(f"SELECT id FROM {table}"))
    assert counts == Counter(set(range(5 * ROWS)) - {5})
    summary = dict(space.sql(f"SELECT operation, summary FROM {table}.snapshots ORDER BY committed_at"))["replace"]
    assert json.loads(json.dumps(summary))["sterna.upkeep-region"] == "us"
