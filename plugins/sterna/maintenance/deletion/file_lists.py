"""Lists of files that may have many millions of rows: what a store lists, and what of it is garbage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from functools import cache
from itertools import islice

from sterna.libraries import np, pa, pc
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount
from sterna.replication.replica.reachability import ReachedFiles
from sterna.storage.spill.sorted_rows import ExternalSorter

MAX_CHUNK_FILES = 10_000

ListedObject = tuple[str, int, datetime]
"""URI, size and time of last change of an object, as the store lists it."""


@cache
def schema() -> pa.Schema:
    """Columns: uri, size, modified."""
    return pa.schema([("uri", pa.string()), ("size", pa.int64()), ("modified", pa.timestamp("us", "UTC"))])


class Files:
    """Files with size and time of last change, on local disk beyond some hundred thousand.

    Args:
        parts: tables of `schema`, in any order.

    Raises:
        EngineError: the local disk is full; `add` raises it too.
    """

    def __init__(self, parts: Iterable[pa.Table] = ()) -> None:
        self._rows = ExternalSorter("uri")
        self.amount = ZERO_AMOUNT
        for part in parts:
            self.add(part)

    def add(self, part: pa.Table) -> None:
        """Add files; no file may be added twice."""
        if part.num_rows:
            self._rows.add(part)
            self.amount += table_amount(part)

    def parts(self) -> Iterator[pa.Table]:
        """Yield all files in the order of their URIs, in tables of some ten thousand."""
        if self.amount.files:
            yield from self._rows.sorted()


def to_table(files: Sequence[ListedObject]) -> pa.Table:
    """Return some files as a table."""
    return pa.table([list(column) for column in zip(*files, strict=True)] if files else [[], [], []], schema=schema())


def split_chunks(listing: Iterable[ListedObject]) -> Iterator[list[ListedObject]]:
    """Yield a listing in chunks that are checked at once."""
    objects = iter(listing)
    while chunk := list(islice(objects, MAX_CHUNK_FILES)):
        yield chunk


def filter_reached(files: Sequence[ListedObject], reached: ReachedFiles, *, wanted: bool) -> list[ListedObject]:
    """Return the files that are reached, or those that aren't."""
    reached_flags = reached.contains([uri for uri, _, _ in files]).to_pylist()
    return [file for file, is_reached in zip(files, reached_flags, strict=True) if is_reached == wanted]


def sum_amount(files: Iterable[ListedObject]) -> Amount:
    """Return how many files are listed and their size."""
    sizes = [size for _, size, _ in files]
    return Amount(len(sizes), sum(sizes))


def table_amount(part: pa.Table) -> Amount:
    """Return how many files there are and their size."""
    return Amount(part.num_rows, pc.sum(part.column("size")).as_py() or 0)


def exclude_reached(parts: Iterable[pa.Table], reached: ReachedFiles) -> Iterator[pa.Table]:
    """Yield the files that aren't reached."""
    for part in parts:
        yield part.filter(pc.invert(reached.contains(part.column("uri").to_pylist())))


def filter_by_uri(parts: Iterable[pa.Table], others: Iterable[pa.Table], *, wanted: bool = True) -> Iterator[pa.Table]:
    """Yield the files whose URIs are among others, or those whose URIs aren't; one table of each is in memory.

    Args:
        parts: the files, in the order of their URIs.
        others: a column `uri`, in order too.
        wanted: whether to yield those that are among them, or the rest.
    """
    rest = iter(others)
    other = next(rest, None)
    for part in parts:
        is_other = pa.array(np.zeros(len(part), np.bool_))
        while other is not None:
            is_other = pc.or_(is_other, pc.is_in(part.column("uri"), other.column("uri").combine_chunks()))
            if other.column("uri")[-1].as_py() > part.column("uri")[-1].as_py():
                break  # it may have some of the next files too
            other = next(rest, None)
        yield part.filter(is_other if wanted else pc.invert(is_other))
