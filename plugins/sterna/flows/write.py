"""The rows of a step, by the flow's SQL, and how they are written: staged, never live."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.changes.between import show, to_frame
from sterna.changes.keys import alone
from sterna.changes.rows import CHANGE, DELETE, INSERT, NOT_A_KEY
from sterna.edges.spark.staged_changes import Staged, reserved_column, schema_at, stage
from sterna.edges.spark.start import failures
from sterna.errors import EngineError, EngineRefused, FlowStopped, NotAKey, NotOnlyAdded, ServicesError
from sterna.flows.columns import changed_columns, shape
from sterna.flows.columns_read import Reads, columns_read
from sterna.flows.decide import Work
from sterna.flows.fit import identities, refuse_mixed_partitions, refuse_other_values, refuse_unwritable
from sterna.flows.plan_of_sql import VIEW, check_sql
from sterna.flows.shop import Bench, quoted
from sterna.services.flows import Flow
from sterna.wap.model import Step
from sterna.wap.protocol import Look, refuse_unstageable
from sterna.wap.spark import JavaBase, java_errors

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame
    from pyspark.sql.types import StructType

MOST_PARTITIONS = 10_000
"""Partitions that one step recomputes; a source that touches more is rebuilt."""
_ROWS = "sterna_flow_rows"
# Classes of SQLSTATE (SQL standard, "Status codes") of what the statement and its rows are to blame for: no later run
# comes to another end. Others, such as 53 (resources) and 58 (system), are of the machine.
_OF_STATEMENT = re.compile(r"SQLSTATE: (?:0A|21|22|23|42|44|P0)\w{3}")
_CHANGED_KEY = "FlowKey: the SQL changes the key, which has to stay as it is in the source"
_SAME_KEY = "FlowKeys: the SQL gives several rows the same key, which has to stay as it is in the source"
_OTHER_PARTITION = "FlowPartition: the SQL gives rows of partitions that were not asked for"


@dataclass(frozen=True)
class Writing:
    """What is written for a step of a flow.

    Args:
        bench: where.
        flow: the flow.
        sql: its SQL.
    """

    bench: Bench
    flow: Flow
    sql: str = field(repr=False)

    def planned(self, work: Work) -> Staged:
        """Return what has to be read for the rows that changed in a step.

        Raises:
            Gap, NotAnAncestor: the way isn't there, or isn't one.
        """
        return stage(self.bench.spark, self.bench.source, self.flow.source, work.start, work.end)

    def refuse_other_columns(self, work: Work) -> None:
        """See that the columns which the flow reads are those that its target was made of.

        Raises:
            FlowStopped: one is another column by now, or has another type; or nobody can tell.
            ServicesError: the SQL can't be analyzed any more.
        """
        if work.start is None:
            return
        old, new = (schema_at(self.bench.spark, self.bench.source, each) for each in (work.start, work.end))
        hint = f"sterna flow rebuild {self.flow.name}"
        if old is None or new is None:
            raise FlowStopped(
                f"the source has had several schemas, and snapshot {work.start if old is None else work.end} says none",
                table=self.flow.source,
                hint=hint,
            )
        if shape(old) == shape(new):
            return
        now = self._columns_read(work.end)
        found = ", ".join(changed_columns(old, new, now.paths))
        if not found and (before := self._columns_read_before(work.start)):
            found = now.changed_since(before)
        if found:
            raise FlowStopped(
                f"columns that flow {self.flow.name} reads are others than those its target was made of: {found}",
                table=self.flow.source,
                hint=hint,
            )

    def _columns_read(self, end: int) -> Reads:
        source = self.bench.whole(end).schema
        check_sql(self.bench.spark, self.flow, self.sql, source, None)
        return columns_read(self.bench.spark, self._queries(source), source)

    def _columns_read_before(self, start: int) -> Reads | None:
        """Return what the same SQL read at the mark; None where it couldn't: it names what the source lacked then."""
        source = self.bench.whole(start).schema
        try:
            return columns_read(self.bench.spark, self._queries(source), source)
        except failures():
            return None

    def _queries(self, source: StructType) -> list[str]:
        mode = self.flow.mode
        told = self.flow.partition or ", ".join(quoted(name) for name in mode.columns if name in source.names)
        return [self.sql, *([f"SELECT {told} FROM {VIEW}"] if told else [])]  # noqa: S608 - names are quoted

    def stage(self, look: Look[JavaBase], work: Work, planned: Staged) -> None:
        """Write a step's rows under its id.

        Args:
            look: at the target.
            work: the step.
            planned: what changed in it.

        Raises:
            ServicesError: the SQL isn't what the flow's mode takes, or doesn't fit the target.
            NotOnlyAdded: the source took rows away, and the flow appends.
            NotAKey: what was given as a key isn't one.
            NotStaged: the target's properties would let the rows go live at once.
        """
        self.check(look, work.end)
        self.refuse_older_files(look, work)
        kinds = {"append": self._append, "merge": self._merge, "replace": self._replace}
        if work.start is None:
            self._stage(look, work.step, lambda: self._all(work.end, clear=False))
        else:
            self._stage(look, work.step, lambda: kinds[self.flow.mode.kind](work, planned))

    def stage_anew(self, look: Look[JavaBase], step: Step, end: int) -> None:
        """Write all rows that follow from the source at a snapshot, in the place of all that the target has.

        Raises:
            SternaError: as `stage`.
        """
        self.check(look, end)
        self._stage(look, step, lambda: self._all(end, clear=True))

    def refuse_older_files(self, look: Look[JavaBase], work: Work) -> None:
        """See that a step which replaces partitions meets no files of a spec that mixes them; a rebuild replaces those.

        Raises:
            FlowStopped: there are some.
        """
        if self.flow.mode.kind == "replace" and work.start is not None:
            refuse_mixed_partitions(self.flow, look.base)

    def check(self, look: Look[JavaBase], end: int) -> None:
        """See that all rows can be written.

        Args:
            look: at the target.
            end: the source's snapshot up to which.

        Raises:
            ServicesError: the SQL isn't what the flow's mode takes, or doesn't fit the target.
            NotStaged: the target's properties would let the rows go live at once.
        """
        refuse_unstageable(look.state.properties, self.flow.into)
        self._refuse_partitions(look)
        target, source = self.bench.spark.table(self.bench.name).schema, self.bench.whole(end).schema
        result = check_sql(self.bench.spark, self.flow, self.sql, source, target)
        refuse_other_values(self.flow, result, target)
        refuse_unwritable(self.bench.spark, self.flow, self.sql, self.bench.name, source)

    def _refuse_partitions(self, look: Look[JavaBase]) -> None:
        """See that whole files are replaced: each has rows of one partition."""
        metadata, mode = look.base.metadata, self.flow.mode
        if mode.kind == "replace" and mode.columns[0] not in identities(metadata, metadata.spec()):
            raise ServicesError(
                f"flow {self.flow.name}: {self.flow.into} isn't partitioned by the values of {mode.columns[0]}",
                hint=f"CREATE TABLE … PARTITIONED BY ({mode.columns[0]})",
            )

    def _stage(self, look: Look[JavaBase], step: Step, make: Callable[[], Callable[[], object]]) -> None:
        try:
            with java_errors(self.bench.name):
                write = make()
            self.bench.table.stage_sql(look, step, lambda _: write())
        except EngineRefused as error:
            # Spark names no table, and reads both.
            source = reserved_column(self.bench.spark, self.bench.source, self.flow.source)
            raise source if source and source.message == error.message else error from None
        except EngineError as error:
            if NOT_A_KEY in error.message:
                columns = ", ".join(self.flow.mode.columns)
                raise NotAKey(f"several rows of a snapshot have the same {columns}", table=self.flow.source) from None
            for said in (_CHANGED_KEY, _SAME_KEY, _OTHER_PARTITION):
                if said in error.message:
                    raise ServicesError(f"flow {self.flow.name}: {said.partition(': ')[2]}") from None
            if found := of_statement(error.message):
                raise ServicesError(
                    f"flow {self.flow.name}, its SQL fails on the source's rows, or its result on the target: "
                    f"{error.message} ({found})",
                    hint="correct the services file, or the rows",
                ) from None
            raise

    def _result(self, rows: DataFrame) -> DataFrame:
        show(rows, VIEW)
        return self.bench.spark.sql(self.sql)

    def _changed(self, planned: Staged, key: tuple[str, ...] = ()) -> DataFrame:
        return to_frame(self.bench.spark, planned, key, self.flow.source)

    def _all(self, end: int, *, clear: bool) -> Callable[[], object]:
        from pyspark.sql import functions as f

        if self.flow.mode.kind == "merge":
            planned = stage(self.bench.spark, self.bench.source, self.flow.source, None, end)
            rows = self._changed(planned, self.flow.mode.columns).drop(CHANGE)  # which sees that the key is one
        else:
            rows = self.bench.whole(end)
        result = self._result(rows)
        writer = (self._told_apart(result) if self.flow.mode.kind == "merge" else result).writeTo(self.bench.name)
        return (lambda: writer.overwrite(f.lit(True))) if clear else writer.append

    def _append(self, work: Work, planned: Staged) -> Callable[[], object]:
        from pyspark.sql import functions as f

        rows = self._changed(planned)
        # Without files from before, all that there is was inserted. A snapshot's operation is what its writer says.
        if planned.files[0] and rows.where(f.col(CHANGE) != INSERT).limit(1).count():
            raise NotOnlyAdded(
                f"rows were deleted or updated between snapshots {work.start} and {work.end}, and flow "
                f"{self.flow.name} only appends",
                table=self.flow.source,
                hint=f"sterna flow rebuild {self.flow.name}; or mode merge or replace, and then a rebuild",
            )
        return self._result(rows.drop(CHANGE)).writeTo(self.bench.name).append

    def _merge(self, work: Work, planned: Staged) -> Callable[[], object]:
        """Return what merges by key: keys that changed, each with its new row; without one it goes."""
        from pyspark.sql import functions as f

        key = self.flow.mode.columns
        changed = alone(self._changed(planned, key), self.bench.whole(work.end), key)
        new = self._told_apart(self._result(changed.where(f.col(CHANGE) != DELETE).drop(CHANGE)))
        names = new.schema.names
        places = [names.index(name) for name in key]
        # By place: a column of the user's may have any name.
        keys = changed.select(*[f.col(quoted(name)).alias(f"k{at}") for at, name in enumerate(key)])
        keys = keys.withColumn("known", f.lit(True))
        rows = new.toDF(*_places(names)).withColumn("given", f.lit(True))
        same = [f.col(f"k{at}").eqNullSafe(f.col(f"c{place}")) for at, place in enumerate(places)]
        both = keys.join(rows, same, "full_outer")
        refused = f.when(f.col("known").isNull(), f.raise_error(f.lit(_CHANGED_KEY)).cast("boolean"))
        stays = refused.otherwise(f.coalesce(f.col("given"), f.lit(False))).alias("stays")
        told = [f.col(f"k{places.index(at)}" if at in places else f"c{at}").alias(f"c{at}") for at in range(len(names))]
        # Computed once: MERGE reads its source twice. It would not take staged files through a view, either.
        both.select(*told, stays).localCheckpoint().createOrReplaceTempView(_ROWS)
        return lambda: self.bench.spark.sql(_merge_text(self.bench.name, places, names))

    def _told_apart(self, rows: DataFrame) -> DataFrame:
        """Return a merge's result; reading it fails where a key of it stands twice."""
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        names, places = rows.schema.names, _places(rows.schema.names)
        same = Window.partitionBy(*[places[names.index(name)] for name in self.flow.mode.columns])
        often = rows.toDF(*places).withColumn("n", f.count(f.lit(1)).over(same))
        twice = f.when(f.col("n") > 1, f.raise_error(f.lit(_SAME_KEY)).cast("boolean"))
        return often.where(twice.otherwise(f.lit(True))).select(*places).toDF(*names)

    def _replace(self, work: Work, planned: Staged) -> Callable[[], object]:
        """Return what recomputes the partitions of all rows that changed, from the whole source."""
        from pyspark.sql import functions as f

        (column,) = self.flow.mode.columns
        told = f.expr(self.flow.partition or quoted(column))
        found = self._changed(planned).select(told.alias("p")).distinct().limit(MOST_PARTITIONS + 1)
        kind = found.schema["p"].dataType.typeName()
        values = [row[0] for row in found.select(_number(f.col("p"), kind)).collect()]
        touched = [None if value is None else _literal(value, kind) for value in values]
        if len(touched) > MOST_PARTITIONS:
            raise ServicesError(
                f"flow {self.flow.name}: a step touches more than {MOST_PARTITIONS} partitions",
                hint=f"sterna flow rebuild {self.flow.name}, and a coarser partition",
            )
        rows = self.bench.whole(work.end)
        if not touched:  # what was rewritten has the same rows
            return self._result(rows.limit(0)).writeTo(self.bench.name).append
        result = self._result(rows.where(_among(told, touched)))
        refused = f.raise_error(f.lit(_OTHER_PARTITION)).cast(result.schema[column].dataType)
        inside = f.when(_among(f.col(quoted(column)), touched), f.col(quoted(column))).otherwise(refused)
        writer = result.withColumn(column, inside).writeTo(self.bench.name)
        return lambda: writer.overwrite(_among(f.col(quoted(column)), touched))


def _number(column: Column, kind: str) -> Column:
    """Return dates and times as numbers: Python's calendar ends with the year 9999, and has an hour twice."""
    from pyspark.sql import functions as f

    if kind == "date":
        return f.unix_date(column)
    return f.unix_micros(column.cast("timestamp")) if kind.startswith("timestamp") else column


def _literal(value: Any, kind: str) -> Column:
    """Return what `_number` made a number of, as a constant that Spark works out before it plans."""
    from pyspark.sql import functions as f

    if kind == "date":
        return f.date_from_unix_date(f.lit(value))
    return f.timestamp_micros(f.lit(value)).cast(kind) if kind.startswith("timestamp") else f.lit(value)


def of_statement(message: str) -> str:
    """Return the SQLSTATE by which Spark blames the statement or its rows, "" where it blames neither.

    Args:
        message: Spark's.
    """
    found = _OF_STATEMENT.search(message)
    return found[0] if found else ""


def _among(column: Column, values: list[Column | None]) -> Column:
    """Return whether a column has one of some values, of which null is one."""
    known = [value for value in values if value is not None]
    if len(known) == len(values):
        return column.isin(known)
    return column.isNull() | column.isin(known) if known else column.isNull()


def _places(names: Sequence[str]) -> list[str]:
    return [f"c{at}" for at in range(len(names))]


def _merge_text(name: str, key: Sequence[int], names: Sequence[str]) -> str:
    on = " AND ".join(f"t.{quoted(names[at])} <=> s.c{at}" for at in key)
    sets = ", ".join(f"t.{quoted(each)} = s.c{at}" for at, each in enumerate(names))
    columns, values = ", ".join(map(quoted, names)), ", ".join(f"s.{each}" for each in _places(names))
    return (
        f"MERGE INTO {name} t USING {_ROWS} s ON {on} "  # noqa: S608 - names are quoted
        f"WHEN MATCHED AND NOT s.stays THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {sets} "
        f"WHEN NOT MATCHED AND s.stays THEN INSERT ({columns}) VALUES ({values})"
    )
