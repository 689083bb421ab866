"""Checks a key against all rows of a snapshot, not only those of the files that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.pipelines.changes.kinds import CHANGE, DELETE, NOT_A_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MAX_BROADCAST_ROWS = 1_000_000


def check_keys(changes: DataFrame, snapshot: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return changes by key, checked against the snapshot that they lead to: each key has the one row that they say.

    A second row of a key may be in a file that didn't change. When one of the two is deleted, by the changes the key is
    gone. So rows are counted by key in the whole snapshot, of which the key's columns alone are read.

    Args:
        changes: what `sterna.pipelines.changes.between.to_frame` returned for the key.
        snapshot: all rows at the end.
        key: the key's columns.

    Returns:
        The changes, computed once. Reading fails with `NOT_A_KEY` where a key has other rows.
    """
    from pyspark.sql import functions as f

    names = changes.columns
    indexes = [names.index(name) for name in key]
    checkpoint = changes.toDF(*[f"c{position}" for position in range(len(names))]).localCheckpoint()
    keys = checkpoint.select(*[f.col(f"c{index}").alias(f"k{position}") for position, index in enumerate(indexes)])
    snapshot_rows = snapshot.toDF(*[f"w{position}" for position in range(len(snapshot.columns))])
    columns = [f"w{snapshot.columns.index(name)}" for name in key]
    if checkpoint.count() <= _MAX_BROADCAST_ROWS:
        keys = f.broadcast(keys)  # Spark can't estimate how few they are, and would shuffle the keys of all rows
    counted = (
        snapshot_rows.select(*columns)
        .join(keys, _equal(columns, [f"k{position}" for position in range(len(key))]), "left_semi")
        .groupBy(*columns)
        .agg(f.count(f.lit(1)).alias("n"))
    )
    change = f.col(f"c{names.index(CHANGE)}")
    is_consistent = f.coalesce(f.col("n"), f.lit(0)) == f.when(change == DELETE, 0).otherwise(1)
    joined = checkpoint.join(counted, _equal([f"c{index}" for index in indexes], columns), "left")
    checked = f.when(is_consistent, f.lit(True)).otherwise(f.raise_error(f.lit(NOT_A_KEY)).cast("boolean"))
    return joined.where(checked).select(*checkpoint.columns).toDF(*names)


def _equal(left_columns: Sequence[str], right_columns: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.col(left).eqNullSafe(f.col(right)) for left, right in zip(left_columns, right_columns, strict=True)]
