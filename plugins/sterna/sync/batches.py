"""Cutting the files that are to be copied into batches, each of which one task sends."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sterna.sync.model import Batch, Options

if TYPE_CHECKING:
    import pyarrow as pa

_MOST_BATCHES = 64
# What a file costs beyond its bytes: five requests, in bytes that pass meanwhile.
_FILE_COST = 256 * 1024


def cut(files: pa.Table, root: str, options: Options, most: int = _MOST_BATCHES) -> tuple[pa.Array, tuple[Batch, ...]]:
    """Cut files into batches of one origin each, about equal in bytes and count; the same files always give the same batches.

    A batch is a stretch of neighbours in the order of their targets: proving them by listing then sees little else.

    Args:
        files: what to copy, as in `sterna.sync.files`; a target that several tables need is sent once, in one batch.
        root: the replica root, below which all targets are.
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
    targets = files.column("target").take(order)
    sizes = files.column("size").take(order).to_numpy()
    once = np.ones(len(order), bool)
    once[1:] = pc.not_equal(targets.slice(1), targets.slice(0, len(order) - 1)).to_numpy()
    starts = _origin_starts(targets, root)
    numbers = np.empty(len(order), np.int64)
    batches: list[Batch] = []
    counts = _counts([(int(sizes[span][once[span]].sum()), int(once[span].sum())) for _, span in starts], options, most)
    for (origin, span), count in zip(starts, counts, strict=True):
        dealt = _deal(sizes[span], once[span], count)
        numbers[span] = dealt + len(batches)
        first = len(batches)
        for number in range(int(dealt[-1]) + 1):
            mine = once[span] & (dealt == number)
            batches.append(Batch(first + number, origin, int(mine.sum()), int(sizes[span][mine].sum())))
    found = np.empty(len(order), np.int32)
    found[order.to_numpy()] = numbers
    return pa.array(found), tuple(batches)


def _origin_starts(targets: pa.ChunkedArray, root: str) -> list[tuple[str, slice]]:
    """Return the location id of each origin, and where its targets stand: they are sorted, and lie in a folder of their own."""
    import pyarrow.compute as pc

    folders = pc.list_element(pc.split_pattern(pc.utf8_slice_codeunits(targets, len(root) + 1), "/", max_splits=1), 0)
    found, start = [], 0
    for folder in folders.unique().to_pylist():
        count = pc.sum(pc.equal(folders, folder)).as_py()
        found.append((folder.partition("~")[0], slice(start, start + count)))
        start += count
    return found


def _counts(loads: list[tuple[int, int]], options: Options, most: int) -> list[int]:
    """Return how many batches each origin gets: one, and of what is left in proportion to its bytes and files."""
    wanted = [max(1, -(-size // options.bytes_per_batch), -(-files // options.files_per_batch)) for size, files in loads]
    beyond, left = sum(wanted) - len(wanted), max(0, most - len(wanted))
    return [1 + (count - 1) * min(left, beyond) // max(beyond, 1) for count in wanted]


def _deal(sizes: Any, once: Any, count: int) -> Any:
    """Return, for files in their order, which of at most `count` stretches of about equal cost each belongs to, without gaps."""
    import numpy as np

    costs = np.where(once, sizes.astype(np.float64) + _FILE_COST, 0.0)
    middles = np.cumsum(costs) - costs / 2
    stretches = np.minimum((middles / costs.sum() * count).astype(np.int64), count - 1)
    # A target's further rows cost nothing, and go with its first one.
    stretches = np.maximum.accumulate(np.where(once, stretches, 0))
    return np.unique(stretches, return_inverse=True)[1]
