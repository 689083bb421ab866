"""Iceberg's own staging and publishing, by the JVM of a classic Spark: the one module here that calls it.

Each function that calls Java names the methods it uses. Iceberg's commits that publish are made without its retry:
`TableOperations.commit(base, new)` refuses when the table is no longer `base`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.edges.spark.refusals import causes, refusal
from sterna.edges.spark.staged_changes import load_by_name
from sterna.edges.spark.start import failures, require_iceberg, require_pyspark, summary
from sterna.errors import CatalogDenied, CatalogStateUnknown, EngineError, NotStaged, TableGone, TableMoved
from sterna.wap.decide import Append, FastForward, Published, decide, marks
from sterna.wap.model import COMMIT, Channel, Step, TableState
from sterna.wap.protocol import LOOKS, Change, Landed, Look, Outcome, refuse_unstageable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SESSION_ID = "spark.wap.id"
_ICEBERG = "org.apache.iceberg.exceptions."


@dataclass(frozen=True)
class JavaBase:
    """A table's metadata in the JVM, and whose it is.

    Args:
        operations: Iceberg's `TableOperations`.
        metadata: its `TableMetadata`.
    """

    operations: Any = field(repr=False)
    metadata: Any = field(repr=False)


class SparkTable:
    """A table of `main`, as a classic Spark's JVM has it.

    Args:
        spark: a session of its own: `staging` sets its WAP id.
        name: what messages call the table.
        load: returns Iceberg's `Table`, read anew.

    Raises:
        NotStaged: a Spark Connect session: it doesn't reach the JVM, and its procedures can't set a mark.
    """

    def __init__(self, spark: SparkSession, name: str, load: Callable[[], Any]) -> None:
        require_jvm(spark)
        self.spark, self.name = spark, name
        self.load = load
        self._append: tuple[int, Any] | None = None

    @classmethod
    def of_catalog(cls, spark: SparkSession, name: str) -> SparkTable:
        """Return a table by its name in one of the session's catalogs.

        Args:
            spark: the session.
            name: catalog, namespace and table, with dots.
        """
        require_jvm(spark)

        def load() -> Any:
            table = load_by_name(spark, name)
            table.refresh()  # a session's catalog remembers tables
            return table

        return cls(spark, name, load)

    def look(self) -> Look[JavaBase]:
        """Return the table's metadata as it is now (`TableOperations.current`, `TableMetadataParser.toJson`)."""
        with java_errors(self.name):
            operations = self.load().operations()
            metadata = operations.current()
            if metadata is None:
                raise TableGone("the table is gone", table=self.name)
            told = json.loads(jvm(self.spark).org.apache.iceberg.TableMetadataParser.toJson(metadata))
        return Look(TableState.of(told), JavaBase(operations, metadata))

    def commit(self, look: Look[JavaBase], change: Change, step: Step) -> Landed:
        """Publish by compare-and-swap, the mark in the same commit (`TableMetadata.Builder`)."""
        base, iceberg = look.base, jvm(self.spark).org.apache.iceberg
        with java_errors(self.name):
            builder = iceberg.TableMetadata.buildFrom(base.metadata)
            snapshot, sequence = change.snapshot, base.metadata.snapshot(change.snapshot).sequenceNumber()
            if isinstance(change, FastForward):
                builder = builder.setBranchSnapshot(snapshot, "main")
            elif isinstance(change, Append):
                made = self._appended(base, snapshot, step)
                builder = builder.setBranchSnapshot(made, "main")
                snapshot, sequence = made.snapshotId(), made.sequenceNumber()
            properties = _java_map(self.spark, marks(step, snapshot, sequence))
            base.operations.commit(base.metadata, builder.setProperties(properties).build())
            commit = base.operations.current().property(COMMIT, "")
        return Landed(snapshot, commit)

    def set_mark(self, look: Look[JavaBase], channel: Channel, mark: str) -> None:
        """Set a channel's mark and that it was set with the current snapshot, by compare-and-swap, on a word."""
        base, iceberg = look.base, jvm(self.spark).org.apache.iceberg
        with java_errors(self.name):
            current = base.metadata.currentSnapshot()
            place = f"{current.snapshotId()}/{current.sequenceNumber()}" if current is not None else ""
            properties = _java_map(self.spark, {channel.mark: mark, channel.place: place})
            new = iceberg.TableMetadata.buildFrom(base.metadata).setProperties(properties).build()
            base.operations.commit(base.metadata, new)

    def set_properties(self, look: Look[JavaBase], values: dict[str, str]) -> None:
        """Set some of a table's properties, by compare-and-swap.

        Raises:
            TableMoved: the table is another one by now.
        """
        base, properties = look.base, _java_map(self.spark, values)
        with java_errors(self.name):
            builder = jvm(self.spark).org.apache.iceberg.TableMetadata.buildFrom(base.metadata)
            base.operations.commit(base.metadata, builder.setProperties(properties).build())

    def stage_files(self, look: Look[JavaBase], step: Step, files: Sequence[Any]) -> None:
        """Stage data files under a step's id (`newAppend().stageOnly()`), whatever the table's properties say.

        Args:
            look: at the table.
            step: the step.
            files: Iceberg's `DataFile`s; they lie where they are to stay.
        """
        with java_errors(self.name):
            append = self._table(look.base).newAppend().stageOnly().set("wap.id", step.id)
            for file in files:
                append = append.appendFile(file)
            append.commit()

    def stage_sql(self, look: Look[JavaBase], step: Step, write: Callable[[SparkSession], object]) -> None:
        """Stage what Spark writes under a step's id (`write.wap.enabled`, `spark.wap.id`).

        Args:
            look: at the table.
            step: the step.
            write: writes to the table with the session it gets, once.

        Raises:
            NotStaged: the table's properties would let the rows go live at once.
        """
        refuse_unstageable(look.state.properties, self.name)
        self.spark.conf.set(_SESSION_ID, step.id)
        try:
            with java_errors(self.name):
                write(self.spark)
        finally:
            self.spark.conf.unset(_SESSION_ID)

    def rows(self, look: Look[JavaBase], snapshot: int, *, whole: bool = False) -> DataFrame:
        """Return the rows that a snapshot brings (`IncrementalAppendScan`).

        Args:
            look: at the table.
            snapshot: a staged one, that appends.
            whole: the whole table as it would be with it.
        """
        from pyspark.sql import DataFrame

        parent = look.base.metadata.snapshot(snapshot).parentId()
        since = parent is not None and not whole
        read = {"start-snapshot-id": str(parent), "end-snapshot-id": str(snapshot)} if since else {}
        java = jvm(self.spark)
        with java_errors(self.name):
            if not since:
                frame = java.org.apache.iceberg.spark.SparkTableUtil.loadTable(
                    self.spark._jsparkSession, self._table(look.base), snapshot
                )
                return DataFrame(frame, self.spark)
            options = java.org.apache.spark.sql.util.CaseInsensitiveStringMap(_java_map(self.spark, read))
            source = java.org.apache.iceberg.spark.source.SparkTable(self._table(look.base))
            nothing = java.scala.Option.empty()
            relation = java.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(
                source, nothing, nothing, options, nothing
            )
            dataset = java.org.apache.spark.sql.classic.Dataset.ofRows(self.spark._jsparkSession, relation)
        return DataFrame(dataset, self.spark)

    def _appended(self, base: JavaBase, staged: int, step: Step) -> Any:
        """Return a snapshot that appends a staged one's files; nothing is committed (`SnapshotProducer.apply`).

        The same append is applied again after each lost race: it keeps its manifest, so that only a manifest list is
        written between a look and its commit, and a writer that never stops doesn't win for ever.
        """
        if self._append is None or self._append[0] != staged:
            append = self._table(base).newFastAppend().set("published-wap-id", step.id)
            # As Iceberg's cherry-pick has it: who expires what was staged knows by this that its files are in use.
            append = append.set("source-snapshot-id", str(staged))
            for file in base.metadata.snapshot(staged).addedDataFiles(base.operations.io()):
                append = append.appendFile(file)
            self._append = staged, append
        return self._append[1].apply()

    def _table(self, base: JavaBase) -> Any:
        return jvm(self.spark).org.apache.iceberg.BaseTable(base.operations, self.name)


def move_mark(table: SparkTable, step: Step) -> Outcome:
    """Move a channel's mark where a step changes no row, as after a compaction: no snapshot is made of nothing.

    Args:
        table: the table.
        step: the step.

    Raises:
        TableMoved: the table was changed by others each time.
        Rewound, OutOfTurn, MarkMoved: as `decide`.
    """
    for number in range(1, LOOKS + 1):
        at = table.look()
        if isinstance(decide(at.state, step), Published):
            return Outcome(None, "", False, number, 0)
        try:
            table.set_mark(at, step.channel, step.mark)
        except TableMoved:
            continue
        return Outcome(None, "", True, number, 0)
    raise TableMoved("the table was changed by others each time", table=table.name)


def require_jvm(spark: SparkSession) -> None:
    """Refuse a session that doesn't reach a JVM with Iceberg.

    Raises:
        NotStaged: it is one of Spark Connect.
        NoIceberg: its driver lacks Iceberg's runtime.
    """
    require_pyspark()
    from pyspark.sql import SparkSession as Classic

    if not isinstance(spark, Classic):
        raise NotStaged(
            "Spark Connect reaches no JVM: its procedures publish without a mark, so nothing is published through it",
            hint="a classic Spark, local or of a cluster",
        )
    require_iceberg(spark)


def jvm(spark: SparkSession) -> Any:
    """Return the JVM behind a classic session."""
    return spark._jvm


def _java_map(spark: SparkSession, values: dict[str, str]) -> Any:
    made = jvm(spark).java.util.HashMap()
    for name, value in values.items():
        made.put(name, value)
    return made


@contextmanager
def java_errors(table: str) -> Iterator[None]:
    """Turn what Iceberg and Spark raise into sterna's errors, by the class of the Java exception.

    Raises:
        TableMoved: the table is another one than the commit was made for.
        CatalogStateUnknown: whether the commit was made isn't known.
        TableGone: there is no such table.
        CatalogDenied: the login lacks a right.
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: anything else.
    """
    try:
        yield
    except failures() as error:
        kinds = {name for name, _ in causes(error)}
        text = summary(error, 2)
        if any(kind.endswith(("ForbiddenException", "NotAuthorizedException", "NotAuthorized")) for kind in kinds):
            raise CatalogDenied(f"the catalog refuses it: {text}", table=table, hint="a writer's login") from None
        if f"{_ICEBERG}CommitStateUnknownException" in kinds:
            raise CatalogStateUnknown(f"a commit's answer is lost: {text}", table=table) from None
        if f"{_ICEBERG}CommitFailedException" in kinds:
            raise TableMoved(f"the table was changed meanwhile: {text}", table=table) from None
        if kinds & {f"{_ICEBERG}NoSuchTableException", _NO_TABLE}:
            raise TableGone("there is no such table", table=table) from None
        if refused := refusal(error, table):
            raise refused from None
        raise EngineError(f"Spark failed: {summary(error)}", table=table, hint="nothing was published") from None


_NO_TABLE = "org.apache.spark.sql.catalyst.analysis.NoSuchTableException"
