"""Iceberg's own staging and publishing, by the JVM of a classic Spark: the one module here that calls it.

Each function that calls Java names the methods it uses. Iceberg's commits that publish are made without its retry:
`TableOperations.commit(base, new)` refuses when the table is no longer `base`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from sterna.errors import CatalogDenied, CatalogStateUnknown, EngineError, NotStaged, TableGone, TableMoved
from sterna.pipelines.publish.decide import Append, FastForward, Published, decide, position_properties
from sterna.pipelines.publish.model import COMMIT_PROPERTY, Channel, Step, TableState
from sterna.pipelines.publish.protocol import (
    MAX_ATTEMPTS,
    Change,
    LoadedTable,
    PublishOutcome,
    TableCommit,
    require_wap_enabled,
)
from sterna.spark.changelog_scan import load_by_name
from sterna.spark.errors import causes, permanent_error
from sterna.spark.java import java_map
from sterna.spark.start import is_remote, require_iceberg, require_pyspark, spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")
_SESSION_ID = "spark.wap.id"
_ICEBERG = "org.apache.iceberg.exceptions."
# With the sequence number of the files that were read, equality deletes of meanwhile could be lost (iceberg#10312).
_REWRITE_OPTIONS = {"rewrite-all": "true", "use-starting-sequence-number": "false"}


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
        load: returns Iceberg's `Table`, freshly loaded.

    Raises:
        NotStaged: a Spark Connect session: it doesn't reach the JVM, and its procedures can't set a position.
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
            name: catalog, namespace and table, with dots.
        """
        require_jvm(spark)

        def load() -> Any:
            table = load_by_name(spark, name)
            table.refresh()  # a session's catalog remembers tables
            return table

        return cls(spark, name, load)

    def refresh(self) -> LoadedTable[JavaBase]:
        """Return the table's metadata as it is now (`TableOperations.current`, `TableMetadataParser.toJson`).

        Raises:
            TableGone: there is no such table.
        """
        with translate_java_errors(self.name):
            operations = self.load().operations()
            metadata = operations.current()
            if metadata is None:
                raise TableGone("the table is gone", table=self.name)
            document = json.loads(jvm(self.spark).org.apache.iceberg.TableMetadataParser.toJson(metadata))
        return LoadedTable(TableState.parse(document), JavaBase(operations, metadata))

    def commit(self, loaded: LoadedTable[JavaBase], change: Change, step: Step) -> TableCommit:
        """Publish by compare-and-swap, the position in the same commit (`TableMetadata.Builder`)."""
        base, iceberg = loaded.base, jvm(self.spark).org.apache.iceberg
        with translate_java_errors(self.name):
            builder = iceberg.TableMetadata.buildFrom(base.metadata)
            snapshot, sequence = change.snapshot, base.metadata.snapshot(change.snapshot).sequenceNumber()
            if isinstance(change, FastForward):
                builder = builder.setBranchSnapshot(snapshot, "main")
            elif isinstance(change, Append):
                appended = self._apply_append(base, snapshot, step)
                builder = builder.setBranchSnapshot(appended, "main")
                snapshot, sequence = appended.snapshotId(), appended.sequenceNumber()
            properties = java_map(jvm(self.spark), position_properties(step, snapshot, sequence))
            base.operations.commit(base.metadata, builder.setProperties(properties).build())
            commit = base.operations.current().property(COMMIT_PROPERTY, "")
        return TableCommit(snapshot, commit)

    def set_position(self, loaded: LoadedTable[JavaBase], channel: Channel, position: str) -> None:
        """Set a channel's position and that it was set with the current snapshot, by compare-and-swap, for an
        operator."""
        base, iceberg = loaded.base, jvm(self.spark).org.apache.iceberg
        with translate_java_errors(self.name):
            current = base.metadata.currentSnapshot()
            reference = f"{current.snapshotId()}/{current.sequenceNumber()}" if current is not None else ""
            properties = java_map(
                jvm(self.spark), {channel.position_property: position, channel.snapshot_property: reference}
            )
            new = iceberg.TableMetadata.buildFrom(base.metadata).setProperties(properties).build()
            base.operations.commit(base.metadata, new)

    def set_properties(self, loaded: LoadedTable[JavaBase], values: dict[str, str]) -> None:
        """Set some of a table's properties, by compare-and-swap.

        Raises:
            TableMoved: the table is another one by now.
        """
        base, properties = loaded.base, java_map(jvm(self.spark), values)
        with translate_java_errors(self.name):
            builder = jvm(self.spark).org.apache.iceberg.TableMetadata.buildFrom(base.metadata)
            base.operations.commit(base.metadata, builder.setProperties(properties).build())

    def stage_files(self, loaded: LoadedTable[JavaBase], step: Step, files: Sequence[Any]) -> None:
        """Stage data files under a step's id (`newAppend().stageOnly()`), whatever the table's properties are.

        Args:
            loaded: at the table.
            files: Iceberg's `DataFile`s, in their final place.
        """
        with translate_java_errors(self.name):
            append = self._base_table(loaded.base).newAppend().stageOnly().set("wap.id", step.id)
            for file in files:
                append = append.appendFile(file)
            append.commit()

    def stage_sql(self, loaded: LoadedTable[JavaBase], step: Step, write: Callable[[SparkSession], object]) -> None:
        """Stage what Spark writes under a step's id (`write.wap.enabled`, `spark.wap.id`).

        Args:
            loaded: at the table.
            write: writes to the table with the session it gets, once.

        Raises:
            NotStaged: the table's properties would let the rows go live at once.
        """
        require_wap_enabled(loaded.state.properties, self.name)
        self.spark.conf.set(_SESSION_ID, step.id)
        try:
            with translate_java_errors(self.name):
                write(self.spark)
        finally:
            self.spark.conf.unset(_SESSION_ID)

    def read_summary(self, loaded: LoadedTable[JavaBase]) -> dict[str, str]:
        """Return the summary of the current snapshot (`Snapshot.summary`); empty where there is none."""
        with translate_java_errors(self.name):
            current = loaded.base.metadata.currentSnapshot()
            return dict(current.summary()) if current is not None else {}

    def compact(self) -> None:
        """Rewrite all data files into few, without the rows that are deleted, in a commit of its own
        (`SparkActions.rewriteDataFiles`).

        Raises:
            TableMoved: others were first each time.
            EngineError: others deleted rows meanwhile, or Spark failed: nothing was committed.
        """
        with translate_java_errors(self.name):
            actions = jvm(self.spark).org.apache.iceberg.spark.actions.SparkActions
            rewrite = actions.get(self.spark._jsparkSession).rewriteDataFiles(self.load())
            for name, value in _REWRITE_OPTIONS.items():
                rewrite = rewrite.option(name, value)
            rewrite.execute()

    def read_rows(self, loaded: LoadedTable[JavaBase], snapshot: int) -> DataFrame:
        """Return the rows that a snapshot adds (`IncrementalAppendScan`).

        Args:
            loaded: at the table.
            snapshot: a staged one, that appends.
        """
        from pyspark.sql import DataFrame

        parent = loaded.base.metadata.snapshot(snapshot).parentId()
        java = jvm(self.spark)
        with translate_java_errors(self.name):
            if parent is None:
                frame = java.org.apache.iceberg.spark.SparkTableUtil.loadTable(
                    self.spark._jsparkSession, self._base_table(loaded.base), snapshot
                )
                return DataFrame(frame, self.spark)
            ends = java_map(java, {"start-snapshot-id": str(parent), "end-snapshot-id": str(snapshot)})
            options = java.org.apache.spark.sql.util.CaseInsensitiveStringMap(ends)
            source = java.org.apache.iceberg.spark.source.SparkTable(self._base_table(loaded.base))
            none = java.scala.Option.empty()
            relation = java.org.apache.spark.sql.execution.datasources.v2.DataSourceV2Relation.create(
                source, none, none, options, none
            )
            dataset = java.org.apache.spark.sql.classic.Dataset.ofRows(self.spark._jsparkSession, relation)
        return DataFrame(dataset, self.spark)

    def _apply_append(self, base: JavaBase, staged: int, step: Step) -> Any:
        """Return a snapshot that appends a staged one's files; nothing is committed (`SnapshotProducer.apply`).

        The same append is applied again after each lost race: it keeps its manifest, so that only a manifest list is
        written between loading and committing, and a writer that never stops doesn't win for ever.
        """
        if self._append is None or self._append[0] != staged:
            append = self._base_table(base).newFastAppend().set("published-wap-id", step.id)
            # As Iceberg's cherry-pick does: by this, expiring the staged snapshot doesn't delete its files.
            append = append.set("source-snapshot-id", str(staged))
            for file in base.metadata.snapshot(staged).addedDataFiles(base.operations.io()):
                append = append.appendFile(file)
            self._append = staged, append
        return self._append[1].apply()

    def _base_table(self, base: JavaBase) -> Any:
        return jvm(self.spark).org.apache.iceberg.BaseTable(base.operations, self.name)


def advance_position(table: SparkTable, step: Step) -> PublishOutcome:
    """Move a channel's position where a step changes no row, as after a compaction: no snapshot is made of nothing.

    Raises:
        TableMoved: the table was changed by others each time.
        Rewound, OutOfTurn, MarkMoved: as `decide`.
    """

    def advance(loaded: LoadedTable[JavaBase]) -> PublishOutcome:
        is_own = not isinstance(decide(loaded.state, step), Published)
        if is_own:
            table.set_position(loaded, step.channel, step.position)
        return PublishOutcome(None, "", is_own, 0)

    return change_table(table, advance)


def change_table(table: SparkTable, change: Callable[[LoadedTable[JavaBase]], T]) -> T:
    """Load a table and change it by compare-and-swap, again where another writer was first.

    Raises:
        TableMoved: the table was changed by others each time.
    """
    for _ in range(MAX_ATTEMPTS):
        with suppress(TableMoved):
            return change(table.refresh())
    raise TableMoved("the table was changed by others each time", table=table.name)


def require_jvm(spark: SparkSession) -> None:
    """Refuse a session that doesn't reach a JVM with Iceberg.

    Raises:
        NotStaged: it is one of Spark Connect.
        NoIceberg: its driver lacks Iceberg's runtime.
    """
    require_pyspark()
    if is_remote(spark):
        raise NotStaged(
            "Spark Connect reaches no JVM: its procedures publish without an applied position, so it publishes nothing",
            hint="a classic Spark, local or of a cluster",
        )
    require_iceberg(spark)


def jvm(spark: SparkSession) -> Any:
    """Return the JVM behind a classic session."""
    return spark._jvm


@contextmanager
def translate_java_errors(table: str) -> Iterator[None]:
    """Turn what Iceberg and Spark raise into sterna's errors, by the class of the Java exception.

    Raises:
        TableMoved: the table is another one than the commit was made for.
        CatalogStateUnknown: whether the commit was made is unknown.
        TableGone: there is no such table.
        CatalogDenied: the login lacks a right.
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: anything else.
    """
    try:
        yield
    except spark_errors() as error:
        class_names = {name for name, _ in causes(error)}
        text = summarize_error(error, 2)
        if any(
            kind.endswith(("ForbiddenException", "NotAuthorizedException", "NotAuthorized")) for kind in class_names
        ):
            raise CatalogDenied(f"the catalog refuses it: {text}", table=table, hint="a writer's login") from None
        if f"{_ICEBERG}CommitStateUnknownException" in class_names:
            raise CatalogStateUnknown(f"a commit's answer is lost: {text}", table=table) from None
        if f"{_ICEBERG}CommitFailedException" in class_names:
            raise TableMoved(f"the table was changed meanwhile: {text}", table=table) from None
        if class_names & {f"{_ICEBERG}NoSuchTableException", _NO_TABLE}:
            raise TableGone("there is no such table", table=table) from None
        if refused_error := permanent_error(error, table):
            raise refused_error from None
        raise EngineError(
            f"Spark failed: {summarize_error(error)}", table=table, hint="nothing was published"
        ) from None


_NO_TABLE = "org.apache.spark.sql.catalyst.analysis.NoSuchTableException"
