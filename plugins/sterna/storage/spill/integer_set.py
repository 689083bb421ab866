"""A set of numbers that may be larger than memory."""

from __future__ import annotations

from typing import Any, ClassVar

from sterna.libraries import np
from sterna.storage.spill.temporary import SpillFile


class Int64Set:
    """A set of 64-bit numbers, eight bytes each.

    While they are few they stay in memory, and no disk is touched. What is more is written to a temporary file, sorted,
    a *run* at a time, and looked up there: the kernel caches as much of it as fits in memory.
    """

    max_in_memory: ClassVar[int] = 4 << 20
    """Numbers before they go to disk; sorting them takes three times that."""

    def __init__(self) -> None:
        self._unsorted: list[Any] = []
        self._count = 0
        self._sorted: Any = np.empty(0, np.int64)
        self._file: SpillFile | None = None
        self._runs: list[Any] = []

    def add(self, numbers: Any) -> None:
        """Add an array of numbers.

        Raises:
            EngineError: the folder for temporary files is full.
        """
        distinct = np.unique(numbers)
        if len(distinct):
            self._unsorted.append(distinct)
            self._count += len(distinct)
        if self._count > self.max_in_memory:
            self._spill()

    def contains(self, numbers: Any) -> Any:
        """Return, for each number of an array, whether it is in the set."""
        self._sort()
        order = np.argsort(numbers)  # side by side in the set: few of its pages are read
        mask = np.empty(len(numbers), np.bool_)
        mask[order] = _contained_in(numbers[order], [self._sorted, *self._runs])
        return mask

    def _sort(self) -> None:
        if self._unsorted:
            self._sorted, self._unsorted = np.unique(np.concatenate([self._sorted, *self._unsorted])), []
            self._count = len(self._sorted)

    def _spill(self) -> None:
        """Write what is in memory as a run, but for what an earlier one has; wait where that leaves little."""
        self._sort()
        self._sorted = self._sorted[~_contained_in(self._sorted, self._runs)]
        self._count = len(self._sorted)
        if self._count > self.max_in_memory // 2:
            self._file = self._file or SpillFile()
            self._runs.append(self._file.map_int64(self._file.append(self._sorted.tobytes()), self._count))
            self._sorted, self._count = self._sorted[:0].copy(), 0


def _contained_in(numbers: Any, runs: list[Any]) -> Any:
    """Return, for each of some sorted numbers, whether one of several sorted arrays has it."""
    mask = np.zeros(len(numbers), np.bool_)
    for run in runs:
        if len(run):
            mask |= run[np.minimum(np.searchsorted(run, numbers), len(run) - 1)] == numbers
    return mask
