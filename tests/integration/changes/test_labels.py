"""A snapshot's label says what its writer meant: `changes` goes by the rows.

`replace` was believed without a look: what a compaction under that label brought back (apache/iceberg#10312), or lost,
was no change to anybody, and flows, features and reads between snapshots went on with other rows than the table's.
What else falls under it: delete files dropped under the label, rows lost under it, several such in a row, an honest
one behind a faulty one, honest ones over each kind of delete (whose rows can't be counted, or are counted too often),
and rewrites of manifests and of delete files. The oracle is plain SQL: both snapshots, read as a whole and subtracted.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sterna.pipelines.changes.between import plan_changes
from sterna.spark.changelog_scan import load_named
from tests.integration.changes.test_changes import CATALOG, here, make, snapshots
from tests.support.iceberg_java import commit_rows, data_file, equality_deletes, items, load_table, position_deletes
from tests.support.often import often
from tests.support.row_changes import counted, net
from tests.support.world import merge_on_read

__all__ = ["here"]

COLUMNS = "(id BIGINT, v STRING)"
ROWS = 6


class History:
    """A table, and what is done to it beside Spark.

    Args:
        spark: the session.
        name: the table's.
        version: its format version.
    """

    def __init__(self, spark: SparkSession, name: str, version: int) -> None:
        self.spark = spark
        insert = f"INSERT INTO {{t}} SELECT id, concat('v', id) FROM range(0, {ROWS}, 1, 1)"
        self.table = make(spark, name, f"{COLUMNS} USING iceberg {merge_on_read(version)}", [insert])

    def sql(self, text: str) -> None:
        self.spark.sql(text.format(t=self.table, c=CATALOG, n=self.table.partition(".")[2])).collect()

    def equality_delete(self, *ids: int) -> None:
        loaded = load_table(self.spark, self.table)
        rows = [{"id": id} for id in ids]
        commit_rows(loaded, deletes=[equality_deletes(self.spark, loaded, ["id"], rows)])

    def position_delete(self, *positions: int) -> None:
        loaded = load_table(self.spark, self.table)
        (path,) = {str(task.file().location()) for task in items(loaded.newScan().planFiles())}
        commit_rows(loaded, deletes=[position_deletes(self.spark, loaded, [(path, at) for at in positions])])

    def append(self) -> None:
        self.sql("INSERT INTO {t} VALUES (100, 'appended')")

    def replace(self, *kept: int, sequence: bool = False, deletes: bool = False) -> None:
        """Replace the first file by one of some rows, under the label of a compaction.

        Args:
            kept: the rows' ids.
            sequence: the new file gets the old one's number, as Iceberg's compaction does it.
            deletes: the delete files go, too.
        """
        loaded = load_table(self.spark, self.table)
        tasks = list(items(loaded.newScan().planFiles()))
        task = min(tasks, key=lambda scan_task: int(scan_task.file().dataSequenceNumber()))
        data = data_file(self.spark, loaded, [{"id": id, "v": f"v{id}"} for id in kept])
        rewrite = loaded.newRewrite().validateFromSnapshot(loaded.currentSnapshot().snapshotId())
        rewrite = rewrite.deleteFile(task.file()).addFile(data)
        if sequence:
            rewrite = rewrite.dataSequenceNumber(task.file().dataSequenceNumber())
        if deletes:
            for delete in task.deletes():
                rewrite = rewrite.deleteFile(delete)
        rewrite.commit()

    def forget_deletes(self) -> None:
        """Drop all delete files under the label of a compaction."""
        loaded = load_table(self.spark, self.table)
        rewrite = loaded.newRewrite()
        for task in items(loaded.newScan().planFiles()):
            for delete in task.deletes():
                rewrite = rewrite.deleteFile(delete)
        rewrite.commit()

    def compact(self) -> None:
        self.sql("CALL {c}.system.rewrite_data_files(table => '{n}', options => map('rewrite-all', 'true'))")


def _lost_equality(history: History) -> None:
    """Compaction read before the delete, and Iceberg drops a delete that is older than each data file (#10312)."""
    history.equality_delete(3)
    history.append()
    history.replace(*range(ROWS), sequence=True, deletes=True)


FAULTY: dict[str, Callable[[History], object]] = {
    "an equality delete forgotten": _lost_equality,
    "all deletes dropped": lambda history: (history.sql("DELETE FROM {t} WHERE id = 2"), history.forget_deletes()),
    "equality deletes dropped": lambda history: (history.equality_delete(1, 2), history.forget_deletes()),
    "rows lost": lambda history: history.replace(0, 1, 2),
    "a row lost for one that is back": lambda history: (history.equality_delete(3), history.replace(0, 1, 2, 3, 4)),
    "an honest one behind a faulty one": lambda history: (history.replace(0, 1, 2), history.compact()),
    "a faulty one behind an honest one": lambda history: (history.compact(), history.replace(0, 1)),
}
HONEST: dict[str, Callable[[History], object]] = {
    "no deletes": lambda history: history.append(),
    "position deletes": lambda history: history.sql("DELETE FROM {t} WHERE id IN (1, 2)"),
    "a position deleted twice": lambda history: (history.position_delete(1, 2), history.position_delete(2, 3)),
    "equality deletes": lambda history: (history.equality_delete(1), history.append(), history.equality_delete(77)),
    "both": lambda history: (history.position_delete(1), history.equality_delete(1, 2)),
}


def _expected_net(spark: SparkSession, table: str, start: int, end: int) -> tuple[Any, Any]:
    """What plain SQL says: the rows of each snapshot that the other one has not."""
    sides = [spark.sql(f"SELECT * FROM {table} VERSION AS OF {snapshot}") for snapshot in (start, end)]
    return counted(sides[0].exceptAll(sides[1]).collect()), counted(sides[1].exceptAll(sides[0]).collect())


def _assert_net_is_exact(spark: SparkSession, table: str) -> None:
    kept = snapshots(spark, table)
    for start, end in (*pairwise(kept), (kept[0], kept[-1])):
        assert net(spark, table, start, end) == _expected_net(spark, table, start, end), (start, end)


@pytest.mark.parametrize("kind", often(FAULTY, ["an equality delete forgotten", "all deletes dropped", "rows lost"]))
def test_rows_that_a_faulty_compaction_changed_are_told(here: SparkSession, kind: str) -> None:
    history = History(here, f"faulty_{list(FAULTY).index(kind)}", 2)
    FAULTY[kind](history)
    _assert_net_is_exact(here, history.table)
    kept = snapshots(here, history.table)
    operations = [load_table(here, history.table).snapshot(snapshot).operation() for snapshot in kept]
    assert "replace" in operations
    changed = [any(_expected_net(here, history.table, start, end)) for start, end in pairwise(kept)]
    assert any(there for there, operation in zip(changed, operations[1:], strict=True) if operation == "replace")


@pytest.mark.parametrize(
    ("kind", "version"),
    often(
        [(kind, version) for kind in HONEST for version in (2, 3)],
        [("position deletes", 3), ("equality deletes", 2), ("both", 2)],
    ),
)
def test_an_honest_compaction_changes_nothing_over_each_kind_of_delete(
    here: SparkSession, kind: str, version: int
) -> None:
    if version == 3 and kind in ("a position deleted twice", "both"):
        pytest.skip("tables of format 3 take vectors alone, which Spark writes")
    history = History(here, f"honest_{list(HONEST).index(kind)}_{version}", version)
    HONEST[kind](history)
    history.compact()
    history.sql("CALL {c}.system.rewrite_manifests(table => '{n}')")
    _assert_net_is_exact(here, history.table)


def test_files_whose_rows_can_be_counted_are_not_read(here: SparkSession) -> None:
    for version in (2, 3):
        history = History(here, f"counted_{version}", version)
        history.sql("DELETE FROM {t} WHERE id IN (1, 2)")
        before = snapshots(here, history.table)[-1]
        history.compact()
        loaded = load_named(here, history.table)
        assert plan_changes(here, loaded, history.table, before, snapshots(here, history.table)[-1]).files == (0, 0)
