"""The list of files of a plan: one Arrow table, a row for every file that a table's new version needs here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

# The parts a file plays in a table; those from POSITION_DELETE on are path-bearing, in the order in which they are
# localized.
CONTENT = "content"
POSITION_DELETE = "position-delete"
MANIFEST = "manifest"
DELETE_MANIFEST = "delete-manifest"
INLINE_MANIFEST = "inline-manifest"  # named by a format v1 snapshot itself, which has no manifest list
MANIFEST_LIST = "manifest-list"
METADATA = "metadata"
VIEW_METADATA = "view-metadata"
LOCALIZE_ORDER = (POSITION_DELETE, DELETE_MANIFEST, MANIFEST, INLINE_MANIFEST, MANIFEST_LIST, METADATA, VIEW_METADATA)

# In the column `batch` of a plan's files: this one is localized, not copied; this one is proven here already.
TO_LOCALIZE = -1
PROVEN = -2

AT_ONCE = 50_000


@cache
def schema() -> pa.Schema:
    """Columns: table (key name), role, source (URI on `main`), target (URI here), size (bytes.

    -1 unknown), batch (see `model`).
    """
    import pyarrow as pa

    texts = [(name, pa.string()) for name in ("table", "role", "source", "target")]
    return pa.schema([*texts, ("size", pa.int64()), ("batch", pa.int32())])


def rows(table: str, role: str, files: Iterable[tuple[str, str, int]], batch: int = TO_LOCALIZE) -> pa.Table:
    """Return rows of one table and role from (source, target, size)."""
    import pyarrow as pa

    listed = list(files)
    sources, targets = (pa.array([file[at] for file in listed], pa.string()) for at in (0, 1))
    return columns(table, role, sources, targets, pa.array([file[2] for file in listed], pa.int64()), batch)


def columns(table: str, role: str, sources: pa.Array, targets: pa.Array, sizes: pa.Array, batch: int) -> pa.Table:
    """Return rows of one table and role from their columns."""
    import pyarrow as pa

    count = len(sources)
    names = pa.array([table] * count, pa.string())  # in chunks of 2 GiB, which `repeat` would overflow with a long name
    kind, number = pa.repeat(pa.scalar(role), count), pa.repeat(pa.scalar(batch, pa.int32()), count)
    return pa.table([names, kind, sources, targets, sizes, number], schema=schema())


def joined(parts: Sequence[pa.Table]) -> pa.Table:
    """Return all rows."""
    import pyarrow as pa

    return pa.concat_tables(parts) if parts else schema().empty_table()


def distinct(files: pa.Table) -> pa.Table:
    """Return the rows of one table, each source of a role once."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    # Hashes, for a set of a million names takes as much again as the names themselves.
    hashes = [
        np.fromiter(map(hash, rows.column("source").to_pylist()), np.int64, rows.num_rows)
        for rows in files.to_batches()
    ]
    if not hashes or len(np.unique(np.concatenate(hashes))) == files.num_rows:
        return files
    numbered = files.append_column("row", pa.array(range(files.num_rows), pa.int64()))
    first = numbered.group_by(["role", "source"]).aggregate([("row", "min")]).column("row_min")
    return files.take(first.take(pc.sort_indices(first)))


def with_role(files: pa.Table, *roles: str) -> pa.Table:
    """Return the rows of these roles; where a stretch of rows has one role, as plans make them, nothing is copied."""
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = pa.array(roles, pa.string())
    found = []
    for rows in files.to_batches():
        kinds = rows.column("role").unique().to_pylist()
        if len(kinds) > 1:
            found.append(rows.filter(pc.is_in(rows.column("role"), wanted)))
        elif kinds and kinds[0] in roles:
            found.append(rows)
    return pa.Table.from_batches(found, files.schema)


def to_localize(files: pa.Table, *roles: str) -> pa.Table:
    """Return the rows of these roles, by default of all that are localized, whose localized copies are not there
    yet.
    """
    import pyarrow.compute as pc

    found = with_role(files, *(roles or LOCALIZE_ORDER))
    return found.filter(pc.not_equal(found.column("batch"), PROVEN))


def by_batch(files: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number and the rows of each batch to be copied."""
    import numpy as np
    import pyarrow as pa

    chunks = files.to_batches()
    starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])
    numbers = files.column("batch").to_numpy()
    order = np.argsort(numbers, kind="stable")
    found, places = np.unique(numbers[order], return_index=True)
    bounds = [*places.tolist(), len(order)]
    # One batch after the other: together they would be another copy of all rows. And each from the chunks that have
    # rows of it: a look at all rows for each of thousands of batches would take longer than the plan.
    for batch, first, last in zip(found.tolist(), bounds, bounds[1:], strict=False):
        if batch < 0:
            continue
        rows = order[first:last]
        ends = np.searchsorted(rows, starts)
        parts = [
            chunk.take(pa.array(rows[begin:end] - start))
            for chunk, start, begin, end in zip(chunks, starts, ends, ends[1:], strict=False)
            if end > begin
        ]
        yield batch, pa.Table.from_batches(parts, files.schema).combine_chunks()


def with_batches(files: pa.Table, numbers: pa.Array) -> pa.Table:
    """Return rows with other numbers of batches."""
    return files.set_column(files.schema.get_field_index("batch"), schema().field("batch"), numbers)


def copied_by_table(files: pa.Table) -> dict[str, tuple[int, int]]:
    """Return, by table, how many files are to be copied, and their bytes; what several tables need counts for each."""
    import pyarrow as pa
    import pyarrow.compute as pc

    chosen = files.select(["table", "size", "batch"]).filter(pc.greater_equal(files.column("batch"), 0))
    # In halves: a few files that are said to be huge are more than 64 bits hold.
    low, high = pc.bit_wise_and(chosen.column("size"), 0xFFFFFFFF), pc.shift_right(chosen.column("size"), 32)
    halves = pa.table({"table": chosen.column("table"), "low": low, "high": high})
    rows = halves.group_by("table").aggregate([("low", "count"), ("low", "sum"), ("high", "sum")]).to_pylist()
    return {row["table"]: (row["low_count"], (row["high_sum"] << 32) + row["low_sum"]) for row in rows}


def batches_by_table(files: pa.Table) -> dict[str, list[int]]:
    """Return, by table, the numbers of the batches that have files for it."""
    import pyarrow.compute as pc

    chosen = files.select(["table", "batch"]).filter(pc.greater_equal(files.column("batch"), 0))
    pairs = chosen.group_by(["table", "batch"]).aggregate([]).group_by("table").aggregate([("batch", "list")])
    return {row["table"]: row["batch_list"] for row in pairs.to_pylist()}


def stretches(texts: pa.ChunkedArray, order: pa.Array) -> Iterator[tuple[Any, pa.StringArray, pa.BooleanArray]]:
    """Yield texts in an order, some 50,000 at a time: their rows (a numpy array), the texts, and which differ from
    the one before.

    They are taken chunk by chunk: taken from all chunks at once, pyarrow would first put all of them into one.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    starts = np.cumsum([0, *(len(chunk) for chunk in texts.chunks)])
    last = pa.array([None], pa.string())
    for start in range(0, len(order), AT_ONCE):
        rows = order.slice(start, AT_ONCE).to_numpy().astype(np.int64)
        places = np.searchsorted(starts, rows, side="right") - 1
        by_chunk = np.argsort(places, kind="stable")
        parts = []
        for mine in np.split(by_chunk, np.flatnonzero(np.diff(places[by_chunk])) + 1):
            number = int(places[mine[0]])
            parts.append(texts.chunk(number).take(pa.array(rows[mine] - starts[number])))
        found = pa.concat_arrays(parts).take(pa.array(np.argsort(by_chunk)))
        yield rows, found, pc.fill_null(pc.not_equal(found, pa.concat_arrays([last, found[:-1]])), True)
        last = found[-1:]


def manifests_by_table(files: pa.Table) -> dict[str, list[int]]:
    """Return, by key name, the sizes of the manifests that are to be localized, -1 where nobody tells."""
    found: dict[str, list[int]] = {}
    for row in to_localize(files, MANIFEST, DELETE_MANIFEST, INLINE_MANIFEST).select(["table", "size"]).to_pylist():
        found.setdefault(row["table"], []).append(row["size"])
    return found


def of_tables(files: pa.Table, tables: Iterable[str]) -> pa.Table:
    """Return the rows of some tables."""
    return files.filter(_is_of(files, tables))


def without_tables(files: pa.Table, tables: Iterable[str]) -> pa.Table:
    """Return the rows of all other tables."""
    import pyarrow.compute as pc

    return files.filter(pc.invert(_is_of(files, tables)))


def _is_of(files: pa.Table, tables: Iterable[str]) -> pa.ChunkedArray:
    """Return, for each row, whether it is of one of some tables."""
    import pyarrow as pa
    import pyarrow.compute as pc

    return pc.is_in(files.column("table"), pa.array(list(tables), pa.string()))
