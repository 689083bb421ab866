"""Lists of files that may have many millions of rows: what a store lists, and what of it is garbage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING

from sterna.cleaning.model import Amount
from sterna.replica.reach import ReachedFiles

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 10_000

Listed = tuple[str, int, datetime]
"""URI, size and time of last change of an object, as the store lists it."""


@cache
def schema() -> pa.Schema:
    """Columns: uri, size, modified."""
    import pyarrow as pa

    return pa.schema([("uri", pa.string()), ("size", pa.int64()), ("modified", pa.timestamp("us", "UTC"))])


def table(files: Sequence[Listed]) -> pa.Table:
    """Return some files as a table."""
    import pyarrow as pa

    return pa.table([list(column) for column in zip(*files, strict=True)] if files else [[], [], []], schema=schema())


def chunks(listing: Iterable[Listed]) -> Iterator[list[Listed]]:
    """Yield a listing in parts that are looked at at once."""
    items = iter(listing)
    while chunk := list(islice(items, _AT_ONCE)):
        yield chunk


def filtered(files: Sequence[Listed], reached: ReachedFiles, *, wanted: bool) -> list[Listed]:
    """Return the files that are reached, or those that aren't."""
    answers = reached.has([uri for uri, _, _ in files]).to_pylist()
    return [item for item, answer in zip(files, answers, strict=True) if answer == wanted]


def total(listed: Iterable[Listed]) -> Amount:
    """Return how many files are listed and their size."""
    sizes = [size for _, size, _ in listed]
    return Amount(len(sizes), sum(sizes))


def amount(files: pa.Table) -> Amount:
    """Return how many files there are and their size."""
    import pyarrow.compute as pc

    return Amount(files.num_rows, pc.sum(files.column("size")).as_py() or 0)


def without(files: pa.Table, reached: ReachedFiles) -> pa.Table:
    """Return the files that aren't reached."""
    import pyarrow.compute as pc

    return files.filter(pc.invert(reached.has(files.column("uri").to_pylist())))


def gone(doomed: pa.Table, failures: Mapping[str, object]) -> pa.Table:
    """Return what of the files that were to be deleted is gone."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return doomed.filter(pc.invert(pc.is_in(doomed.column("uri"), pa.array(list(failures), pa.string()))))


def left(unreachable: pa.Table, doomed: pa.Table, failures: Mapping[str, object]) -> pa.Table:
    """Return what is unreachable still after a deletion."""
    import pyarrow.compute as pc

    away = gone(doomed, failures).column("uri").combine_chunks()
    return unreachable.filter(pc.invert(pc.is_in(unreachable.column("uri"), away)))
