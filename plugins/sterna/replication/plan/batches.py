"""Cutting the files that are to be copied into batches, and batches into shares, each of which one task sends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sterna.codec import INTEGER, TEXT, Field, Record
from sterna.config.mapping import Mapping
from sterna.libraries import np, pa, pc
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.file_list import copied_by_table, ordered_chunks, with_batch_numbers
from sterna.replication.replica.model import CopyBatch, total_size

# Each has a list of its own beside the plan, and a line in it: 50 million files at 5,000 a batch.
MAX_BATCHES = 10_000
# What a file costs beyond its bytes: four requests, in bytes that pass meanwhile.
FILE_COST_BYTES = 256 * 1024


def cut_batches(
    files: pa.Table, mapping: Mapping, options: SyncOptions, max_batches: int = MAX_BATCHES
) -> tuple[pa.Array, tuple[CopyBatch, ...]]:
    """Cut files into batches of one origin each, about equal in bytes and count; the same files always give the
    same batches.

    A batch is a contiguous range in the order of targets, so that a listing that proves them returns little else.

    Args:
        files: what to copy, as in `sterna.replication.replica.file_list`; a target that several tables need is sent
            once, in one batch.
        options: about how many bytes and files a batch should carry.
        max_batches: no more batches than this, but one an origin; they get larger instead.

    Returns:
        The number of each row's batch (int32), and the batches.
    """
    if not files.num_rows:
        return pa.array([], pa.int32()), ()
    order = pc.sort_indices(files, [("target", "ascending"), ("table", "ascending")])
    sizes = files.column("size").take(order).to_numpy()
    targets = _SortedTexts(files.column("target"), order)
    is_first = targets.first_occurrences()
    spans = origin_spans(files, order, mapping)
    numbers = np.empty(len(order), np.int64)
    batches: list[CopyBatch] = []
    counts = _batch_counts(
        [(_total(sizes[span][is_first[span]]), int(is_first[span].sum())) for _, span in spans], options, max_batches
    )
    for (origin, span), count in zip(spans, counts, strict=True):
        assigned = _assign_batches(sizes[span], is_first[span], count)
        numbers[span] = assigned + len(batches)
        ends = np.searchsorted(assigned, range(int(assigned[-1]) + 2)) + span.start
        for batch_span in map(slice, ends[:-1], ends[1:]):
            first_rows = is_first[batch_span]
            batches.append(
                CopyBatch(len(batches), origin, int(first_rows.sum()), _total(sizes[batch_span][first_rows]))
            )
    row_numbers = np.empty(len(order), np.int32)
    row_numbers[order.to_numpy()] = numbers
    return pa.array(row_numbers), tuple(batches)


def order_smallest_first(
    files: pa.Table, numbers: pa.Array, batches: tuple[CopyBatch, ...]
) -> tuple[pa.Array, tuple[CopyBatch, ...]]:
    """Renumber batches, so that those of tables with little to copy come first: these are complete while a larger one
    is still being copied.

    Args:
        numbers: the number of each row's batch.

    Returns:
        The new numbers, and the batches in their order.
    """
    sizes = {name: size for name, (_, size) in copied_by_table(with_batch_numbers(files, numbers)).items()}
    rows = pa.table({"batch": numbers, "table": files.column("table")}).group_by(["batch", "table"]).aggregate([])
    least: dict[int, int] = {}
    for number, name in zip(*(rows.column(name).to_pylist() for name in ("batch", "table")), strict=True):
        least[number] = min(least.get(number, sizes[name]), sizes[name])
    order = sorted(range(len(batches)), key=lambda number: (least[number], number))
    positions = np.empty(len(order), np.int32)
    positions[order] = np.arange(len(order), dtype=np.int32)
    return pa.array(positions[numbers.to_numpy()]), tuple(
        replace(batches[number], number=position) for position, number in enumerate(order)
    )


@dataclass(frozen=True)
class Share:
    """Batches that one task copies, one after the other.

    Args:
        number: of its first batch.
        last: of its last batch.
        origin: where the files are expected to come from, with commas between them: `CopyBatch.sources`.
        bytes: how many, all together.
    """

    number: int
    last: int
    origin: str
    files: int
    bytes: int


SHARE: Final = Record(
    Share,
    (
        Field("number", INTEGER),
        Field("last", INTEGER),
        Field("origin", TEXT),
        Field("files", INTEGER),
        Field("bytes", INTEGER),
    ),
)
"""An item that Airflow maps a copy task over."""


def split_shares(batches: Sequence[CopyBatch], max_shares: int) -> tuple[Share, ...]:
    """Deal batches out to tasks: one each where there are no more than that, else neighbours together, of about equal
    cost.

    Args:
        batches: in the order of their numbers.
        max_shares: no more shares than this.
    """
    if len(batches) <= max_shares:
        return tuple(_share([batch]) for batch in batches)
    costs = [batch.bytes + FILE_COST_BYTES * batch.files + 1 for batch in batches]
    total, before = sum(costs), 0
    batches_by_share: dict[int, list[CopyBatch]] = {}
    for batch, cost in zip(batches, costs, strict=True):
        batches_by_share.setdefault((2 * before + cost) * max_shares // (2 * total), []).append(batch)
        before += cost
    return tuple(map(_share, batches_by_share.values()))


def _share(batches: list[CopyBatch]) -> Share:
    files, size = total_size(batches)
    return Share(
        number=batches[0].number,
        last=batches[-1].number,
        origin=",".join(dict.fromkeys(batch.sources for batch in batches)),
        files=files,
        bytes=size,
    )


def _total(sizes: Any) -> int:
    """Add up sizes from metadata without overflow: a few files with huge claimed sizes exceed 64 bits."""
    return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())


@dataclass(frozen=True)
class _SortedTexts:
    """Texts in another order, read in place: a million of them need not be copied.

    Args:
        order: their rows, in order.
    """

    texts: pa.ChunkedArray
    order: pa.Array

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> str:
        text: str = self.texts[self.order[place].as_py()].as_py()
        return text

    def first_occurrences(self) -> Any:
        """Return, as a numpy array, which of them differ from the one before."""
        return np.concatenate([first for _, _, first in ordered_chunks(self.texts, self.order)])


def origin_spans(files: pa.Table, order: pa.Array, mapping: Mapping) -> list[tuple[str, slice]]:
    """Return the location id of each origin, and the slice of its targets in the order.

    Args:
        files: as in `sterna.replication.replica.file_list`.
        order: their rows, sorted by targets; those of an origin are in a folder of their own.
    """
    targets, sources = (_SortedTexts(files.column(name), order) for name in ("target", "source"))
    root = f"{mapping.region.replica_root}/"
    spans, start = [], 0
    while start < len(targets):
        first = targets[start]
        folder = first.removesuffix(mapping.locate(mapping.origin_uri(first)).path)
        end = bisect_left(targets, f"{folder[:-1]}0", lo=start)  # "0" comes right after "/"
        if first < root:
            end = bisect_left(targets, root, start, end)  # it may be in the folder
        spans.append((mapping.locate(sources[start]).location.id, slice(start, end)))
        start = end
    return spans


def _batch_counts(loads: list[tuple[int, int]], options: SyncOptions, max_batches: int) -> list[int]:
    """Return how many batches each origin gets: one, and of what is left in proportion to its bytes and files."""
    desired = [
        max(1, -(-size // options.bytes_per_batch), -(-files // options.files_per_batch)) for size, files in loads
    ]
    extra, available = sum(desired) - len(desired), max(0, max_batches - len(desired))
    return [1 + (count - 1) * min(available, extra) // max(extra, 1) for count in desired]


def _assign_batches(sizes: Any, is_first: Any, count: int) -> Any:
    """Return, for files in their order, the range that each belongs to: at most `count`, of about equal cost, without
    gaps.
    """
    costs = np.where(is_first, sizes.astype(np.float64) + FILE_COST_BYTES, 0.0)
    middles = np.cumsum(costs) - costs / 2
    assigned = np.minimum((middles / costs.sum() * count).astype(np.int64), count - 1)
    # A target's further rows cost nothing, and go with its first one.
    assigned = np.maximum.accumulate(np.where(is_first, assigned, 0))
    return np.unique(assigned, return_inverse=True)[1]
