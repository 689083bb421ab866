"""What differs between two snapshots of a table, planned in Spark's own JVM and staged for Iceberg's readers there.

Planning over py4j would take milliseconds a file. So the planning is Java, which Spark's own compiler (Janino)
compiles once a process. Deletes are applied by Iceberg's readers: staged scan tasks name the delete files with each
data file. What is staged is let go of when the JVM's garbage collector finds that no DataFrame reads it any more.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.errors import EngineError, Gap, NeedsClassicSpark, NotAnAncestor, SternaError, UsageError
from sterna.spark.errors import permanent_error
from sterna.spark.java import activate_session, java_array, open_file_io
from sterna.spark.read import redact_properties
from sterna.spark.start import is_remote, spark_errors, summarize_error

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_SOURCE = Path(__file__).with_name("StagedChanges.java")
_CLASS = "sterna.StagedChanges"
_compile_lock = threading.Lock()
_compiled_classes: dict[str, Any] = {}  # an application: the class in its JVM


class StagedChanges:
    """What differs between two snapshots, as files to read.

    Args:
        changes: the object in the JVM.
    """

    def __init__(self, spark: SparkSession, changes: Any) -> None:
        self._spark = spark
        self._changes = changes

    @property
    def has_lineage(self) -> bool:
        """Whether rows have ids at both snapshots."""
        return bool(self._changes.lineage())

    @property
    def schema(self) -> str:
        """The schema at the end, as Spark's JSON."""
        return str(self._changes.schema())

    @property
    def files(self) -> tuple[int, int]:
        """How many data files are read, as they were before and as they are after."""
        return int(self._changes.filesBefore()), int(self._changes.filesAfter())

    def read_before(self) -> DataFrame | None:
        """Return the rows that those files had at the start; None where there are none."""
        return self._read(self._changes.stageBefore)

    def read_after(self) -> DataFrame | None:
        """Return the rows that those files have at the end; None where there are none."""
        return self._read(self._changes.stageAfter)

    def _read(self, stage: Any) -> DataFrame | None:
        name = uuid.uuid4().hex
        if not stage(name):
            return None
        frame: Any = self._spark.read.format("iceberg").load(name)
        relation = frame._jdf.queryExecution().analyzed().collectLeaves().head()
        self._changes.endWith(relation.table(), name)
        return frame  # type: ignore[no-any-return]


def load_by_name(spark: SparkSession, table: str) -> Any:
    """Return a table of one of a classic session's catalogs; raises what py4j does.

    Args:
        table: its name in SQL.
    """
    java: Any = spark
    # Spark reads the settings of an unused catalog from the thread's active session.
    activate_session(java)
    return java._jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(java._jsparkSession, table)


def load_named(spark: SparkSession, table: str) -> Any:
    """Return a table of one of the session's catalogs, as Iceberg's own object in the JVM.

    Args:
        table: its name in SQL.

    Raises:
        NeedsClassicSpark: the session is one on Spark Connect.
        UsageError: there is no such table, or it isn't Iceberg's.
    """
    java = _require_classic(spark, table)
    try:
        return load_by_name(java, table)
    except spark_errors() as error:
        raise UsageError(f"can't read the table: {summarize_error(error)}", table=table) from None


def load_metadata(
    spark: SparkSession, table: str, metadata: str, stores: Sequence[tuple[str, Mapping[str, str]]]
) -> Any:
    """Return the table of a metadata.json, as Iceberg's own object in the JVM, without a catalog.

    Args:
        table: what messages call it.
        metadata: the URI of the metadata.json.
        stores: prefixes of URIs, and how Iceberg's FileIO reaches each; the first is that of the metadata.json.

    Raises:
        NeedsClassicSpark: the session is one on Spark Connect.
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: it can't be read.
    """
    java = _require_classic(spark, table)
    iceberg = java._jvm.org.apache.iceberg
    try:
        io = open_file_io(java, dict(stores), stores[0][1])
        return iceberg.BaseTable(iceberg.StaticTableOperations(metadata, io), table)
    except spark_errors() as error:
        clean = partial(_redact, stores)
        if permanent := permanent_error(error, table, clean=clean):
            raise permanent from None
        message = clean(summarize_error(error))
        raise EngineError(f"can't read the table's metadata: {message}", table=table, file=metadata) from None


def _redact(stores: Sequence[tuple[str, Mapping[str, str]]], text: str) -> str:
    for _, properties in stores:
        text = redact_properties(text, properties)
    return text


def resolve_snapshot(table: Any, name: str, version: int | str | None) -> int:
    """Return the snapshot that is meant by an id, a branch or tag of the table, or None, which is the current one.

    Args:
        table: the table in the JVM.
        name: what messages call it.

    Raises:
        UsageError: there is no such branch or tag, or no snapshot at all.
    """
    if isinstance(version, int):
        return version
    if version is None:
        current = table.currentSnapshot()
        if current is None:
            raise UsageError("the table has no snapshot yet", table=name)
        return int(current.snapshotId())
    ref = table.refs().get(version)
    if ref is not None:
        return int(ref.snapshotId())
    if version.isdecimal():
        return int(version)
    raise UsageError(f"no snapshot, branch or tag {version!r}", table=name)


def stage(spark: SparkSession, table: Any, name: str, start: int | None, end: int) -> StagedChanges:
    """Plan what must be read for the rows between two snapshots.

    Args:
        table: the table in the JVM.
        name: what messages call it.
        start: the snapshot to start from; None: before the first row.
        end: the snapshot to end at.

    Raises:
        Gap: a snapshot is not kept, or the way between them isn't.
        NotAnAncestor: the start is no ancestor of the end.
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: a manifest can't be read.
    """
    try:
        context: Any = spark.sparkContext
        arguments = java_array(context._gateway, context._jvm.java.lang.Object, [table])
        changes = _planner_class(spark).getConstructors()[0].newInstance(arguments)
        problem = str(changes.open("" if start is None else str(start), str(end)))
        if problem:
            raise _lineage_error(problem, name, start, end)
        changes.plan()
    except spark_errors() as error:
        if permanent := permanent_error(error, name):
            raise permanent from None
        raise EngineError(f"can't plan the changes: {summarize_error(error)}", table=name) from None
    return StagedChanges(spark, changes)


def read_snapshot(spark: SparkSession, table: Any, snapshot: int) -> DataFrame:
    """Return all rows of a table at a snapshot, by the schema of that snapshot; raises what py4j does.

    Args:
        table: the table in the JVM.
    """
    from pyspark.sql import DataFrame

    java: Any = spark
    util = java._jvm.org.apache.iceberg.spark.SparkTableUtil
    return DataFrame(util.loadTable(java._jsparkSession, table, snapshot), spark)


def reserved_column_error(spark: SparkSession, table: Any, name: str) -> SternaError | None:
    """Return Spark's error for a table with a column, in any of its schemas, that is named as a metadata column is.

    Args:
        table: the table in the JVM.
        name: what messages call it.
    """
    java: Any = spark
    util = java._jvm.org.apache.iceberg.spark.SparkSchemaUtil
    try:
        for schema in table.schemas().values():
            util.validateMetadataColumnReferences(schema, schema)
    except spark_errors() as error:
        return permanent_error(error, name)
    return None


def _lineage_error(problem: str, name: str, start: int | None, end: int) -> Gap | NotAnAncestor:
    kind, snapshot = problem.split()
    if kind == "rewound":
        return NotAnAncestor(
            f"snapshot {start} is no ancestor of {end}: the table was rolled back or replaced since",
            table=name,
            hint="read all rows at the end, and continue from there",
        )
    between = "" if int(snapshot) in (start, end) else f", which is between {start} and {end}"
    return Gap(
        f"snapshot {snapshot}{between}, is not kept" if between else f"snapshot {snapshot} is not kept",
        table=name,
        hint="read all rows at the end and continue from there, and keep snapshots for longer",
    )


def _require_classic(spark: SparkSession, table: str) -> Any:
    if is_remote(spark):
        raise NeedsClassicSpark(
            "the rows between two snapshots are planned in Spark's JVM, which Spark Connect doesn't show",
            table=table,
            hint="use a session on a master: local[*], spark://…, yarn or k8s://…",
        )
    return spark


def _planner_class(spark: SparkSession) -> Any:
    java: Any = spark
    application = spark.sparkContext.applicationId
    # Iceberg uses the session of the calling thread.
    activate_session(java)
    with _compile_lock:
        if application not in _compiled_classes:
            compiler = java._jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setParentClassLoader(java._jvm.java.lang.Thread.currentThread().getContextClassLoader())
            compiler.cook(_source())
            _compiled_classes[application] = compiler.getClassLoader().loadClass(_CLASS)
        return _compiled_classes[application]


@lru_cache(maxsize=1)
def _source() -> str:
    return _SOURCE.read_text()


def list_snapshots(table: Any) -> tuple[str, list[tuple[int, int]]]:
    """Return a table's UUID, and the snapshots of its current line with their times in milliseconds, newest first.

    Args:
        table: the table in the JVM.
    """
    snapshots, snapshot = [], table.currentSnapshot()
    while snapshot is not None:
        snapshots.append((int(snapshot.snapshotId()), int(snapshot.timestampMillis())))
        snapshot = None if snapshot.parentId() is None else table.snapshot(snapshot.parentId())
    return str(table.operations().current().uuid()), snapshots


def lookup_columns(
    spark: SparkSession, table: Any, snapshot: int, names: Sequence[str]
) -> list[tuple[int, str] | None]:
    """Return the ids and types of columns, as a snapshot's schema has them; None for one that isn't there.

    Args:
        table: the table in the JVM.
        names: the columns.
    """
    java: Any = spark
    schema = java._jvm.org.apache.iceberg.util.SnapshotUtil.schemaFor(table, snapshot)
    fields = [schema.findField(name) for name in names]
    return [None if field is None else (int(field.fieldId()), str(field.type().toString())) for field in fields]


def load_schema(spark: SparkSession, table: Any, snapshot: int) -> dict[str, Any] | None:
    """Return the schema that a snapshot was written with, as Iceberg's JSON; None where the table has had several and
    the snapshot doesn't name one.

    Args:
        table: the table in the JVM.
    """
    java: Any = spark
    id, schemas = table.snapshot(snapshot).schemaId(), table.schemas()
    schema = schemas.get(id) if id is not None else table.schema() if schemas.size() == 1 else None
    if schema is None:
        return None
    schema_json: dict[str, Any] = json.loads(java._jvm.org.apache.iceberg.SchemaParser.toJson(schema))
    return schema_json
