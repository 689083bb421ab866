"""Position deletes as an Arrow table, for Parquet and ORC: their paths mapped, and their rows in order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from sterna.errors import BrokenMetadata
from sterna.iceberg.deletes.rows import rank_paths, row_order
from sterna.libraries import np, pa


@dataclass(frozen=True)
class LocalizedDeletes:
    """Position deletes with their new paths.

    Args:
        table: the rows in their old order; the column of paths is a dictionary, sorted.
        order: the numbers of the rows, in their new order.
    """

    table: Any
    order: Any

    def slices(self, rows: int) -> Iterator[Any]:
        """Yield tables of at most so many rows, in order: a large column has never more than two copies in memory."""
        for start in range(0, len(self.order), rows):
            yield self.table.take(pa.array(self.order[start : start + rows]))


def localize_table(
    table: Any, path: int, pos: int, map_content: Callable[[str], str], uri: str
) -> LocalizedDeletes | None:
    """Map the paths of position deletes.

    Args:
        table: the rows; the column of paths is a dictionary, because paths are many and few of them are distinct.
        path: the index of the column of paths.
        pos: the index of the column of positions, of type int64.
        map_content: maps the URI of a data file; called once for each distinct path.
        uri: the file's URI, for errors.

    Returns:
        The rows, or None when no path changes.

    Raises:
        BrokenMetadata: a row without path or position, or a path that is not UTF-8.
    """
    table = table.unify_dictionaries().combine_chunks()
    if not table.num_rows:
        return None
    if table.column(path).null_count or table.column(pos).null_count:
        raise BrokenMetadata("a position delete without path or position", file=uri)
    encoded = table.column(path).chunk(0)
    ranking = rank_paths(_decode_paths(encoded.dictionary, uri), map_content)
    if ranking is None:
        return None
    ranks = np.array(ranking.ranks, np.int32)[encoded.indices.to_numpy()]
    paths = pa.array([name.encode() for name in ranking.paths], pa.large_binary()).cast(encoded.dictionary.type)
    field = table.schema.field(path).with_type(pa.dictionary(pa.int32(), paths.type))
    table = table.set_column(path, field, pa.DictionaryArray.from_arrays(pa.array(ranks), paths))
    return LocalizedDeletes(table, row_order(ranks, table.column(pos).to_numpy()))


def _decode_paths(dictionary: Any, uri: str) -> list[str]:
    try:
        return [raw.decode() for raw in dictionary.cast(pa.large_binary()).to_pylist()]
    except (UnicodeDecodeError, AttributeError):
        raise BrokenMetadata("a position delete with a path that is not UTF-8", file=uri) from None
