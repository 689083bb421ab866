"""What position delete files of all formats share.

Their columns, their limits, the mapping of their paths and their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata
from sterna.libraries import np

PATH_ID: Final = 2147483546
PATH_NAME: Final = "file_path"
POS_ID: Final = 2147483545
POS_NAME: Final = "pos"


@dataclass(frozen=True)
class Ranking:
    """The mapped paths of a file, in their order.

    Args:
        paths: the distinct new paths, sorted by their bytes.
        ranks: for each old path, the index of its new path in `paths`.
    """

    paths: list[str]
    ranks: list[int]


def rank_paths(old: Sequence[str], map_content: Callable[[str], str]) -> Ranking | None:
    """Map paths and sort them.

    Args:
        old: the distinct paths of a file.
        map_content: maps the URI of a data file; called once for each.

    Returns:
        The ranking, or None when every path maps to itself.
    """
    new = [map_content(path) for path in old]
    if new == list(old):
        return None
    # Iceberg compares paths by code points, which is the order of their UTF-8 bytes.
    paths = sorted(set(new), key=str.encode)
    rank = {path: number for number, path in enumerate(paths)}
    return Ranking(paths, [rank[path] for path in new])


def row_order(ranks: Any, positions: Any) -> Any:
    """Return the order that position deletes must have: by path, then by position; equal rows keep theirs.

    Args:
        ranks: the rank of each row's path, an array.
        positions: each row's position, an array.

    Returns:
        The numbers of the rows, in the new order.
    """
    return np.lexsort((positions, ranks))


def validate_size(rows: int, size: int, uri: str, limits: Limits) -> None:
    """Refuse what would not fit in a worker's memory.

    Args:
        rows: how many rows the file has, or declares.
        size: how many bytes they take after their codec.
        uri: the file's URI, for errors.

    Raises:
        OverLimit: there are more than the limits allow.
        BrokenMetadata: a negative number.
    """
    if rows < 0 or size < 0:
        raise BrokenMetadata(f"a position delete file of {rows} rows and {size} bytes", file=uri)
    limits.check("delete_rows", rows, "rows of position deletes", uri)
    limits.check("delete_bytes", size, "bytes of position deletes", uri)


def find_column(ids: Sequence[int | None], names: Sequence[str], field_id: int, name: str, uri: str) -> int:
    """Find a column by its field id; by its name only in a file that has no ids at all.

    Args:
        ids: the field id of each column.
        names: the name of each column.
        field_id: the wanted field id.
        name: the wanted name.
        uri: the file's URI, for errors.

    Returns:
        The column's index.

    Raises:
        BrokenMetadata: not exactly one such column.
    """
    with_ids = any(value is not None for value in ids)
    matches = [at for at, value in enumerate(ids if with_ids else names) if value == (field_id if with_ids else name)]
    if len(matches) != 1:
        raise BrokenMetadata(f"no column with the field id {field_id} ({name})", file=uri)
    return matches[0]
