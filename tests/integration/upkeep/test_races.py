"""Compaction raced with each kind of commit: what `main` answers right before it, it answers right after it.

Compaction brought a deleted row back where an equality delete came between its look and its commit, and an append
after that (apache/iceberg#10312): the new file had an older number than the delete, and Iceberg drops deletes that are
older than each of the data files that stay. What else falls under it: deletes that came before (they were applied, and
may go), upserts, deletes of other partitions and of the whole table, two commits in one race, a table without another
data file, position deletes and vectors, commits that replace or drop the files themselves, those that change schema or
partitions, and rewrites of manifests and position deletes after a lost race.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing, suppress
from typing import Any

import pytest

from sterna.catalog.model import parse_key
from sterna.edges.spark.main_tables import LostRace, MainTables, Outdated
from sterna.edges.spark.rewriting import Rewriting
from sterna.upkeep.model import APP
from sterna.wap.main_catalog import main_catalog
from tests.integration.upkeep.test_compaction import ROWS, SPACE, made, rows, run, space
from tests.support.iceberg_java import commit_rows, data_file, equality_deletes, load_table, position_deletes
from tests.support.world import World

__all__ = ["space"]

Commit = Callable[[World, str], None]
"""A commit to a table while its files are being rewritten."""


def _append(world: World, table: str) -> None:
    world.sql(f"INSERT INTO {table} SELECT 100000L, 'appended'")


def _equality(world: World, table: str) -> None:
    """Row 5 is deleted by its value, as Flink does."""
    loaded = load_table(world.spark, table)
    commit_rows(loaded, deletes=[equality_deletes(world.spark, loaded, ["id"], [{"id": 5}])])
    world.sql(f"REFRESH TABLE {table}")


def _equality_then_append(world: World, table: str) -> None:
    _equality(world, table)
    _append(world, table)


def _upsert(world: World, table: str) -> None:
    """Row 5 is deleted by its value, and written anew, in one commit; then the next row so."""
    for number in (5, 6):
        loaded = load_table(world.spark, table)
        row = data_file(world.spark, loaded, [{"id": number, "v": "upserted"}])
        commit_rows(loaded, data=[row], deletes=[equality_deletes(world.spark, loaded, ["id"], [{"id": number}])])
    world.sql(f"REFRESH TABLE {table}")


def _positions(world: World, table: str) -> None:
    loaded = load_table(world.spark, table)
    (path,) = world.sql(f"SELECT min(file_path) FROM {table}.files WHERE content = 0")[0]
    commit_rows(loaded, deletes=[position_deletes(world.spark, loaded, [(path, 3), (path, 4)])])
    world.sql(f"REFRESH TABLE {table}")


def _sql(*statements: str) -> Commit:
    def commit(world: World, table: str) -> None:
        for statement in statements:
            world.sql(statement.format(t=table))

    return commit


COMMITS: dict[str, tuple[int, Commit]] = {
    "append": (2, _append),
    "equality delete": (2, _equality),
    "equality delete, append": (2, _equality_then_append),
    "equality delete, append, of v3": (3, _equality_then_append),
    "append, equality delete": (2, lambda world, table: (_append(world, table), _equality(world, table))[0]),
    "upserts": (2, _upsert),
    "upserts of v3": (3, _upsert),
    "position delete": (2, _positions),
    "position delete, append": (2, lambda world, table: (_positions(world, table), _append(world, table))[0]),
    "vector": (3, _sql("DELETE FROM {t} WHERE id = 5")),
    "vector, append": (3, _sql("DELETE FROM {t} WHERE id = 5", "INSERT INTO {t} SELECT 100000L, NULL")),
    "update": (2, _sql("UPDATE {t} SET v = 'updated' WHERE id = 7")),
    "overwrite": (2, _sql("INSERT OVERWRITE {t} SELECT id, 'over' FROM {t} WHERE id < 10")),
    "rows of files": (2, _sql(f"DELETE FROM {{t}} WHERE id < {ROWS}", f"DELETE FROM {{t}} WHERE id < {2 * ROWS}")),
    "truncate, append": (2, _sql("TRUNCATE TABLE {t}", "INSERT INTO {t} SELECT 1L, 'a'")),
    "column added": (2, _sql("ALTER TABLE {t} ADD COLUMN w INT", "INSERT INTO {t} SELECT 100000L, 'a', 3")),
    "column dropped": (2, _sql("ALTER TABLE {t} DROP COLUMN v", "DELETE FROM {t} WHERE id = 5")),
    "column renamed": (2, _sql("ALTER TABLE {t} RENAME COLUMN v TO w", "DELETE FROM {t} WHERE id = 5")),
    "partitions": (2, _sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)", "INSERT INTO {t} SELECT 100000L, 'a'")),
}


def _table(world: World, name: str, version: int) -> str:
    table = made(world, name, version)
    world.sql(f"ALTER TABLE {table} DROP COLUMN part")  # its values are of a type that Iceberg's Java rows lack here
    return table


@pytest.mark.parametrize("kind", COMMITS)
def test_rows_after_a_race_are_those_before_the_commit(space: World, monkeypatch: pytest.MonkeyPatch, kind: str):
    """Somebody commits between look and commit: in the first look alone, and then in each."""
    version, commit = COMMITS[kind]
    table = _table(space, f"raced_{list(COMMITS).index(kind)}", version)
    before: list[Any] = []
    replace_files = Rewriting.replace_files

    def disturbed(self: Rewriting, groups: Any, marks: Any) -> None:
        if not before:
            commit(space, table)
            before.append(rows(space, table))
        replace_files(self, groups, marks)

    monkeypatch.setattr(Rewriting, "replace_files", disturbed)
    done = run(space, table.removeprefix("main_us.")).tables[0]
    assert before, "nobody committed in between"
    assert not done.failed, done.failed
    assert rows(space, table) == before[0]
    run(space, table.removeprefix("main_us."))
    assert rows(space, table) == before[0]


@pytest.mark.parametrize("action", ["rewrite_deletes", "rewrite_manifests"])
def test_files_of_deletes_and_manifests_are_rewritten_beside_commits(
    space: World, monkeypatch: pytest.MonkeyPatch, action: str
):
    """Each kind of commit to one table, between what Iceberg's action reads and what it commits."""
    table = _table(space, action, 2)
    space.sql(f"DELETE FROM {table} WHERE id % 100 = 17")
    disturbing: list[Commit] = []
    before: list[Any] = []
    call = MainTables.call

    def disturbed(self: MainTables, function: Any) -> Any:
        if getattr(function, "name", "") == "execute" and disturbing:
            disturbing.pop()(space, table)
            before.append(rows(space, table))
        return call(self, function)

    monkeypatch.setattr(MainTables, "call", disturbed)
    kinds = [name for name, (version, _) in COMMITS.items() if version == 2 and "column" not in name]
    with space.context("us") as context, closing(MainTables("local[2]", main_catalog(context, None, APP))) as tables:
        for kind in kinds:
            disturbing.append(COMMITS[kind][1])
            with suppress(Outdated, LostRace):
                getattr(Rewriting(tables, parse_key(table.removeprefix("main_us.")), ""), action)({})
            assert not disturbing, "nobody committed in between"
            assert rows(space, table) == before[-1], kind
    space.sync_and_compare(table.removeprefix("main_us."))


def test_who_loses_each_race_says_so_and_changes_no_row(space: World, monkeypatch: pytest.MonkeyPatch):
    table = _table(space, "lost", 2)
    replace_files = Rewriting.replace_files

    def disturbed(self: Rewriting, groups: Any, marks: Any) -> None:
        _equality_then_append(space, table)
        replace_files(self, groups, marks)

    monkeypatch.setattr(Rewriting, "replace_files", disturbed)
    done = run(space, f"{SPACE}.lost").tables[0]
    assert done.conflicts >= 3
    assert done.groups == 0
    assert 5 not in {row[0] for row in space.sql(f"SELECT id FROM {table}")}


def test_deletes_that_were_applied_go_with_the_files_that_they_were_of(space: World):
    """Deletes from before the look: the new files lack those rows, whatever becomes of the deletes."""
    table = _table(space, "applied", 2)
    _equality_then_append(space, table)
    _upsert(space, table)
    before = rows(space, table)
    done = run(space, f"{SPACE}.applied").tables[0]
    assert (done.failed, done.conflicts) == ("", 0)
    assert rows(space, table) == before
    space.sync_and_compare(f"{SPACE}.applied")
