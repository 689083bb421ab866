"""Whether what a flow's SQL gives fits its target: seen before the first step, and not by the second one.

Spark casts what is written to the target's types. So a column that tells keys or partitions apart has to come back as
it was: `1.001` in a DECIMAL(9, 2), or an hour in a DATE, is another value there, and the next step doesn't find it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sterna.edges.spark.start import failures, summary
from sterna.errors import FlowStopped, ServicesError
from sterna.flows.plan_of_sql import VIEW
from sterna.flows.shop import quoted
from sterna.services.flows import Flow

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_RESULT: Final = "sterna_flow_result"
_INTEGERS: Final = ("byte", "short", "integer", "long")
_SAMPLES: Final = {
    "string": ("'a'", "'b'"),
    "binary": ("X'61'", "X'62'"),
    "boolean": ("true", "false"),
    "date": ("'2026-01-01'", "'2026-01-02'"),
    "timestamp": ("'2026-01-01 10:00:00'", "'2026-01-01 11:00:00'"),
    "timestamp_ntz": ("'2026-01-01 10:00:00'", "'2026-01-01 11:00:00'"),
    **dict.fromkeys((*_INTEGERS, "decimal"), ("1", "2")),
}
"""By type, two values as SQL casts them from."""


def refuse_other_values(flow: Flow, result: StructType, target: StructType) -> None:
    """See that what tells keys or partitions apart is the same value in the target.

    Args:
        flow: the flow.
        result: the columns that its SQL gives.
        target: the target's.

    Raises:
        ServicesError: a column of the target has a type that changes values.
    """
    for name in flow.mode.columns:
        given, kept = result[name].dataType, target[name].dataType
        if not keeps_values(given, kept):
            raise ServicesError(
                f"flow {flow.name}: {flow.into} has {name} as {kept.simpleString()}, and the SQL gives "
                f"{given.simpleString()}: other values would stand there, which the next step doesn't find",
                hint=f"make {flow.into} anew with {name} {given.simpleString()}, or correct the SQL",
            )


def keeps_values(given: DataType, kept: DataType) -> bool:
    """Tell whether each value of a type is as it was, or refused, in a column of another one; pure.

    Args:
        given: the type of what is written.
        kept: the column's.
    """
    one, other = given.typeName(), kept.typeName()
    if given.simpleString() == kept.simpleString() or (one in _INTEGERS and other in _INTEGERS):
        return True
    if other == "decimal" and (one == "decimal" or one in _INTEGERS):
        before: Any = given
        after: Any = kept
        return bool(after.scale >= (before.scale if one == "decimal" else 0))  # too many digits before it are an error
    return one == "date" and other in ("timestamp", "timestamp_ntz")


def refuse_unwritable(spark: SparkSession, flow: Flow, sql: str, name: str, source: StructType) -> None:
    """See that Spark plans the writes which steps make of the SQL's result.

    Args:
        spark: a session of its own, in which views are made.
        flow: the flow.
        sql: its SQL; it can be analyzed.
        name: the target's name in SQL.
        source: the source's columns.

    Raises:
        ServicesError: the result's types aren't those of the target, or its partitions can't be replaced.
    """
    spark.createDataFrame([], source).createOrReplaceTempView(VIEW)
    result = spark.sql(sql)
    result.createOrReplaceTempView(_RESULT)
    try:
        for text in _writes(flow, result.schema, spark.table(name).schema.names, name):
            _plan(spark, text)
    except failures() as error:
        raise ServicesError(
            f"flow {flow.name}: its result can't be written to {flow.into}: {summary(error, 3)}",
            hint=f"correct the SQL, or make {flow.into} anew: sterna flow check",
        ) from None


def refuse_mixed_partitions(flow: Flow, table: Any) -> None:
    """See that each file of a target has rows of one partition, for a step replaces whole files.

    Args:
        flow: the flow, of mode `replace`.
        table: its target's metadata in the JVM, and what reads its manifests.

    Raises:
        FlowStopped: files of an older partition spec lie there.
    """
    metadata, operations = table.metadata, table.operations
    current = metadata.currentSnapshot()
    if current is None:
        return
    manifests = current.dataManifests(operations.io())
    live = {
        int(manifest.partitionSpecId())
        for manifest in (manifests.get(place) for place in range(manifests.size()))
        if manifest.hasAddedFiles() or manifest.hasExistingFiles()
    }
    if any(flow.mode.columns[0] not in identities(metadata, metadata.spec(number)) for number in live):
        raise FlowStopped(
            f"files of {flow.into} are from when it wasn't partitioned by the values of {flow.mode.columns[0]}, and a "
            "step replaces whole partitions",
            table=flow.into,
            hint=f"sterna flow rebuild {flow.name}",
        )


def identities(metadata: Any, spec: Any) -> list[str]:
    """Return the columns by whose values a partition spec tells files apart.

    Args:
        metadata: the table's, in the JVM.
        spec: one of its specs.
    """
    fields = spec.fields()
    every = (fields.get(place) for place in range(fields.size()))
    return [str(metadata.schema().findColumnName(each.sourceId())) for each in every if each.transform().isIdentity()]


def _writes(flow: Flow, result: StructType, columns: list[str], name: str) -> Iterator[str]:
    """Yield the statements that plan as a flow's writes do."""
    listed = ", ".join(map(quoted, columns))
    yield f"INSERT INTO {name} BY NAME SELECT * FROM {_RESULT}"  # noqa: S608 - names are quoted
    if flow.mode.kind == "merge":
        on = " AND ".join(f"t.{quoted(each)} <=> s.{quoted(each)}" for each in flow.mode.columns)
        sets = ", ".join(f"t.{quoted(each)} = s.{quoted(each)}" for each in columns)
        values = ", ".join(f"s.{quoted(each)}" for each in columns)
        yield (
            f"MERGE INTO {name} t USING {_RESULT} s ON {on} WHEN MATCHED THEN UPDATE SET {sets} "  # noqa: S608
            f"WHEN NOT MATCHED THEN INSERT ({listed}) VALUES ({values})"
        )
    if flow.mode.kind == "replace":
        (column,) = flow.mode.columns
        kind = result[column].dataType
        if samples := _SAMPLES.get(kind.typeName()):
            some = ", ".join(f"CAST({sample} AS {kind.simpleString()})" for sample in samples)
            where = f"{quoted(column)} IS NULL OR {quoted(column)} IN ({some})"
            yield f"INSERT INTO {name} REPLACE WHERE {where} SELECT {listed} FROM {_RESULT}"  # noqa: S608


def _plan(spark: SparkSession, text: str) -> None:
    """Have a statement planned, and not run."""
    java: Any = spark
    state, skip = (
        java._jsparkSession.sessionState(),
        java._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP(),
    )
    planned = state.executePlan(state.sqlParser().parsePlan(text), skip)
    planned.assertAnalyzed()
    if not text.startswith("MERGE"):  # planning one reads the target's manifests
        planned.optimizedPlan()
