"""Rewriting chosen files of one table by Iceberg's own code: the runners and the commits of `rewrite_data_files`.

Iceberg's procedure chooses the files itself, by a condition on columns. Which region a file lies in is none, so here
the files are given: Iceberg's runner (bin-pack, sort, z-order) reads and writes them, and Iceberg's commit manager
commits them, with its checks against what others have deleted meanwhile.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sterna.catalog.model import Key
from sterna.edges.spark.main_tables import Java, LostRace, MainTables, Outdated
from sterna.errors import UsageError

_SPLIT_OVERHEAD: Final = 5 << 20
_LARGEST: Final = 1.4
"""Of the target: a file becomes no larger. Half of what Iceberg lets a file be beyond it (1.8)."""
_COMMIT_TRIES: Final = 5
KEEP_SEQUENCE_NUMBER: Final = False
"""Whether new files have the sequence number of the snapshot that was read. Iceberg then lets equality deletes of
meanwhile pass, and drops them where every other data file is newer: the deleted rows are back (apache/iceberg#10312).
"""
_ZORDER: Final = re.compile(r"(?i)\s*zorder\s*\(([^()]+)\)\s*")
_COLUMN: Final = re.compile(r"(?i)\s*([^\s,()]+)(?:\s+(asc|desc))?(?:\s+nulls\s+(first|last))?\s*")


@dataclass(frozen=True)
class Chosen:
    """Files of one partition that are to become fewer.

    Args:
        paths: their URIs.
        spec_id: their partition spec, which the new ones have, too.
        size: their bytes.
        target: how large the new ones should be.
        files: how many new ones are expected.
        into: the URI prefix below which the new ones are written; "" where the table writes anyway.
    """

    paths: frozenset[str]
    spec_id: int
    size: int
    target: int
    files: int
    into: str


@dataclass(frozen=True)
class Written:
    """What a group of files has become; nobody else sees it until it is committed.

    Args:
        chosen: what it was.
        group: Iceberg's own object.
        files: how many files were written.
        bytes: their size.
    """

    chosen: Chosen
    group: Java
    files: int
    bytes: int


class Rewriting:
    """One table at one snapshot, and the files of it that are rewritten.

    Args:
        tables: Spark's driver.
        key: the table.
        sort: as the settings have it: columns, `zorder(a, b)`, or "".

    Attributes:
        table: Iceberg's own object.
        snapshot_id: the snapshot; None: the table has none.
        tasks: the scan tasks of the files that were looked up, by path.
    """

    def __init__(self, tables: MainTables, key: Key, sort: str) -> None:
        self.tables = tables
        self.table = tables.table(key)
        self._sort = sort
        snapshot = tables.call(self.table.currentSnapshot)
        self.snapshot_id: int | None = None if snapshot is None else snapshot.snapshotId()
        self.tasks: dict[str, Java] = {}

    def look_up(self, paths: Collection[str]) -> None:
        """Find files in the table's snapshot.

        Raises:
            Outdated: one is there no longer.
        """
        self.tasks = self.tables.call(lambda: self.find_tasks(paths))
        if len(self.tasks) < len(paths):
            raise Outdated(f"{len(paths) - len(self.tasks)} of the files are no longer part of the table")

    def write(self, chosen: Chosen, number: int) -> Written:
        """Write what a group of files becomes.

        Raises:
            EngineError: Spark failed.
        """
        return self.tables.call(lambda: self.write_group(chosen, number))

    def replace_files(self, groups: Sequence[Written], marks: Mapping[str, str]) -> None:
        """Put groups in the place of what they were, in one commit of `main`.

        Args:
            groups: what was written.
            marks: what the snapshot's summary says.

        Raises:
            Outdated: a file of them was deleted, or rows of it: nothing was committed.
            LostRace: others were faster, again and again.
            CatalogStateUnknown: the answer was lost.
        """
        manager = self._java.actions.RewriteDataFilesCommitManager(
            self.table, self.snapshot_id, KEEP_SEQUENCE_NUMBER, self.tables.hash_map(marks)
        )
        found = self.tables.jvm.java.util.HashSet()
        for written in groups:
            found.add(written.group)
        for turn in range(_COMMIT_TRIES):
            try:
                self.fresh()  # a partition spec of meanwhile is unknown to the table as it was read
                self.tables.call(lambda: manager.commitFileGroups(found))
                return
            except LostRace:
                if turn + 1 == _COMMIT_TRIES:
                    raise

    def throw_away(self, written: Written) -> None:
        """Delete what was written and is committed nowhere."""
        manager = self._java.actions.RewriteDataFilesCommitManager(self.table)
        self.tables.call(lambda: manager.abortFileGroup(written.group))

    def rewrite_manifests(self, marks: Mapping[str, str]) -> tuple[int, int]:
        """Sort the entries of a table's manifests by partition into fewer of them; return how many there were and are.

        Raises:
            Outdated, LostRace: others changed what was rewritten.
        """
        action = self._marked(self._action().rewriteManifests(self.fresh()), marks)
        result = self.tables.call(action.execute)
        return len(list(_items(result.rewrittenManifests()))), len(list(_items(result.addedManifests())))

    def rewrite_deletes(self, marks: Mapping[str, str]) -> tuple[int, int]:
        """Rewrite position deletes, without those of files that are gone; return how many files there were and are.

        Raises:
            Outdated, LostRace: others changed what was rewritten.
        """
        action = self._marked(self._action().rewritePositionDeletes(self.fresh()).option("rewrite-all", "true"), marks)
        result = self.tables.call(action.execute)
        return result.rewrittenDeleteFilesCount(), result.addedDeleteFilesCount()

    @property
    def _java(self) -> Java:
        return self.tables.jvm.org.apache.iceberg

    def fresh(self) -> Java:
        """Return the table as it is now."""
        self.tables.call(self.table.refresh)
        return self.table

    def _action(self) -> Java:
        session: Java = self.tables.spark
        return self._java.spark.actions.SparkActions.get(session._jsparkSession)

    def _marked(self, action: Java, marks: Mapping[str, str]) -> Java:
        for name, value in marks.items():
            action = action.snapshotProperty(name, value)
        return action

    def find_tasks(self, paths: Collection[str]) -> dict[str, Java]:
        """Return the scan tasks of some files, by path, as far as the snapshot has them."""
        if self.snapshot_id is None:
            return {}
        scan = self.table.newScan().useSnapshot(self.snapshot_id).ignoreResiduals().planFiles()
        found = {}
        for task in _items(scan):
            path = task.file().location()
            if path in paths:
                found[path] = task
        scan.close()
        return found

    def write_group(self, chosen: Chosen, number: int) -> Written:
        """Write a group by Iceberg's own action; see `write`."""
        jvm, actions = self.tables.jvm, self._java.actions
        tasks = jvm.java.util.ArrayList()
        for path in sorted(chosen.paths):
            tasks.add(self.tasks[path])
        info = getattr(actions, "ImmutableRewriteDataFiles$FileGroupInfo").builder()
        partition = tasks.get(0).file().partition()
        info = info.globalIndex(number).partitionIndex(1).partition(partition).build()
        largest = int(chosen.target * _LARGEST)
        split = min(max(chosen.size // chosen.files + _SPLIT_OVERHEAD, chosen.target), largest)
        group = actions.RewriteFileGroup(info, tasks, chosen.spec_id, largest, split, chosen.files)
        runner = self._runner(self._written_below(chosen.into) if chosen.into else self.table)
        runner.init(self.tables.hash_map({}))
        group.setOutputFiles(runner.rewrite(group))
        sizes = [file.fileSizeInBytes() for file in _items(group.addedFiles())]
        return Written(chosen, group, len(sizes), sum(sizes))

    def _written_below(self, prefix: str) -> Java:
        """Return the table as one whose new data files go below a prefix; nothing of that is committed."""
        api = self._java
        settings = self.tables.hash_map({"write.data.path": prefix, "write.object-storage.enabled": "false"})
        operations = self.table.operations()
        metadata = api.TableMetadata.buildFrom(operations.current()).setProperties(settings).discardChanges().build()
        places = api.LocationProviders.locationsFor(metadata.location(), metadata.properties())
        return api.BaseTable(api.StaticTableOperations(metadata, self.table.io(), places), self.table.name())

    def _runner(self, table: Java) -> Java:
        session: Java = self.tables.spark
        kind, more = "SparkBinPackFileRewriteRunner", []
        if zorder := _ZORDER.fullmatch(self._sort):
            names = self.tables.jvm.java.util.ArrayList()
            for name in zorder[1].split(","):
                names.add(name.strip())
            kind, more = "SparkZOrderFileRewriteRunner", [("java.util.List", names)]
        elif self._sort:
            kind, more = "SparkSortFileRewriteRunner", [("org.apache.iceberg.SortOrder", self._sort_order(table))]
        given = [
            ("org.apache.spark.sql.SparkSession", session._jsparkSession),
            ("org.apache.iceberg.Table", table),
            *more,
        ]
        jvm = self.tables.jvm
        loader = self._java.spark.FileRewriteCoordinator.get().getClass().getClassLoader()
        classes = [jvm.java.lang.Class.forName(name, False, loader) for name, _ in given]
        maker = jvm.java.lang.Class.forName(f"org.apache.iceberg.spark.actions.{kind}", True, loader)
        # Iceberg's own actions make it, and offer no other way to hand it files.
        maker = maker.getDeclaredConstructor(self.tables.array(jvm.java.lang.Class, classes))
        maker.setAccessible(True)
        return maker.newInstance(self.tables.array(jvm.java.lang.Object, [value for _, value in given]))

    def _sort_order(self, table: Java) -> Java:
        order = self._java.SortOrder.builderFor(table.schema())
        for part in self._sort.split(","):
            column = _COLUMN.fullmatch(part)
            if column is None:
                raise UsageError(
                    f"sort {self._sort!r}: expected columns such as `a, b DESC NULLS LAST` or `zorder(a, b)`"
                )
            down = (column[2] or "").lower() == "desc"
            first = (column[3] or ("last" if down else "first")).lower() == "first"
            nulls = self._java.NullOrder.NULLS_FIRST if first else self._java.NullOrder.NULLS_LAST
            order = order.desc(column[1], nulls) if down else order.asc(column[1], nulls)
        return order.build()


def _items(iterable: Java) -> Iterator[Java]:
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
