"""Cutting the files that are to be copied into batches, and batches into shares, each of which one task sends."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sterna.json_record import INTEGER, TEXT, Field, Record
from sterna.registry.mapping import Mapping
from sterna.replica.file_list import copied_by_table, stretches, with_batches
from sterna.replica.records import Batch
from sterna.sync.options import SyncOptions

if TYPE_CHECKING:
    import pyarrow as pa

# Each has a list of its own beside the plan, and a line in it: 50 million files at 5,000 a batch.
MOST_BATCHES = 10_000
# What a file costs beyond its bytes: four requests, in bytes that pass meanwhile.
FILE_COST = 256 * 1024


def cut(
    files: pa.Table, mapping: Mapping, options: SyncOptions, most: int = MOST_BATCHES
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
    counts = _counts([(_total(sizes[span][once[span]]), int(once[span].sum())) for _, span in starts], options, most)
    for (origin, span), count in zip(starts, counts, strict=True):
        dealt = _deal(sizes[span], once[span], count)
        numbers[span] = dealt + len(batches)
        ends = np.searchsorted(dealt, range(int(dealt[-1]) + 2)) + span.start
        for place in map(slice, ends[:-1], ends[1:]):
            mine = once[place]
            batches.append(Batch(len(batches), origin, int(mine.sum()), _total(sizes[place][mine])))
    found = np.empty(len(order), np.int32)
    found[order.to_numpy()] = numbers
    return pa.array(found), tuple(batches)


def smallest_first(
    files: pa.Table, numbers: pa.Array, batches: tuple[Batch, ...]
) -> tuple[pa.Array, tuple[Batch, ...]]:
    """Number batches anew, so that those come first that tables need of which little is to be copied: they are whole
    while a larger one is still on its way.

    Args:
        files: what to copy.
        numbers: the number of each row's batch.
        batches: the batches.

    Returns:
        The new numbers, and the batches in their order.
    """
    import numpy as np
    import pyarrow as pa

    sizes = {name: size for name, (_, size) in copied_by_table(with_batches(files, numbers)).items()}
    rows = pa.table({"batch": numbers, "table": files.column("table")}).group_by(["batch", "table"]).aggregate([])
    least: dict[int, int] = {}
    for number, name in zip(*(rows.column(name).to_pylist() for name in ("batch", "table")), strict=True):
        least[number] = min(least.get(number, sizes[name]), sizes[name])
    order = sorted(range(len(batches)), key=lambda number: (least[number], number))
    places = np.empty(len(order), np.int32)
    places[order] = np.arange(len(order), dtype=np.int32)
    return pa.array(places[numbers.to_numpy()]), tuple(
        replace(batches[number], number=place) for place, number in enumerate(order)
    )


@dataclass(frozen=True)
class Share:
    """Batches that one task copies, one after the other.

    Args:
        number: of its first batch.
        last: of its last batch.
        origin: ids of the locations that the files come from, with commas between them.
        files: how many.
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


def shares(batches: Sequence[Batch], most: int) -> tuple[Share, ...]:
    """Deal batches out to tasks: one each where there are no more than that, else neighbours together, of about equal
    cost.

    Args:
        batches: in the order of their numbers.
        most: no more shares than this.
    """
    if len(batches) <= most:
        return tuple(_share([batch]) for batch in batches)
    costs = [batch.bytes + FILE_COST * batch.files + 1 for batch in batches]
    total, before = sum(costs), 0
    dealt: dict[int, list[Batch]] = {}
    for batch, cost in zip(batches, costs, strict=True):
        dealt.setdefault((2 * before + cost) * most // (2 * total), []).append(batch)
        before += cost
    return tuple(map(_share, dealt.values()))


def _share(batches: list[Batch]) -> Share:
    return Share(
        number=batches[0].number,
        last=batches[-1].number,
        origin=",".join(dict.fromkeys(batch.origin for batch in batches)),
        files=sum(batch.files for batch in batches),
        bytes=sum(batch.bytes for batch in batches),
    )


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


def _counts(loads: list[tuple[int, int]], options: SyncOptions, most: int) -> list[int]:
    """Return how many batches each origin gets: one, and of what is left in proportion to its bytes and files."""
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

    costs = np.where(once, sizes.astype(np.float64) + FILE_COST, 0.0)
    middles = np.cumsum(costs) - costs / 2
    stretches = np.minimum((middles / costs.sum() * count).astype(np.int64), count - 1)
    # A target's further rows cost nothing, and go with its first one.
    stretches = np.maximum.accumulate(np.where(once, stretches, 0))
    return np.unique(stretches, return_inverse=True)[1]
