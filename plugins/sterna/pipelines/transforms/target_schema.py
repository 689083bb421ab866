"""Whether the result of a transform's SQL fits its target: checked before the first step, not by the second one.

Spark casts rows to the target's types. So a column of the key or of the partitions must keep its value: `1.001` in a
DECIMAL(9, 2), or an hour in a DATE, is another value there, and the next step doesn't match it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from sterna.config.sections.transforms import Transform
from sterna.errors import FlowStopped, ServicesError
from sterna.pipelines.transforms.sql_plan import VIEW
from sterna.spark.start import spark_errors, summarize_error
from sterna.sql_identifiers import quote_backtick

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


def validate_key_types(transform: Transform, result: StructType, target: StructType) -> None:
    """Validate that columns of the key and of the partitions keep their values in the target.

    Args:
        result: the columns that its SQL gives.
        target: the target's.

    Raises:
        ServicesError: a column of the target has a type that changes values.
    """
    for name in transform.mode.columns:
        result_type, target_type = result[name].dataType, target[name].dataType
        if not preserves_values(result_type, target_type):
            raise ServicesError(
                f"transform {transform.name}: {transform.into} has {name} as {target_type.simpleString()}, and the SQL "
                f"gives {result_type.simpleString()}: other values would stand there, which the next step doesn't find",
                hint=f"recreate {transform.into} with {name} {result_type.simpleString()}, or correct the SQL",
            )


def preserves_values(result_type: DataType, target_type: DataType) -> bool:
    """Return whether each value of a type is as it was, or refused, in a column of another one; pure.

    Args:
        result_type: the type of what is written.
        target_type: the column's.
    """
    result_name, target_name = result_type.typeName(), target_type.typeName()
    if result_type.simpleString() == target_type.simpleString() or (
        result_name in _INTEGERS and target_name in _INTEGERS
    ):
        return True
    if target_name == "decimal" and (result_name == "decimal" or result_name in _INTEGERS):
        result_decimal: Any = result_type
        target_decimal: Any = target_type
        return bool(
            target_decimal.scale >= (result_decimal.scale if result_name == "decimal" else 0)
        )  # too many digits before it are an error
    return result_name == "date" and target_name in ("timestamp", "timestamp_ntz")


def validate_writes(spark: SparkSession, transform: Transform, sql: str, name: str, source: StructType) -> None:
    """See that Spark plans the writes which steps make of the SQL's result.

    Args:
        spark: a session of its own, in which views are made.
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
        for text in _write_statements(transform, result.schema, spark.table(name).schema.names, name):
            _plan_statement(spark, text)
    except spark_errors() as error:
        raise ServicesError(
            f"transform {transform.name}: its result can't be written to {transform.into}: {summarize_error(error, 3)}",
            hint=f"correct the SQL, or recreate {transform.into}: sterna transforms check",
        ) from None


def validate_partitions(transform: Transform, table: Any) -> None:
    """See that each file of a target has rows of one partition, for a step replaces whole files.

    Args:
        transform: of mode `replace`.
        table: its target's metadata in the JVM, and what reads its manifests.

    Raises:
        FlowStopped: files of an older partition spec lie there.
    """
    metadata, operations = table.metadata, table.operations
    current = metadata.currentSnapshot()
    if current is None:
        return
    manifests = current.dataManifests(operations.io())
    live_specs = {
        int(manifest.partitionSpecId())
        for manifest in (manifests.get(index) for index in range(manifests.size()))
        if manifest.hasAddedFiles() or manifest.hasExistingFiles()
    }
    if any(transform.mode.columns[0] not in identity_columns(metadata, metadata.spec(number)) for number in live_specs):
        raise FlowStopped(
            f"files of {transform.into} are from when it wasn't partitioned by the values of "
            f"{transform.mode.columns[0]}, and a step replaces whole partitions",
            table=transform.into,
            hint=f"sterna transforms rebuild {transform.name}",
        )


def identity_columns(metadata: Any, spec: Any) -> list[str]:
    """Return the columns that a partition spec has by their own values.

    Args:
        metadata: the table's, in the JVM.
        spec: one of its specs.
    """
    fields = spec.fields()
    partition_fields = (fields.get(index) for index in range(fields.size()))
    return [
        str(metadata.schema().findColumnName(partition_field.sourceId()))
        for partition_field in partition_fields
        if partition_field.transform().isIdentity()
    ]


def _write_statements(transform: Transform, result: StructType, columns: list[str], name: str) -> Iterator[str]:
    """Yield the statements that plan as a transform's writes do."""
    column_list = ", ".join(map(quote_backtick, columns))
    yield f"INSERT INTO {name} BY NAME SELECT * FROM {_RESULT}"  # noqa: S608 - names are quoted
    if transform.mode.kind == "merge":
        on = " AND ".join(
            f"t.{quote_backtick(key_column)} <=> s.{quote_backtick(key_column)}"
            for key_column in transform.mode.columns
        )
        assignments = ", ".join(
            f"t.{quote_backtick(column_name)} = s.{quote_backtick(column_name)}" for column_name in columns
        )
        values = ", ".join(f"s.{quote_backtick(column_name)}" for column_name in columns)
        yield (
            f"MERGE INTO {name} t USING {_RESULT} s ON {on} WHEN MATCHED THEN UPDATE SET {assignments} "  # noqa: S608
            f"WHEN NOT MATCHED THEN INSERT ({column_list}) VALUES ({values})"
        )
    if transform.mode.kind == "replace":
        (column,) = transform.mode.columns
        kind = result[column].dataType
        if samples := _SAMPLES.get(kind.typeName()):
            literals = ", ".join(f"CAST({sample} AS {kind.simpleString()})" for sample in samples)
            predicate = f"{quote_backtick(column)} IS NULL OR {quote_backtick(column)} IN ({literals})"
            yield f"INSERT INTO {name} REPLACE WHERE {predicate} SELECT {column_list} FROM {_RESULT}"  # noqa: S608


def _plan_statement(spark: SparkSession, text: str) -> None:
    """Have a statement planned, and not run."""
    java: Any = spark
    state, skip = (
        java._jsparkSession.sessionState(),
        java._jvm.org.apache.spark.sql.execution.CommandExecutionMode.SKIP(),
    )
    changes = state.executePlan(state.sqlParser().parsePlan(text), skip)
    changes.assertAnalyzed()
    if not text.startswith("MERGE"):  # planning one reads the target's manifests
        changes.optimizedPlan()
