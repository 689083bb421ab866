"""A key looked at in all rows of a snapshot, not only in those of the files that differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.changes.rows import CHANGE, DELETE, NOT_A_KEY

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_MAX_BROADCAST_ROWS = 1_000_000


def alone(changed: DataFrame, whole: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return changes by key after a look at the snapshot that they lead to: each key has the one row that they say.

    A second row of a key may lie in a file that didn't change. When one of the two goes, the changes say that the key
    is gone. So rows are counted by key in the whole snapshot, of which the key's columns alone are read.

    Args:
        changed: what `sterna.changes.between.to_frame` returned for the key.
        whole: all rows at the end.
        key: the key's columns.

    Returns:
        The changes, computed once. Reading fails with `NOT_A_KEY` where a key has other rows.
    """
    from pyspark.sql import functions as f

    names = changed.columns
    places = [names.index(name) for name in key]
    kept = changed.toDF(*[f"c{at}" for at in range(len(names))]).localCheckpoint()
    keys = kept.select(*[f.col(f"c{place}").alias(f"k{at}") for at, place in enumerate(places)])
    there = whole.toDF(*[f"w{at}" for at in range(len(whole.columns))])
    columns = [f"w{whole.columns.index(name)}" for name in key]
    if kept.count() <= _MAX_BROADCAST_ROWS:
        keys = f.broadcast(keys)  # Spark doesn't know how few they are, and would shuffle the keys of all rows
    counted = (
        there.select(*columns)
        .join(keys, _equal(columns, [f"k{at}" for at in range(len(key))]), "left_semi")
        .groupBy(*columns)
        .agg(f.count(f.lit(1)).alias("n"))
    )
    change = f.col(f"c{names.index(CHANGE)}")
    right = f.coalesce(f.col("n"), f.lit(0)) == f.when(change == DELETE, 0).otherwise(1)
    joined = kept.join(counted, _equal([f"c{place}" for place in places], columns), "left")
    checked = f.when(right, f.lit(True)).otherwise(f.raise_error(f.lit(NOT_A_KEY)).cast("boolean"))
    return joined.where(checked).select(*kept.columns).toDF(*names)


def _equal(some: Sequence[str], others: Sequence[str]) -> list[Column]:
    from pyspark.sql import functions as f

    return [f.col(one).eqNullSafe(f.col(other)) for one, other in zip(some, others, strict=True)]
