"""The rows between two snapshots of a table, as a DataFrame."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.errors import UsageError
from sterna.pipelines.changes.kinds import CHANGE
from sterna.spark.changelog_scan import StagedChanges, load_named, resolve_snapshot, stage

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ("CHANGE", "between", "create_view", "plan_changes", "to_frame")

_views: dict[tuple[int, str], DataFrame] = {}  # by session and name of the view


def between(
    spark: SparkSession,
    table: str,
    start: int | str | None,
    end: int | str | None = None,
    *,
    key: Sequence[str] = (),
    view: str = "",
) -> DataFrame:
    """Return the rows that differ between two snapshots of a table.

    The columns are `_change_type` and the table's own, by the schema of the end. `_change_type` is `insert`, `delete`,
    `update_before` or `update_after`. Without the updates' pairing the rows are the difference of two multisets: what
    is deleted from the rows at the start, and added to the rest, makes the rows at the end, to the last duplicate.

    Files are planned at once; they are read when the DataFrame is, and have to be there until then.

    Args:
        spark: a classic session; its time zone and settings are used.
        table: the table's name in SQL, on whatever branch its catalog reads.
        start: a snapshot's id, or a branch or tag of the table; None: before the first row.
        end: the same; None: the current snapshot.
        key: columns that identify rows. Then each changed key is there once: as `insert` or `update_after` with its
            newest row, or as `delete` with its last one.
        view: a temporary view by that name is made, too.

    Returns:
        The rows, in no order that means anything.

    Raises:
        Gap: a snapshot is not kept, or the way between them isn't.
        NotAnAncestor: the start is no ancestor of the end.
        NeedsClassicSpark: the session is one on Spark Connect.
        UsageError: no such table, branch, tag or key column.
        EngineError: a manifest can't be read.
    """
    rows = to_frame(spark, plan_changes(spark, load_named(spark, table), table, start, end), key, table)
    if view:
        create_view(rows, view)
    return rows


def create_view(rows: DataFrame, view: str) -> None:
    """Make a temporary view of what `to_frame` returned.

    Spark 4.1 loads a view's table again at each use, so that no view holds what is staged for it: here it is held,
    until another view takes the name.

    Args:
        view: the view's name.
    """
    rows.createOrReplaceTempView(view)
    _views[id(rows.sparkSession), view] = rows


def plan_changes(
    spark: SparkSession, loaded: Any, table: str, start: int | str | None, end: int | str | None
) -> StagedChanges:
    """Plan what must be read; as `between`.

    Args:
        spark: as in `between`.
        loaded: the table in the JVM.
        table: what messages call it.
        start: as in `between`.
        end: as in `between`.
    """
    first = None if start is None else resolve_snapshot(loaded, table, start)
    return stage(spark, loaded, table, first, resolve_snapshot(loaded, table, end))


def to_frame(spark: SparkSession, planned: StagedChanges, key: Sequence[str], table: str) -> DataFrame:
    """Return the rows of what was planned; as `between`.

    Args:
        spark: as in `between`.
        key: as in `between`.
        table: what messages call it.

    Raises:
        UsageError: no such key column, or one that can't be a key; or a column has the name of ours.
    """
    from pyspark.sql.types import StructType

    from sterna.pipelines.changes.rows import difference

    schema = StructType.fromJson(json.loads(planned.schema))
    names = [field.name for field in schema.fields]
    if CHANGE in names:
        raise UsageError(f"the table has a column {CHANGE} of its own", table=table, hint="rename it")
    if missing := [name for name in key if name not in names]:
        raise UsageError(f"no column {', '.join(missing)} to be a key: there are {', '.join(names)}", table=table)
    return difference(
        spark,
        planned.read_before(),
        planned.read_after(),
        schema,
        [names.index(name) for name in key],
        planned.has_lineage,
    )
