"""Upkeep raced with each kind of commit: the table has the rows that plain Python computes from its history.

Compaction brought a deleted row back where an equality delete came between its look and its commit, and an append
after that (apache/iceberg#10312): the new file had an older number than the delete, and Iceberg drops deletes that are
older than each of the data files that stay. What else falls under it: deletes that came before (they were applied, and
may go), upserts, deletes of other partitions and of the whole table, two commits in one race, a table without another
data file, position deletes and vectors, commits that replace or drop the files themselves, those that change schema or
partitions; and each other thing that upkeep commits: rewritten manifests and position deletes, and metadata without
expired snapshots. A sweep commits nothing; the simulation races it.

The oracle is no reader: each commit says in Python what it makes of the rows. They are read by Spark, and by engines
that nobody here wrote.
"""

from __future__ import annotations

import hashlib
import io
from collections import Counter
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, suppress
from typing import Any

import pyarrow.parquet as pq
import pytest

from sterna.catalog.model import parse_key
from sterna.maintenance.tables.expire import SparkSnapshotRemover
from sterna.maintenance.tables.model import APP_ID
from sterna.pipelines.publish.main_access import main_catalog
from sterna.spark.main_catalog import CommitConflict, MainTables, TableChanged
from sterna.spark.rewrite_data_files import TableRewrite
from tests.integration.maintenance.test_compaction import ROWS, SPACE, create_table, run, space
from tests.support.foreign_readers import READERS
from tests.support.iceberg_java import commit_rows, data_file, equality_deletes, load_table, position_deletes
from tests.support.often import often
from tests.support.strangers import ReadersStore, readers_store
from tests.support.world import World

__all__ = ["space"]

Rows = list[dict[str, Any]]
Commit = Callable[[World, str, Rows], Rows]
"""A commit to a table while upkeep is at it; returns what it makes of the rows."""
_FILES = 6


def _append(world: World, table: str, rows: Rows) -> Rows:
    row = dict.fromkeys(rows[0]) | {"id": 100_000}
    world.sql(f"INSERT INTO {table} (id) VALUES (100000)")
    return [*rows, row]


def _equality(world: World, table: str, rows: Rows) -> Rows:
    """Row 5 is deleted by its value, as Flink does."""
    loaded = load_table(world.spark, table)
    commit_rows(loaded, deletes=[equality_deletes(world.spark, loaded, ["id"], [{"id": 5}])])
    world.sql(f"REFRESH TABLE {table}")
    return [row for row in rows if row["id"] != 5]


def _upserts(world: World, table: str, rows: Rows) -> Rows:
    """Row 5 is deleted by its value, and written anew, in one commit; then the next row so."""
    for number in (5, 6):
        loaded, row = load_table(world.spark, table), {"id": number, "v": "upserted"}
        deletes = equality_deletes(world.spark, loaded, ["id"], [{"id": number}])
        commit_rows(loaded, data=[data_file(world.spark, loaded, [row])], deletes=[deletes])
        rows = [*(existing for existing in rows if existing["id"] != number), row]
    world.sql(f"REFRESH TABLE {table}")
    return rows


def _positions(world: World, table: str, rows: Rows) -> Rows:
    """Two rows of a file go by their places; which they are, its own bytes say."""
    loaded = load_table(world.spark, table)
    (path,) = world.sql(f"SELECT min(file_path) FROM {table}.files WHERE content = 0 AND record_count = {ROWS}")[0]
    ids = pq.read_table(io.BytesIO(_bytes(world, path)), columns=["id"])["id"].to_pylist()
    commit_rows(loaded, deletes=[position_deletes(world.spark, loaded, [(path, 3), (path, 4)])])
    world.sql(f"REFRESH TABLE {table}")
    gone = set(ids[3:5])
    return [row for row in rows if row["id"] not in gone]


def _sql(*statements: str, makes: Callable[[Rows], Rows]) -> Commit:
    def commit(world: World, table: str, rows: Rows) -> Rows:
        for statement in statements:
            world.sql(statement.format(t=table))
        return makes(rows)

    return commit


def _both(*commits: Commit) -> Commit:
    def commit(world: World, table: str, rows: Rows) -> Rows:
        for apply in commits:
            rows = apply(world, table, rows)
        return rows

    return commit


def _drop_column(world: World, table: str, rows: Rows) -> Rows:
    """The last column goes, and a row."""
    name = list(rows[0])[-1]
    world.sql(f"ALTER TABLE {table} DROP COLUMN {name}")
    world.sql(f"DELETE FROM {table} WHERE id = 5")
    return [{key: row[key] for key in row if key != name} for row in rows if row["id"] != 5]


def _without(first: int, last: int) -> Callable[[Rows], Rows]:
    return lambda rows: [row for row in rows if not first <= row["id"] < last]


_DELETE = _sql("DELETE FROM {t} WHERE id = 5", makes=_without(5, 6))
_WHOLE_FILES = (f"DELETE FROM {{t}} WHERE id < {ROWS}", f"DELETE FROM {{t}} WHERE id < {2 * ROWS}")
COMMITS: dict[str, tuple[tuple[int, ...], Commit]] = {
    "append": ((2, 3), _append),
    "equality delete": ((2, 3), _equality),
    "equality delete, append": ((2, 3), _both(_equality, _append)),
    "equality delete, append, of v3": ((3,), _both(_equality, _append)),
    "append, equality delete": ((2, 3), _both(_append, _equality)),
    "upserts": ((2, 3), _upserts),
    "upserts of v3": ((3,), _upserts),
    "position delete": ((2,), _positions),
    "position delete, append": ((2,), _both(_positions, _append)),
    "vector": ((3,), _DELETE),
    "vector, append": ((3,), _both(_DELETE, _append)),
    "update": (
        (2, 3),
        _sql(
            "UPDATE {t} SET v = 'updated' WHERE id = 7",
            makes=lambda rows: [row | ({"v": "updated"} if row["id"] == 7 else {}) for row in rows],
        ),
    ),
    "rows of files": ((2, 3), _sql(*_WHOLE_FILES, makes=_without(0, 2 * ROWS))),
    "overwrite": (
        (2, 3),
        _sql(
            f"INSERT OVERWRITE {{t}} SELECT id, 'over' FROM {{t}} WHERE id < {3 * ROWS}",
            makes=lambda rows: [{"id": row["id"], "v": "over"} for row in rows if row["id"] < 3 * ROWS],
        ),
    ),
    "truncate, append": (
        (2, 3),
        _sql(
            "TRUNCATE TABLE {t}",
            "INSERT INTO {t} VALUES (5, 'a'), (8, 'b')",
            makes=lambda rows: [{"id": 5, "v": "a"}, {"id": 8, "v": "b"}],
        ),
    ),
    "column renamed": (
        (2, 3),
        _sql(
            "ALTER TABLE {t} RENAME COLUMN v TO w",
            "DELETE FROM {t} WHERE id = 6",
            makes=lambda rows: [{"id": row["id"], "w": row["v"]} for row in rows if row["id"] != 6],
        ),
    ),
    "column added": (
        (2, 3),
        _sql(
            "ALTER TABLE {t} ADD COLUMN x INT",
            "INSERT INTO {t} (id, x) VALUES (5, 3)",
            makes=lambda rows: [*(row | {"x": None} for row in rows), dict.fromkeys(rows[0]) | {"id": 5, "x": 3}],
        ),
    ),
    "column dropped": ((2, 3), _drop_column),
    "partitions": ((2, 3), _both(_sql("ALTER TABLE {t} ADD PARTITION FIELD bucket(2, id)", makes=list), _append)),
}
"""Each kind of commit, with the format versions in which there is one."""
_DECISIVE = (
    "equality delete, append",
    "equality delete, append, of v3",
    "upserts",
    "position delete, append",
    "vector, append",
    "overwrite",
    "column dropped",
    "partitions",
)
"""What every run has: the other kinds race with `--long`."""
_EXPIRED = ("upserts", "vector, append", "column dropped")
"""Expiry writes no file: its commit is one compare-and-set, of whatever kind what came meanwhile is."""


def _table(world: World, name: str, version: int) -> tuple[str, Rows]:
    """A table, and its rows: what `made` writes, computed without Spark."""
    table = create_table(world, name, version, _FILES)
    world.sql(f"ALTER TABLE {table} DROP COLUMN part")  # its values are of a type that Iceberg's Java rows lack here
    noise = lambda id: "".join(hashlib.sha512(f"{part}-{id}".encode()).hexdigest() for part in range(4))  # noqa: E731
    return table, [{"id": id, "v": noise(id)} for id in range(_FILES * ROWS)]


def _bytes(world: World, uri: str) -> bytes:
    folder = world.stage.endpoints["us"].folder
    assert folder is not None
    return (folder / uri.removeprefix("s3://")).read_bytes()


def counted(rows: Rows) -> Counter[Any]:
    return Counter(tuple(row.values()) for row in rows)


def read(world: World, table: str) -> Counter[Any]:
    return Counter(world.sql(f"SELECT * FROM {table}"))


@pytest.fixture(scope="module")
def readers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReadersStore]:
    with readers_store(tmp_path_factory.mktemp("readers")) as store:
        yield store


def read_elsewhere(world: World, table: str, store: ReadersStore) -> dict[str, Counter[Any]]:
    """What other engines read of a table on `main`; whoever refuses it is left out."""
    name = table.removeprefix("main_us.")
    location = world.content(parse_key(name)).metadata_location
    folder = world.stage.endpoints["us"].folder
    assert folder is not None and location is not None
    store.fill("us-lake", folder / "us-lake", location.removeprefix("s3://us-lake/").split("/metadata/")[0])
    counts = {}
    for engine, reader in READERS.items():
        with suppress(Exception):
            counts[engine] = counted(reader(location, store.properties).to_pylist())
    store.remove("us-lake")
    return counts


@pytest.mark.parametrize("kind", often(COMMITS, _DECISIVE))
def test_rows_after_a_race_are_those_of_the_history(
    space: World, monkeypatch: pytest.MonkeyPatch, readers: ReadersStore, kind: str
):
    """Somebody commits between look and commit: in the first look alone."""
    (version, *_), commit = COMMITS[kind]
    table, rows = _table(space, f"raced_{list(COMMITS).index(kind)}", version)
    wanted: list[Counter[Any]] = []
    replace_files = TableRewrite.replace_files

    def disturbed(self: TableRewrite, groups: Any, marks: Any) -> None:
        if not wanted:
            wanted.append(counted(commit(space, table, rows)))
            assert read(space, table) == wanted[0], "Spark reads another history"
        replace_files(self, groups, marks)

    monkeypatch.setattr(TableRewrite, "replace_files", disturbed)
    done = run(space, table.removeprefix("main_us.")).tables[0]
    assert wanted, "nobody committed in between"
    assert not done.failed, done.failed
    assert read(space, table) == wanted[0]
    elsewhere = read_elsewhere(space, table, readers)
    assert elsewhere == dict.fromkeys(elsewhere, wanted[0])
    assert elsewhere, "no other engine reads it"
    run(space, table.removeprefix("main_us."))
    assert read(space, table) == wanted[0]


class Between(tuple[int, ...]):
    """Snapshots' ids; who asks for them has loaded the table, and has not committed yet."""

    def then(self, work: Callable[[], None]) -> Between:
        self.work = work
        return self

    def __iter__(self) -> Iterator[int]:
        self.work()
        return super().__iter__()


@pytest.mark.parametrize(
    ("action", "version", "kinds"),
    [
        pytest.param("rewrite_deletes", 2, _DECISIVE, id="rewrite_deletes-2-decisive"),
        pytest.param("rewrite_manifests", 2, _DECISIVE, id="rewrite_manifests-2-decisive"),
        pytest.param("expire", 3, _EXPIRED, id="expire-3-decisive"),
        pytest.param("rewrite_deletes", 2, COMMITS, id="rewrite_deletes-2", marks=pytest.mark.rare),
        *(
            pytest.param(action, version, COMMITS, id=f"{action}-{version}", marks=pytest.mark.rare)
            for action in ("rewrite_manifests", "expire")
            for version in (2, 3)
        ),
    ],
)
def test_what_else_upkeep_commits_is_raced_with_each_kind(
    space: World,
    monkeypatch: pytest.MonkeyPatch,
    readers: ReadersStore,
    action: str,
    version: int,
    kinds: Collection[str],
):
    """Each kind of commit to one table, between what an action reads and what it commits. Position deletes of format
    v3 are vectors, which upkeep doesn't rewrite."""
    table, rows = _table(space, f"{action}{version}_{len(kinds)}", version)
    rows = _sql("DELETE FROM {t} WHERE id % 100 = 17", makes=lambda rows: [r for r in rows if r["id"] % 100 != 17])(
        space, table, rows
    )
    disturbing: list[Commit] = []
    call = MainTables.call

    def commit() -> None:
        nonlocal rows
        if disturbing:
            rows = disturbing.pop()(space, table, rows)

    def disturbed(self: MainTables, function: Any, *more: str) -> Any:
        if getattr(function, "name", "") == "execute":
            commit()
        return call(self, function, *more)

    monkeypatch.setattr(MainTables, "call", disturbed)
    name = table.removeprefix("main_us.")
    with space.context("us") as context, closing(MainTables("local[2]", main_catalog(context, None, APP_ID))) as tables:
        remove = SparkSnapshotRemover(context)

        def at() -> str:
            return space.content(parse_key(name)).metadata_location or ""

        def act() -> None:
            if action != "expire":
                with suppress(TableChanged, CommitConflict):
                    getattr(TableRewrite(tables, parse_key(name), ""), action)({})
                return
            oldest = space.snapshots(table)[:1]
            assert not remove(name, at(), Between(oldest).then(commit)), "committed over what came meanwhile"
            assert remove(name, at(), oldest)

        for kind in (kind for kind in kinds if version in COMMITS[kind][0]):
            disturbing.append(COMMITS[kind][1])
            act()
            assert not disturbing, "nobody committed in between"
            assert read(space, table) == counted(rows), kind
    elsewhere = read_elsewhere(space, table, readers)
    assert elsewhere == dict.fromkeys(elsewhere, counted(rows))
    space.sync_and_compare(name)


def test_who_loses_each_race_says_so_and_changes_no_row(space: World, monkeypatch: pytest.MonkeyPatch):
    table, rows = _table(space, "lost", 2)
    replace_files = TableRewrite.replace_files

    def disturbed(self: TableRewrite, groups: Any, marks: Any) -> None:
        COMMITS["equality delete, append"][1](space, table, rows)
        replace_files(self, groups, marks)

    monkeypatch.setattr(TableRewrite, "replace_files", disturbed)
    done = run(space, f"{SPACE}.lost").tables[0]
    assert done.conflicts >= 3
    assert done.groups == 0
    assert 5 not in {row[0] for row in space.sql(f"SELECT id FROM {table}")}


def test_deletes_that_were_applied_go_with_the_files_that_they_were_of(space: World):
    """Deletes from before the look: the new files lack those rows, whatever becomes of the deletes."""
    table, rows = _table(space, "applied", 2)
    wanted = counted(_both(_equality, _append, _upserts)(space, table, rows))
    done = run(space, f"{SPACE}.applied").tables[0]
    assert (done.failed, done.conflicts) == ("", 0)
    assert read(space, table) == wanted
    space.sync_and_compare(f"{SPACE}.applied")
