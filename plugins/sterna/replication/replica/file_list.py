"""The list of files of a plan: one Arrow table, a row for every file that a table's new version needs here."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any

from sterna.libraries import np, pa, pc

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

CHUNK_ROWS = 50_000


@cache
def schema() -> pa.Schema:
    """Columns: table (key name), role, source (URI on `main`), target (URI here), size and batch.

    The size is in bytes; -1: unknown. The batch is a `CopyBatch`'s number, `TO_LOCALIZE` or `PROVEN`.
    """
    texts = [(name, pa.string()) for name in ("table", "role", "source", "target")]
    return pa.schema([*texts, ("size", pa.int64()), ("batch", pa.int32())])


def rows(table: str, role: str, files: Iterable[tuple[str, str, int]], batch: int = TO_LOCALIZE) -> pa.Table:
    """Return rows of one table and role from (source, target, size)."""
    file_list = list(files)
    sources, targets = (pa.array([file[column] for file in file_list], pa.string()) for column in (0, 1))
    return columns(table, role, sources, targets, pa.array([file[2] for file in file_list], pa.int64()), batch)


def columns(table: str, role: str, sources: pa.Array, targets: pa.Array, sizes: pa.Array, batch: int) -> pa.Table:
    """Return rows of one table and role from their columns."""
    count = len(sources)
    names = pa.array([table] * count, pa.string())  # in chunks of 2 GiB, which `repeat` would overflow with a long name
    kind, number = pa.repeat(pa.scalar(role), count), pa.repeat(pa.scalar(batch, pa.int32()), count)
    return pa.table([names, kind, sources, targets, sizes, number], schema=schema())


def concat_files(parts: Sequence[pa.Table]) -> pa.Table:
    """Return all rows."""
    return pa.concat_tables(parts) if parts else schema().empty_table()


def distinct(files: pa.Table) -> pa.Table:
    """Return the rows of one table, each source of a role once."""
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


def filter_roles(files: pa.Table, *roles: str) -> pa.Table:
    """Return the rows of these roles; a contiguous range of rows of one role, as plans write them, isn't copied."""
    role_array = pa.array(roles, pa.string())
    batches = []
    for rows in files.to_batches():
        kinds = rows.column("role").unique().to_pylist()
        if len(kinds) > 1:
            batches.append(rows.filter(pc.is_in(rows.column("role"), role_array)))
        elif kinds and kinds[0] in roles:
            batches.append(rows)
    return pa.Table.from_batches(batches, files.schema)


def files_to_localize(files: pa.Table, *roles: str) -> pa.Table:
    """Return the rows of these roles, by default of all that are localized, whose localized copies are not there
    yet.
    """
    candidates = filter_roles(files, *(roles or LOCALIZE_ORDER))
    return candidates.filter(pc.not_equal(candidates.column("batch"), PROVEN))


def split_by_batch(files: pa.Table) -> Iterator[tuple[int, pa.Table]]:
    """Yield the number and the rows of each batch to be copied."""
    chunks = files.to_batches()
    starts = np.cumsum([0, *(len(chunk) for chunk in chunks)])
    numbers = files.column("batch").to_numpy()
    order = np.argsort(numbers, kind="stable")
    batch_numbers, offsets = np.unique(numbers[order], return_index=True)
    bounds = [*offsets.tolist(), len(order)]
    # One batch after the other: together they would be another copy of all rows. And each from the chunks that have
    # rows of it: filtering all rows for each of thousands of batches would take longer than the plan.
    for batch, first, last in zip(batch_numbers.tolist(), bounds, bounds[1:], strict=False):
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


def with_batch_numbers(files: pa.Table, numbers: pa.Array) -> pa.Table:
    """Return rows with other numbers of batches."""
    return files.set_column(files.schema.get_field_index("batch"), schema().field("batch"), numbers)


def copied_by_table(files: pa.Table) -> dict[str, tuple[int, int]]:
    """Return, by table, how many files are to be copied, and their bytes; what several tables need counts for each."""
    copied = files.select(["table", "size", "batch"]).filter(pc.greater_equal(files.column("batch"), 0))
    # In halves: a few files with huge claimed sizes exceed 64 bits.
    low, high = pc.bit_wise_and(copied.column("size"), 0xFFFFFFFF), pc.shift_right(copied.column("size"), 32)
    halves = pa.table({"table": copied.column("table"), "low": low, "high": high})
    rows = halves.group_by("table").aggregate([("low", "count"), ("low", "sum"), ("high", "sum")]).to_pylist()
    return {row["table"]: (row["low_count"], (row["high_sum"] << 32) + row["low_sum"]) for row in rows}


def batches_by_table(files: pa.Table) -> dict[str, list[int]]:
    """Return, by table, the numbers of the batches that have files for it."""
    copied = files.select(["table", "batch"]).filter(pc.greater_equal(files.column("batch"), 0))
    pairs = copied.group_by(["table", "batch"]).aggregate([]).group_by("table").aggregate([("batch", "list")])
    return {row["table"]: row["batch_list"] for row in pairs.to_pylist()}


def ordered_chunks(texts: pa.ChunkedArray, order: pa.Array) -> Iterator[tuple[Any, pa.StringArray, pa.BooleanArray]]:
    """Yield texts in an order, some 50,000 at a time: their rows (a numpy array), the texts, and which differ from
    the one before.

    They are taken chunk by chunk: taken from all chunks at once, pyarrow would first put all of them into one.
    """
    starts = np.cumsum([0, *(len(chunk) for chunk in texts.chunks)])
    last = pa.array([None], pa.string())
    for start in range(0, len(order), CHUNK_ROWS):
        rows = order.slice(start, CHUNK_ROWS).to_numpy().astype(np.int64)
        chunk_numbers = np.searchsorted(starts, rows, side="right") - 1
        by_chunk = np.argsort(chunk_numbers, kind="stable")
        parts = []
        for positions in np.split(by_chunk, np.flatnonzero(np.diff(chunk_numbers[by_chunk])) + 1):
            chunk_number = int(chunk_numbers[positions[0]])
            parts.append(texts.chunk(chunk_number).take(pa.array(rows[positions] - starts[chunk_number])))
        ordered = pa.concat_arrays(parts).take(pa.array(np.argsort(by_chunk)))
        yield rows, ordered, pc.fill_null(pc.not_equal(ordered, pa.concat_arrays([last, ordered[:-1]])), True)
        last = ordered[-1:]


def manifest_sizes_by_table(files: pa.Table) -> dict[str, list[int]]:
    """Return, by key name, the sizes of the manifests that are to be localized, -1 where a size is unknown."""
    sizes: dict[str, list[int]] = {}
    for row in (
        files_to_localize(files, MANIFEST, DELETE_MANIFEST, INLINE_MANIFEST).select(["table", "size"]).to_pylist()
    ):
        sizes.setdefault(row["table"], []).append(row["size"])
    return sizes


def filter_tables(files: pa.Table, tables: Iterable[str]) -> pa.Table:
    """Return the rows of some tables."""
    return files.filter(_table_mask(files, tables))


def exclude_tables(files: pa.Table, tables: Iterable[str]) -> pa.Table:
    """Return the rows of all other tables."""
    return files.filter(pc.invert(_table_mask(files, tables)))


def _table_mask(files: pa.Table, tables: Iterable[str]) -> pa.ChunkedArray:
    """Return, for each row, whether it is of one of some tables."""
    return pc.is_in(files.column("table"), pa.array(list(tables), pa.string()))
