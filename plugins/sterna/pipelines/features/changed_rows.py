"""A view's rows as Spark finds them, handed over as what is written: ids, and rows or None for what is gone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from sterna.config.sections.features import FeatureView
from sterna.pipelines.changes.between import to_frame
from sterna.pipelines.changes.keys import check_keys
from sterna.pipelines.changes.kinds import CHANGE, DELETE
from sterna.pipelines.features.codec import element_of, iter_rows, row_bytes
from sterna.pipelines.features.model import Column, join_id
from sterna.spark.changelog_scan import StagedChanges
from sterna.spark.read import iter_batches
from sterna.sql_identifiers import quote_backtick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_CHANGE_COLUMN, _ID_PREFIX, _RANK_COLUMN = "_sterna_here", "_sterna_id", "_sterna_turn"
SEPARATOR: Final = "\x00"
"""Separates the parts of an id, whose checksum decides whether it is in a sample."""
Rows = Iterator[tuple[str, bytes | None]]


class Frames:
    """A view's rows.

    Args:
        keys: the key's columns.
        columns: the view's.
    """

    def __init__(
        self, spark: SparkSession, view: FeatureView, keys: Sequence[Column], columns: Sequence[Column]
    ) -> None:
        self._spark, self._view, self._keys, self._columns = spark, view, keys, columns
        self._names = tuple(key.name for key in keys)

    def all_rows(self, planned: StagedChanges, sample: int = 1) -> Rows:
        """Yield all rows of a snapshot; of a view that isn't unique, each key's newest.

        Args:
            planned: from before the first row to the snapshot.
            sample: every so many ids, by their checksum.
        """
        yield from self._encode_rows(self._current_frame(planned, sample))

    def changed_rows(self, planned: StagedChanges, all_rows: DataFrame) -> Rows:
        """Yield the changed rows of a view whose key is unique.

        Args:
            all_rows: all rows at their end.
        """
        frame = check_keys(self._frame(planned, keyed=True), all_rows, self._names)
        yield from self._encode_rows(frame.withColumn(_CHANGE_COLUMN, frame[CHANGE]))

    def changed_ids(self, planned: StagedChanges) -> Rows:
        """Yield the ids of changed rows, all as gone: what a cache drops."""
        ids = (
            self._with_complete_keys(self._frame(planned, keyed=False))
            .select(*map(self._column, self._keys))
            .distinct()
        )
        for batch in iter_batches(ids):
            for parts in iter_rows(batch, self._keys):
                yield join_id([str(part) for part in parts]), None

    def newest_rows(self, planned: StagedChanges, history: StagedChanges) -> Rows:
        """Yield the newest row of each key that has changed rows.

        Args:
            history: from before the first row to their end.
        """
        from pyspark.sql import functions as f

        named = {f"{_ID_PREFIX}{at}": key for at, key in enumerate(self._keys)}
        changed = self._with_complete_keys(self._frame(planned, keyed=False))
        ids = changed.select(*(self._column(key).alias(id) for id, key in named.items())).distinct()
        same_key = [f.col(id) == self._column(key) for id, key in named.items()]
        joined = ids.join(self._current_frame(history, 1), same_key, "left")
        for id, key in named.items():
            joined = joined.withColumn(key.name, f.col(id))
        change = f.coalesce(f.col(_CHANGE_COLUMN), f.lit(DELETE))
        yield from self._encode_rows(joined.withColumn(_CHANGE_COLUMN, change))

    def _current_frame(self, planned: StagedChanges, sample: int) -> DataFrame:
        from pyspark.sql import Window
        from pyspark.sql import functions as f

        frame = self._frame(planned, keyed=self._view.unique)
        if sample > 1:
            id = f.concat_ws(SEPARATOR, *(self._column(key).cast("string") for key in self._keys))
            frame = frame.where(f.crc32(id) % sample == 0)
        if not self._view.unique:
            newest = [f.col(quote_backtick(str(self._view.event_time))).desc_nulls_last()]
            # Of several that are as new, always the same one, and the one that the replica returns.
            newest += [_sortable(self._column(column), column).desc_nulls_last() for column in self._columns]
            rank = f.row_number().over(Window.partitionBy(*map(self._column, self._keys)).orderBy(*newest))
            frame = frame.withColumn(_RANK_COLUMN, rank).where(f.col(_RANK_COLUMN) == 1)
        # The change itself, though all are inserts: Spark finds a key that is none while it makes this text.
        return frame.withColumn(_CHANGE_COLUMN, f.col(CHANGE))

    def _frame(self, planned: StagedChanges, *, keyed: bool) -> DataFrame:
        return to_frame(self._spark, planned, self._names if keyed else (), self._view.table)

    def _with_complete_keys(self, frame: DataFrame) -> DataFrame:
        """Drop rows with a NULL in their key: no request can name them."""
        for key in self._keys:
            frame = frame.where(self._column(key).isNotNull())
        return frame

    def _encode_rows(self, frame: DataFrame) -> Rows:
        names = [self._column(column) for column in (*self._keys, *self._columns)]
        kinds, parts = (Column(_CHANGE_COLUMN, 0, "string"), *self._keys, *self._columns), len(self._keys)
        for batch in iter_batches(self._with_complete_keys(frame).select(_CHANGE_COLUMN, *names)):
            for change, *values in iter_rows(batch, kinds):
                id = join_id([str(part) for part in values[:parts]])
                yield id, None if change == DELETE else row_bytes(values[parts:])

    @staticmethod
    def _column(column: Column) -> Any:
        from pyspark.sql import functions as f

        return f.col(quote_backtick(column.name))


def _sortable(column: Any, kind: Column) -> Any:
    """Return what is ordered as the replica orders it: there a null is the greatest element of a list."""
    from pyspark.sql import functions as f

    if element_of(kind.type) is None:
        return column
    return f.transform(column, lambda element: f.struct(element.isNull(), element))
