"""Cutting the files that are to be copied into batches, each of which one task sends."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sterna.registry.mapping import Mapping
from sterna.replica.file_list import stretches
from sterna.replica.records import Batch
from sterna.sync.options import SyncOptions

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BATCHES = 64
# What a file costs beyond its bytes: four requests, in bytes that pass meanwhile.
_FILE_COST = 256 * 1024


def cut(
    files: pa.Table, mapping: Mapping, options: SyncOptions, most: int = _MOST_BATCHES
) -> tuple[pa.Array, tuple[Batch, ...]]:
    """Cut files into batches of one origin each, about equal in bytes and count; the same files always give the
    same batches.

    A batch is a stretch of neighbours in the order of their targets: proving them by listing then sees little else.

    Args:
        files: what to copy, as in `sterna.replica.file_list`; a target that several tables need is sent once, in one
            batch.
        mapping: the region's.
        options: about how many bytes and files a batch should carry.
        most: no more batches than this, but one an origin; they get larger instead.

    Returns:
        The number of each row's batch (int32), and the batches.
    """
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    if not files.num_rows:
        return pa.array([], pa.int32()), ()
    order = pc.sort_indices(files, [("target", "ascending"), ("table", "ascending")])
    sizes = files.column("size").take(order).to_numpy()
    targets = _Sorted(files.column("target"), order)
    once = targets.first_of_each()
    starts = origin_starts(files, order, mapping)
    numbers = np.empty(len(order), np.int64)
    batches: list[Batch] = []
    counts = counts_of([(_total(sizes[span][once[span]]), int(once[span].sum())) for _, span in starts], options, most)
    for (origin, span), count in zip(starts, counts, strict=True):
        dealt = _deal(sizes[span], once[span], count)
        numbers[span] = dealt + len(batches)
        first = len(batches)
        for number in range(int(dealt[-1]) + 1):
            mine = once[span] & (dealt == number)
            batches.append(Batch(first + number, origin, int(mine.sum()), _total(sizes[span][mine])))
    found = np.empty(len(order), np.int32)
    found[order.to_numpy()] = numbers
    return pa.array(found), tuple(batches)


def _total(sizes: Any) -> int:
    """Add up sizes of any metadata's: a few files that are said to be huge are more than 64 bits hold."""
    return (int((sizes >> 32).sum()) << 32) + int((sizes & 0xFFFFFFFF).sum())


@dataclass(frozen=True)
class _Sorted:
    """Texts in another order, which are looked at where they stand: a million of them need not be copied.

    Args:
        texts: the texts.
        order: their rows, in order.
    """

    texts: pa.ChunkedArray
    order: pa.Array

    def __len__(self) -> int:
        return len(self.order)

    def __getitem__(self, place: int) -> str:
        text: str = self.texts[self.order[place].as_py()].as_py()
        return text

    def first_of_each(self) -> Any:
        """Return, as a numpy array, which of them differ from the one before."""
        import numpy as np

        return np.concatenate([first for _, _, first in stretches(self.texts, self.order)])


def origin_starts(files: pa.Table, order: pa.Array, mapping: Mapping) -> list[tuple[str, slice]]:
    """Return the location id of each origin, and where its targets stand.

    Args:
        files: as in `sterna.replica.file_list`.
        order: their rows, sorted by targets; those of an origin lie in a folder of their own.
        mapping: the region's.
    """
    targets, sources = (_Sorted(files.column(name), order) for name in ("target", "source"))
    root = f"{mapping.region.replica_root}/"
    found, start = [], 0
    while start < len(targets):
        first = targets[start]
        folder = first.removesuffix(mapping.locate(mapping.source(first)).path)
        end = bisect_left(targets, f"{folder[:-1]}0", lo=start)  # "0" comes right after "/"
        if first < root:
            end = bisect_left(targets, root, start, end)  # which may lie in the folder
        found.append((mapping.locate(sources[start]).location.id, slice(start, end)))
        start = end
    return found


def counts_of(loads: list[tuple[int, int]], options: SyncOptions, most: int) -> list[int]:
    """Return how many batches each origin gets: one, and of what is left in proportion to its bytes and files.

    Args:
        loads: bytes and files of each.
        options: how much a batch should carry.
        most: no more batches than this, but one an origin.
    """
    wanted = [
        max(1, -(-size // options.bytes_per_batch), -(-files // options.files_per_batch)) for size, files in loads
    ]
    beyond, left = sum(wanted) - len(wanted), max(0, most - len(wanted))
    return [1 + (count - 1) * min(left, beyond) // max(beyond, 1) for count in wanted]


def _deal(sizes: Any, once: Any, count: int) -> Any:
    """Return, for files in their order, which of at most `count` stretches of about equal cost each belongs to,
    without gaps.
    """
    import numpy as np

    costs = np.where(once, sizes.astype(np.float64) + _FILE_COST, 0.0)
    middles = np.cumsum(costs) - costs / 2
    stretches = np.minimum((middles / costs.sum() * count).astype(np.int64), count - 1)
    # A target's further rows cost nothing, and go with its first one.
    stretches = np.maximum.accumulate(np.where(once, stretches, 0))
    return np.unique(stretches, return_inverse=True)[1]
