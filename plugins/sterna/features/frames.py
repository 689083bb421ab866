"""A view's rows as Spark finds them, handed over as what is written: ids, and rows or None for what is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sterna.changes.between import to_frame
from sterna.changes.keys import alone
from sterna.changes.rows import CHANGE, DELETE
from sterna.edges.spark.staged_changes import Staged
from sterna.edges.spark.tables import batches
from sterna.features.codec import element_of, row_bytes, rows_of
from sterna.features.model import Column, joined_id
from sterna.services.features import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HERE, _ID, _TURN = "_sterna_here", "_sterna_id", "_sterna_turn"
SEPARATOR: Final = "\x00"
"""Between the parts of an id whose checksum says whether it is in a sample."""
Rows = Iterator[tuple[str, bytes | None]]


class Frames:
    """A view's rows.

    Args:
        spark: the session.
        view: the view.
        keys: the key's columns.
        columns: the view's.
    """

    def __init__(self, spark: SparkSession, view: View, keys: Sequence[Column], columns: Sequence[Column]) -> None:
        self._spark, self._view, self._keys, self._columns = spark, view, keys, columns
        self._names = tuple(key.name for key in keys)

    def all(self, planned: Staged, sample: int = 1) -> Rows:
        """Yield all rows of a snapshot; of a view that isn't unique, each key's newest.

        Args:
            planned: from before the first row to the snapshot.
            sample: every so many ids, by their checksum.
        """
        yield from self._handed(self._current(planned, sample))

    def changed(self, planned: Staged, whole: DataFrame) -> Rows:
        """Yield the changed rows of a view whose key is unique.

        Args:
            planned: the changes.
            whole: all rows at their end.
        """
        frame = alone(self._frame(planned, keyed=True), whole, self._names)
        yield from self._handed(frame.withColumn(_HERE, frame[CHANGE]))

    def changed_ids(self, planned: Staged) -> Rows:
        """Yield the ids of changed rows, all as gone: what a cache drops."""
        ids = self._whole_keys(self._frame(planned, keyed=False)).select(*map(self._column, self._keys)).distinct()
        for batch in batches(ids):
            for parts in rows_of(batch, self._keys):
                yield joined_id([str(part) for part in parts]), None

    def newest_of(self, planned: Staged, whole: Staged) -> Rows:
        """Yield the newest row of each key that has changed rows.

        Args:
            planned: the changes.
            whole: from before the first row to their end.
        """
        from pyspark.sql import functions as f

        named = {f"{_ID}{at}": key for at, key in enumerate(self._keys)}
        changed = self._whole_keys(self._frame(planned, keyed=False))
        ids = changed.select(*(self._column(key).alias(id) for id, key in named.items())).distinct()
        same = [f.col(id) == self._column(key) for id, key in named.items()]
        joined = ids.join(self._current(whole, 1), same, "left")
        for id, key in named.items():
            joined = joined.withColumn(key.name, f.col(id))
        there = f.coalesce(f.col(_HERE), f.lit(DELETE))
        yield from self._handed(joined.withColumn(_HERE, there))

    def _current(self, planned: Staged, sample: int) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        frame = self._frame(planned, keyed=self._view.unique)
        if sample > 1:
            id = f.concat_ws(SEPARATOR, *(self._column(key).cast("string") for key in self._keys))
            frame = frame.where(f.crc32(id) % sample == 0)
        if not self._view.unique:
            newest = [f.col(_quoted(str(self._view.event_time))).desc_nulls_last()]
            # Of several that are as new, always the same one, and the one that the replica tells.
            newest += [_sortable(self._column(each), each).desc_nulls_last() for each in self._columns]
            turn = f.row_number().over(Window.partitionBy(*map(self._column, self._keys)).orderBy(*newest))
            frame = frame.withColumn(_TURN, turn).where(f.col(_TURN) == 1)
        # The change itself, though all are inserts: Spark finds a key that is none while it makes this text.
        return frame.withColumn(_HERE, f.col(CHANGE))

    def _frame(self, planned: Staged, *, keyed: bool) -> DataFrame:
        return to_frame(self._spark, planned, self._names if keyed else (), self._view.table)

    def _whole_keys(self, frame: DataFrame) -> DataFrame:
        """Leave out rows whose key lacks a part: nobody can ask for them."""
        for key in self._keys:
            frame = frame.where(self._column(key).isNotNull())
        return frame

    def _handed(self, frame: DataFrame) -> Rows:
        names = [self._column(each) for each in (*self._keys, *self._columns)]
        kinds, parts = (Column(_HERE, 0, "string"), *self._keys, *self._columns), len(self._keys)
        for batch in batches(self._whole_keys(frame).select(_HERE, *names)):
            for here, *values in rows_of(batch, kinds):
                id = joined_id([str(part) for part in values[:parts]])
                yield id, None if here == DELETE else row_bytes(values[parts:])

    @staticmethod
    def _column(column: Column) -> Any:
        from pyspark.sql import functions as f

        return f.col(_quoted(column.name))


def _sortable(column: Any, kind: Column) -> Any:
    """Return what is ordered as the replica orders it: there a null is the greatest element of a list."""
    from pyspark.sql import functions as f

    if element_of(kind.type) is None:
        return column
    return f.transform(column, lambda element: f.struct(element.isNull(), element))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
