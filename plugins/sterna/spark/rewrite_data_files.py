"""Rewriting chosen files of one table by Iceberg's own code: the runners and the commits of `rewrite_data_files`.

Iceberg's procedure chooses the files itself, by a condition on columns. The region of a file is none, so here the files
are given: Iceberg's runner (bin-pack, sort, z-order) reads and writes them, and Iceberg's commit manager commits them,
with its checks against what others have deleted meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sterna.catalog.model import Key
from sterna.errors import UsageError
from sterna.spark.main_catalog import CommitConflict, Java, MainTables, TableChanged

_SPLIT_OVERHEAD_BYTES: Final = 5 << 20
_MAX_FILE_RATIO: Final = 1.4
"""Of the target: a file becomes no larger. Half of what Iceberg lets a file be beyond it (1.8)."""
_MAX_COMMIT_ATTEMPTS: Final = 5
KEEP_SEQUENCE_NUMBER: Final = False
"""Whether new files have the sequence number of the snapshot that was read. Iceberg then lets equality deletes of
meanwhile pass, and drops them where every other data file is newer: the deleted rows are back (apache/iceberg#10312).
"""
_ZORDER: Final = re.compile(r"(?i)\s*zorder\s*\(([^()]+)\)\s*")
_COLUMN: Final = re.compile(r"(?i)\s*([^\s,()]+)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*")


@dataclass(frozen=True)
class PlannedGroup:
    """Files of one partition that are to become fewer.

    Args:
        paths: their URIs.
        spec_id: their partition spec, which the new ones have, too.
        size: in bytes, all together.
        target_bytes: how large the new ones should be.
        expected_files: how many new ones are expected.
        target_prefix: the URI prefix below which the new ones are written; "" where the table writes anyway.
    """

    paths: frozenset[str]
    spec_id: int
    size: int
    target_bytes: int
    expected_files: int
    target_prefix: str


@dataclass(frozen=True)
class WrittenGroup:
    """The result of a group of files, which is invisible until it is committed.

    Args:
        group: Iceberg's own object.
        files: how many files were written.
    """

    planned: PlannedGroup
    group: Java
    files: int
    bytes: int


class TableRewrite:
    """One table at one snapshot, and the files of it that are rewritten.

    Args:
        tables: Spark's driver.
        sort: as the settings have it: columns, `zorder(a, b)`, or "".

    Attributes:
        table: Iceberg's own object.
        snapshot_id: the snapshot; None: the table has none.
        tasks: the scan tasks of the files that were loaded, by path.
    """

    def __init__(self, tables: MainTables, key: Key, sort: str) -> None:
        self.tables = tables
        self.table = tables.table(key)
        self._sort = sort
        snapshot = tables.call(self.table.currentSnapshot)
        self.snapshot_id: int | None = None if snapshot is None else snapshot.snapshotId()
        self.tasks: dict[str, Java] = {}

    def load_tasks(self, paths: Collection[str]) -> None:
        """Find files in the table's snapshot.

        Raises:
            TableChanged: one is there no longer.
        """
        self.tasks = self.tables.call(lambda: self.plan_tasks(paths))
        if len(self.tasks) < len(paths):
            raise TableChanged(f"{len(paths) - len(self.tasks)} of the files are no longer part of the table")

    def write(self, planned: PlannedGroup, index: int) -> WrittenGroup:
        """Write what a group of files becomes.

        Raises:
            EngineError: Spark failed.
        """
        return self.tables.call(lambda: self.write_group(planned, index))

    def replace_files(self, groups: Sequence[WrittenGroup], summary_properties: Mapping[str, str]) -> None:
        """Put groups in the place of what they were, in one commit of `main`.

        Args:
            summary_properties: properties of the snapshot's summary.

        Raises:
            TableChanged: a file of them was deleted, or rows of it: nothing was committed.
            CommitConflict: others were faster, again and again.
            CatalogStateUnknown: the answer was lost.
        """
        manager = self._java.actions.RewriteDataFilesCommitManager(
            self.table, self.snapshot_id, KEEP_SEQUENCE_NUMBER, self.tables.hash_map(summary_properties)
        )
        file_groups = self.tables.jvm.java.util.HashSet()
        for written in groups:
            file_groups.add(written.group)
        for attempt in range(_MAX_COMMIT_ATTEMPTS):
            try:
                self.refresh()  # a partition spec of meanwhile is unknown to the table as it was read
                self.tables.call(lambda: manager.commitFileGroups(file_groups))
                return
            except CommitConflict:
                if attempt + 1 == _MAX_COMMIT_ATTEMPTS:
                    raise

    def abort(self, written: WrittenGroup) -> None:
        """Delete what was written and is committed nowhere."""
        manager = self._java.actions.RewriteDataFilesCommitManager(self.table)
        self.tables.call(lambda: manager.abortFileGroup(written.group))

    def rewrite_manifests(self, summary_properties: Mapping[str, str]) -> tuple[int, int]:
        """Sort the entries of a table's manifests by partition into fewer of them; return how many there were and are.

        Raises:
            TableChanged, CommitConflict: others changed what was rewritten.
        """
        action = self._with_summary(self._action().rewriteManifests(self.refresh()), summary_properties)
        result = self.tables.call(action.execute)
        return len(list(_iterate(result.rewrittenManifests()))), len(list(_iterate(result.addedManifests())))

    def rewrite_deletes(self, summary_properties: Mapping[str, str]) -> tuple[int, int]:
        """Rewrite position deletes, without those of files that are gone; return how many files there were and are.

        Raises:
            TableChanged, CommitConflict: others changed what was rewritten.
        """
        action = self._with_summary(
            self._action().rewritePositionDeletes(self.refresh()).option("rewrite-all", "true"), summary_properties
        )
        result = self.tables.call(action.execute)
        return result.rewrittenDeleteFilesCount(), result.addedDeleteFilesCount()

    @property
    def _java(self) -> Java:
        return self.tables.jvm.org.apache.iceberg

    def refresh(self) -> Java:
        """Return the table as it is now."""
        self.tables.call(self.table.refresh)
        return self.table

    def _action(self) -> Java:
        session: Java = self.tables.spark
        return self._java.spark.actions.SparkActions.get(session._jsparkSession)

    def _with_summary(self, action: Java, summary_properties: Mapping[str, str]) -> Java:
        for name, value in summary_properties.items():
            action = action.snapshotProperty(name, value)
        return action

    def plan_tasks(self, paths: Collection[str]) -> dict[str, Java]:
        """Return the scan tasks of some files, by path, as far as the snapshot has them."""
        if self.snapshot_id is None:
            return {}
        scan = self.table.newScan().useSnapshot(self.snapshot_id).ignoreResiduals().planFiles()
        tasks = {}
        for task in _iterate(scan):
            path = task.file().location()
            if path in paths:
                tasks[path] = task
        scan.close()
        return tasks

    def write_group(self, planned: PlannedGroup, index: int) -> WrittenGroup:
        """Write a group by Iceberg's own action; see `write`."""
        jvm, actions = self.tables.jvm, self._java.actions
        tasks = jvm.java.util.ArrayList()
        for path in sorted(planned.paths):
            tasks.add(self.tasks[path])
        group_info = getattr(actions, "ImmutableRewriteDataFiles$FileGroupInfo").builder()
        partition = tasks.get(0).file().partition()
        group_info = group_info.globalIndex(index).partitionIndex(1).partition(partition).build()
        max_bytes = int(planned.target_bytes * _MAX_FILE_RATIO)
        split_bytes = min(
            max(planned.size // planned.expected_files + _SPLIT_OVERHEAD_BYTES, planned.target_bytes), max_bytes
        )
        group = actions.RewriteFileGroup(
            group_info, tasks, planned.spec_id, max_bytes, split_bytes, planned.expected_files
        )
        runner = self._runner(self._redirected_table(planned.target_prefix) if planned.target_prefix else self.table)
        runner.init(self.tables.hash_map({}))
        group.setOutputFiles(runner.rewrite(group))
        sizes = [file.fileSizeInBytes() for file in _iterate(group.addedFiles())]
        return WrittenGroup(planned, group, len(sizes), sum(sizes))

    def _redirected_table(self, prefix: str) -> Java:
        """Return the table with a prefix for new data files; that setting is not committed."""
        iceberg = self._java
        settings = self.tables.hash_map({"write.data.path": prefix, "write.object-storage.enabled": "false"})
        operations = self.table.operations()
        metadata = (
            iceberg.TableMetadata.buildFrom(operations.current()).setProperties(settings).discardChanges().build()
        )
        location_provider = iceberg.LocationProviders.locationsFor(metadata.location(), metadata.properties())
        return iceberg.BaseTable(
            iceberg.StaticTableOperations(metadata, self.table.io(), location_provider), self.table.name()
        )

    def _runner(self, table: Java) -> Java:
        session: Java = self.tables.spark
        runner_class, extra_arguments = "SparkBinPackFileRewriteRunner", []
        if zorder := _ZORDER.fullmatch(self._sort):
            names = self.tables.jvm.java.util.ArrayList()
            for name in zorder[1].split(","):
                names.add(name.strip())
            runner_class, extra_arguments = "SparkZOrderFileRewriteRunner", [("java.util.List", names)]
        elif self._sort:
            runner_class, extra_arguments = (
                "SparkSortFileRewriteRunner",
                [("org.apache.iceberg.SortOrder", self._sort_order(table))],
            )
        arguments = [
            ("org.apache.spark.sql.SparkSession", session._jsparkSession),
            ("org.apache.iceberg.Table", table),
            *extra_arguments,
        ]
        jvm = self.tables.jvm
        loader = self._java.spark.FileRewriteCoordinator.get().getClass().getClassLoader()
        classes = [jvm.java.lang.Class.forName(name, False, loader) for name, _ in arguments]
        constructor = jvm.java.lang.Class.forName(f"org.apache.iceberg.spark.actions.{runner_class}", True, loader)
        # Iceberg's own actions make it, and offer no other way to hand it files.
        constructor = constructor.getDeclaredConstructor(self.tables.array(jvm.java.lang.Class, classes))
        constructor.setAccessible(True)
        return constructor.newInstance(self.tables.array(jvm.java.lang.Object, [value for _, value in arguments]))

    def _sort_order(self, table: Java) -> Java:
        order = self._java.SortOrder.builderFor(table.schema())
        for part in self._sort.split(","):
            column = _COLUMN.fullmatch(part)
            if column is None:
                raise UsageError(
                    f"sort {self._sort!r}: expected columns such as `a, b DESC NULLS LAST` or `zorder(a, b)`"
                )
            descending = (column[2] or "").lower() == "desc"
            nulls_first = (column[3] or ("last" if descending else "first")).lower() == "first"
            nulls = self._java.NullOrder.NULLS_FIRST if nulls_first else self._java.NullOrder.NULLS_LAST
            order = order.desc(column[1], nulls) if descending else order.asc(column[1], nulls)
        return order.build()


def _iterate(iterable: Java) -> Iterator[Java]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
