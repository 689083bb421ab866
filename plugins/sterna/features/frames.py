"""A view's rows as Spark finds them, handed over as what is written: ids, and rows or None for what is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from sterna.changes.between import to_frame
from sterna.changes.keys import alone
from sterna.changes.rows import CHANGE, DELETE
from sterna.edges.spark.staged_changes import Staged
from sterna.edges.spark.tables import batches
from sterna.features.codec import row_bytes, rows_of
from sterna.features.model import Column
from sterna.services.features import View

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_HERE, _ID, _TURN = "_sterna_here", "_sterna_id", "_sterna_turn"
Rows = Iterator[tuple[str, bytes | None]]


class Frames:
    """A view's rows.

    Args:
        spark: the session.
        view: the view.
        key: the key's column.
        columns: the view's.
    """

    def __init__(self, spark: SparkSession, view: View, key: Column, columns: Sequence[Column]) -> None:
        self._spark, self._view, self._key, self._columns = spark, view, key, columns

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
        frame = alone(self._frame(planned, keyed=True), whole, (self._key.name,))
        yield from self._handed(frame.withColumn(_HERE, frame[CHANGE]))

    def changed_ids(self, planned: Staged) -> Rows:
        """Yield the ids of changed rows, all as gone: what a cache drops."""
        from pyspark.sql import functions as f

        ids = self._frame(planned, keyed=False).select(self._column(self._key)).distinct()
        for batch in batches(ids.where(f.col(ids.columns[0]).isNotNull())):
            for (id,) in rows_of(batch, [self._key]):
                yield str(id), None

    def newest_of(self, planned: Staged, whole: Staged) -> Rows:
        """Yield the newest row of each key that has changed rows.

        Args:
            planned: the changes.
            whole: from before the first row to their end.
        """
        from pyspark.sql import functions as f

        ids = self._frame(planned, keyed=False).select(self._column(self._key).alias(_ID)).distinct()
        now = self._current(whole, 1)
        joined = ids.where(f.col(_ID).isNotNull()).join(now, f.col(_ID) == self._column(self._key), "left")
        there = f.coalesce(f.col(_HERE), f.lit(DELETE))
        yield from self._handed(joined.withColumn(self._key.name, f.col(_ID)).withColumn(_HERE, there))

    def _current(self, planned: Staged, sample: int) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        frame = self._frame(planned, keyed=self._view.unique)
        if sample > 1:
            frame = frame.where(f.crc32(self._column(self._key).cast("string")) % sample == 0)
        if not self._view.unique:
            newest = [f.col(_quoted(str(self._view.event_time))).desc_nulls_last()]
            # Of several that are as new, always the same one, and the one that the replica tells.
            newest += [self._column(each).desc_nulls_last() for each in self._columns]
            turn = f.row_number().over(Window.partitionBy(self._column(self._key)).orderBy(*newest))
            frame = frame.withColumn(_TURN, turn).where(f.col(_TURN) == 1)
        # The change itself, though all are inserts: Spark finds a key that is none while it makes this text.
        return frame.withColumn(_HERE, f.col(CHANGE))

    def _frame(self, planned: Staged, *, keyed: bool) -> DataFrame:
        key = (self._key.name,) if keyed else ()
        return to_frame(self._spark, planned, key, self._view.table)

    def _handed(self, frame: DataFrame) -> Rows:
        names = [self._column(each) for each in (self._key, *self._columns)]
        wanted = frame.where(self._column(self._key).isNotNull()).select(_HERE, *names)
        for batch in batches(wanted):
            kinds = (Column(_HERE, 0, "string"), self._key, *self._columns)
            for here, id, *row in rows_of(batch, kinds):
                yield str(id), None if here == DELETE else row_bytes(row)

    @staticmethod
    def _column(column: Column) -> Any:
        from pyspark.sql import functions as f

        return f.col(_quoted(column.name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
