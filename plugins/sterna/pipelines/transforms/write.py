"""The rows of a step, by the transform's SQL, and how they are written: staged, never live."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f
from pyspark.sql.types import StructType

from sterna.config.sections.transforms import Transform
from sterna.errors import EngineError, EngineRefused, FlowStopped, NotAKey, NotOnlyAdded, ServicesError
from sterna.pipelines.changes.between import create_view, to_frame
from sterna.pipelines.changes.keys import check_keys
from sterna.pipelines.changes.kinds import CHANGE, DELETE, INSERT, NOT_A_KEY
from sterna.pipelines.publish.model import Step
from sterna.pipelines.publish.protocol import LoadedTable, require_wap_enabled
from sterna.pipelines.publish.spark import JavaBase, translate_java_errors
from sterna.pipelines.transforms.column_usage import ColumnUsage, read_columns
from sterna.pipelines.transforms.columns import changed_columns, type_shape
from sterna.pipelines.transforms.decide import Work
from sterna.pipelines.transforms.sql_plan import VIEW, validate_sql
from sterna.pipelines.transforms.step_context import StepContext
from sterna.pipelines.transforms.target_schema import (
    identity_columns,
    validate_key_types,
    validate_partitions,
    validate_writes,
)
from sterna.spark.changelog_scan import StagedChanges, load_schema, reserved_column_error, stage
from sterna.spark.start import spark_errors
from sterna.sql_identifiers import quote_backtick

MAX_PARTITIONS = 10_000
"""Partitions that one step recomputes; a source that touches more is rebuilt."""
_ROWS_VIEW = "sterna_flow_rows"
# Classes of SQLSTATE (SQL standard, "Status codes") of what the statement and its rows are to blame for: no later run
# comes to another end. Others, such as 53 (resources) and 58 (system), are of the machine.
_STATEMENT_SQLSTATE = re.compile(r"SQLSTATE: (?:0A|21|22|23|42|44|P0)\w{3}")
_CHANGED_KEY = "FlowKey: the SQL changes the key, which has to stay as it is in the source"
_SAME_KEY = "FlowKeys: the SQL gives several rows the same key, which has to stay as it is in the source"
_OTHER_PARTITION = "FlowPartition: the SQL gives rows of partitions that were not asked for"


@dataclass(frozen=True)
class TransformWriter:
    """What is written for a step of a transform."""

    step_context: StepContext
    transform: Transform
    sql: str = field(repr=False)

    def plan(self, work: Work) -> StagedChanges:
        """Return what has to be read for the rows that changed in a step.

        Raises:
            Gap, NotAnAncestor: the way isn't there, or isn't one.
        """
        return stage(self.step_context.spark, self.step_context.source, self.transform.source, work.start, work.end)

    def validate_source_columns(self, work: Work) -> None:
        """See that the columns which the transform reads are those that its target was made of.

        Raises:
            FlowStopped: one is another column by now, or has another type; or that is unknown.
            ServicesError: the SQL can't be analyzed any more.
        """
        if work.start is None:
            return
        old, new = (
            load_schema(self.step_context.spark, self.step_context.source, snapshot)
            for snapshot in (work.start, work.end)
        )
        hint = f"sterna transforms rebuild {self.transform.name}"
        if old is None or new is None:
            raise FlowStopped(
                f"the source has had several schemas, and snapshot {work.start if old is None else work.end} says none",
                table=self.transform.source,
                hint=hint,
            )
        if type_shape(old) == type_shape(new):
            return
        current = self._read_columns(work.end)
        changed = ", ".join(changed_columns(old, new, current.paths))
        if not changed and (before := self._read_columns_at(work.start)):
            changed = current.changed_since(before)
        if changed:
            raise FlowStopped(
                f"columns that transform {self.transform.name} reads are others than its target was made of: {changed}",
                table=self.transform.source,
                hint=hint,
            )

    def _read_columns(self, end: int) -> ColumnUsage:
        source = self.step_context.read_source(end).schema
        validate_sql(self.step_context.spark, self.transform, self.sql, source, None)
        return read_columns(self.step_context.spark, self._queries(source), source)

    def _read_columns_at(self, start: int) -> ColumnUsage | None:
        """Return the columns that the same SQL read at the position; None: the source lacked some then."""
        source = self.step_context.read_source(start).schema
        try:
            return read_columns(self.step_context.spark, self._queries(source), source)
        except spark_errors():
            return None

    def _queries(self, source: StructType) -> list[str]:
        mode = self.transform.mode
        expressions = self.transform.partition or ", ".join(
            quote_backtick(name) for name in mode.columns if name in source.names
        )
        return [self.sql, *([f"SELECT {expressions} FROM {VIEW}"] if expressions else [])]  # noqa: S608 - names are quoted

    def stage(self, loaded: LoadedTable[JavaBase], work: Work, changes: StagedChanges) -> None:
        """Write a step's rows under its id.

        Args:
            loaded: at the target.
            changes: what changed in it.

        Raises:
            ServicesError: the SQL isn't what the transform's mode takes, or doesn't fit the target.
            NotOnlyAdded: the source took rows away, and the transform appends.
            NotAKey: what was given as a key isn't one.
            NotStaged: the target's properties would let the rows go live at once.
        """
        self.validate(loaded, work.end)
        self.validate_partition_files(loaded, work)
        kinds = {"append": self._append, "merge": self._merge, "replace": self._replace}
        if work.start is None:
            self._stage(loaded, work.step, lambda: self._write_all(work.end, overwrite=False))
        else:
            self._stage(loaded, work.step, lambda: kinds[self.transform.mode.kind](work, changes))

    def stage_rebuild(self, loaded: LoadedTable[JavaBase], step: Step, end: int) -> None:
        """Write all rows that follow from the source at a snapshot, in the place of all that the target has.

        Raises:
            SternaError: as `stage`.
        """
        self.validate(loaded, end)
        self._stage(loaded, step, lambda: self._write_all(end, overwrite=True))

    def validate_partition_files(self, loaded: LoadedTable[JavaBase], work: Work) -> None:
        """See that a step which replaces partitions meets no files of a spec that mixes them; a rebuild replaces those.

        Raises:
            FlowStopped: there are some.
        """
        if self.transform.mode.kind == "replace" and work.start is not None:
            validate_partitions(self.transform, loaded.base)

    def validate(self, loaded: LoadedTable[JavaBase], end: int) -> None:
        """See that all rows can be written.

        Args:
            loaded: at the target.
            end: the source's snapshot up to which.

        Raises:
            ServicesError: the SQL isn't what the transform's mode takes, or doesn't fit the target.
            NotStaged: the target's properties would let the rows go live at once.
        """
        require_wap_enabled(loaded.state.properties, self.transform.into)
        self._require_partitioning(loaded)
        target, source = (
            self.step_context.spark.table(self.step_context.sql_name).schema,
            self.step_context.read_source(end).schema,
        )
        result = validate_sql(self.step_context.spark, self.transform, self.sql, source, target)
        validate_key_types(self.transform, result, target)
        validate_writes(self.step_context.spark, self.transform, self.sql, self.step_context.sql_name, source)

    def _require_partitioning(self, loaded: LoadedTable[JavaBase]) -> None:
        """See that whole files are replaced: each has rows of one partition."""
        metadata, mode = loaded.base.metadata, self.transform.mode
        if mode.kind == "replace" and mode.columns[0] not in identity_columns(metadata, metadata.spec()):
            raise ServicesError(
                f"transform {self.transform.name}: {self.transform.into} isn't partitioned by the values of "
                f"{mode.columns[0]}",
                hint=f"CREATE TABLE … PARTITIONED BY ({mode.columns[0]})",
            )

    def _stage(self, loaded: LoadedTable[JavaBase], step: Step, make: Callable[[], Callable[[], object]]) -> None:
        try:
            with translate_java_errors(self.step_context.sql_name):
                write = make()
            self.step_context.table.stage_sql(loaded, step, lambda _: write())
        except EngineRefused as error:
            # Spark names no table, and reads both.
            source = reserved_column_error(self.step_context.spark, self.step_context.source, self.transform.source)
            raise source if source and source.message == error.message else error from None
        except EngineError as error:
            if NOT_A_KEY in error.message:
                columns = ", ".join(self.transform.mode.columns)
                raise NotAKey(
                    f"several rows of a snapshot have the same {columns}", table=self.transform.source
                ) from None
            for marker in (_CHANGED_KEY, _SAME_KEY, _OTHER_PARTITION):
                if marker in error.message:
                    raise ServicesError(f"transform {self.transform.name}: {marker.partition(': ')[2]}") from None
            if sqlstate := statement_sqlstate(error.message):
                raise ServicesError(
                    f"transform {self.transform.name}, its SQL fails on the source's rows, or its result on "
                    f"the target: {error.message} ({sqlstate})",
                    hint="correct the services file, or the rows",
                ) from None
            raise

    def _query_result(self, rows: DataFrame) -> DataFrame:
        create_view(rows, VIEW)
        return self.step_context.spark.sql(self.sql)

    def _read_changes(self, changes: StagedChanges, key: tuple[str, ...] = ()) -> DataFrame:
        return to_frame(self.step_context.spark, changes, key, self.transform.source)

    def _write_all(self, end: int, *, overwrite: bool) -> Callable[[], object]:
        if self.transform.mode.kind == "merge":
            changes = stage(self.step_context.spark, self.step_context.source, self.transform.source, None, end)
            rows = self._read_changes(changes, self.transform.mode.columns).drop(CHANGE)  # which validates the key
        else:
            rows = self.step_context.read_source(end)
        result = self._query_result(rows)
        writer = (self._require_unique_keys(result) if self.transform.mode.kind == "merge" else result).writeTo(
            self.step_context.sql_name
        )
        return (lambda: writer.overwrite(f.lit(True))) if overwrite else writer.append

    def _append(self, work: Work, changes: StagedChanges) -> Callable[[], object]:
        rows = self._read_changes(changes)
        # Without earlier files, all rows were inserted. A snapshot's operation is whatever its writer wrote.
        if changes.files[0] and rows.where(f.col(CHANGE) != INSERT).limit(1).count():
            raise NotOnlyAdded(
                f"rows were deleted or updated between snapshots {work.start} and {work.end}, and transform "
                f"{self.transform.name} only appends",
                table=self.transform.source,
                hint=f"sterna transforms rebuild {self.transform.name}; or mode merge or replace, and then a rebuild",
            )
        return self._query_result(rows.drop(CHANGE)).writeTo(self.step_context.sql_name).append

    def _merge(self, work: Work, changes: StagedChanges) -> Callable[[], object]:
        """Return what merges changed keys: each with its new row, or without one if the key was deleted."""
        key = self.transform.mode.columns
        changed = check_keys(self._read_changes(changes, key), self.step_context.read_source(work.end), key)
        new_rows = self._require_unique_keys(self._query_result(changed.where(f.col(CHANGE) != DELETE).drop(CHANGE)))
        names = new_rows.schema.names
        key_indexes = [names.index(name) for name in key]
        # By place: a column of the user's may have any name.
        keys = changed.select(*[f.col(quote_backtick(name)).alias(f"k{index}") for index, name in enumerate(key)])
        keys = keys.withColumn("known", f.lit(True))
        rows = new_rows.toDF(*_place_names(names)).withColumn("given", f.lit(True))
        conditions = [
            f.col(f"k{index}").eqNullSafe(f.col(f"c{key_index}")) for index, key_index in enumerate(key_indexes)
        ]
        joined = keys.join(rows, conditions, "full_outer")
        error_column = f.when(f.col("known").isNull(), f.raise_error(f.lit(_CHANGED_KEY)).cast("boolean"))
        is_kept = error_column.otherwise(f.coalesce(f.col("given"), f.lit(False))).alias("stays")
        columns = [
            f.col(f"k{key_indexes.index(index)}" if index in key_indexes else f"c{index}").alias(f"c{index}")
            for index in range(len(names))
        ]
        # Computed once: MERGE reads its source twice. It would not take staged files through a view, either.
        joined.select(*columns, is_kept).localCheckpoint().createOrReplaceTempView(_ROWS_VIEW)
        return lambda: self.step_context.spark.sql(_merge_sql(self.step_context.sql_name, key_indexes, names))

    def _require_unique_keys(self, rows: DataFrame) -> DataFrame:
        """Return a merge's result; reading it fails where a key is repeated."""
        names, places = rows.schema.names, _place_names(rows.schema.names)
        by_key = Window.partitionBy(*[places[names.index(name)] for name in self.transform.mode.columns])
        counted = rows.toDF(*places).withColumn("n", f.count(f.lit(1)).over(by_key))
        duplicate = f.when(f.col("n") > 1, f.raise_error(f.lit(_SAME_KEY)).cast("boolean"))
        return counted.where(duplicate.otherwise(f.lit(True))).select(*places).toDF(*names)

    def _replace(self, work: Work, changes: StagedChanges) -> Callable[[], object]:
        """Return what recomputes the partitions of all rows that changed, from the whole source."""
        (column,) = self.transform.mode.columns
        partition = f.expr(self.transform.partition or quote_backtick(column))
        partitions = self._read_changes(changes).select(partition.alias("p")).distinct().limit(MAX_PARTITIONS + 1)
        kind = partitions.schema["p"].dataType.typeName()
        values = [row[0] for row in partitions.select(_to_number(f.col("p"), kind)).collect()]
        touched = [None if value is None else _to_literal(value, kind) for value in values]
        if len(touched) > MAX_PARTITIONS:
            raise ServicesError(
                f"transform {self.transform.name}: a step touches more than {MAX_PARTITIONS} partitions",
                hint=f"sterna transforms rebuild {self.transform.name}, and a coarser partition",
            )
        rows = self.step_context.read_source(work.end)
        if not touched:  # what was rewritten has the same rows
            return self._query_result(rows.limit(0)).writeTo(self.step_context.sql_name).append
        result = self._query_result(rows.where(_is_in(partition, touched)))
        error_column = f.raise_error(f.lit(_OTHER_PARTITION)).cast(result.schema[column].dataType)
        checked_column = f.when(
            _is_in(f.col(quote_backtick(column)), touched), f.col(quote_backtick(column))
        ).otherwise(error_column)
        writer = result.withColumn(column, checked_column).writeTo(self.step_context.sql_name)
        return lambda: writer.overwrite(_is_in(f.col(quote_backtick(column)), touched))


def _to_number(column: Column, kind: str) -> Column:
    """Return dates and times as numbers: Python's calendar ends with the year 9999, and has an hour twice."""
    if kind == "date":
        return f.unix_date(column)
    return f.unix_micros(column.cast("timestamp")) if kind.startswith("timestamp") else column


def _to_literal(value: Any, kind: str) -> Column:
    """Return what `_to_number` made a number of, as a constant that Spark works out before it plans."""
    if kind == "date":
        return f.date_from_unix_date(f.lit(value))
    return f.timestamp_micros(f.lit(value)).cast(kind) if kind.startswith("timestamp") else f.lit(value)


def statement_sqlstate(message: str) -> str:
    """Return the SQLSTATE by which Spark blames the statement or its rows, "" where it blames neither.

    Args:
        message: Spark's.
    """
    match = _STATEMENT_SQLSTATE.search(message)
    return match[0] if match else ""


def _is_in(column: Column, values: list[Column | None]) -> Column:
    """Return whether a column has one of some values, of which null is one."""
    non_null = [value for value in values if value is not None]
    if len(non_null) == len(values):
        return column.isin(non_null)
    return column.isNull() | column.isin(non_null) if non_null else column.isNull()


def _place_names(names: Sequence[str]) -> list[str]:
    return [f"c{index}" for index in range(len(names))]


def _merge_sql(name: str, key: Sequence[int], names: Sequence[str]) -> str:
    condition = " AND ".join(f"t.{quote_backtick(names[index])} <=> s.c{index}" for index in key)
    assignments = ", ".join(f"t.{quote_backtick(name_of)} = s.c{index}" for index, name_of in enumerate(names))
    columns, values = (
        ", ".join(map(quote_backtick, names)),
        ", ".join(f"s.{place_name}" for place_name in _place_names(names)),
    )
    return (
        f"MERGE INTO {name} t USING {_ROWS_VIEW} s ON {condition} "  # noqa: S608 - names are quoted
        f"WHEN MATCHED AND NOT s.stays THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {assignments} "
        f"WHEN NOT MATCHED AND s.stays THEN INSERT ({columns}) VALUES ({values})"
    )
