"""A set of numbers that may be many more than memory has room for."""

from __future__ import annotations

from typing import Any, ClassVar

from sterna.edges.disk.scratch import Scratch


class Numbers:
    """A set of 64-bit numbers, eight bytes each.

    While they are few they stay in memory, and no disk is touched. What is more is written to a temporary file, sorted,
    a *run* at a time, and looked up there: the kernel has as much of it in memory as there is room for.
    """

    in_memory: ClassVar[int] = 4 << 20
    """Numbers before they go to disk; sorting them takes three times that."""

    def __init__(self) -> None:
        import numpy as np

        self._new: list[Any] = []
        self._count = 0
        self._sorted: Any = np.empty(0, np.int64)
        self._file: Scratch | None = None
        self._runs: list[Any] = []

    def add(self, numbers: Any) -> None:
        """Add an array of numbers.

        Raises:
            EngineError: the folder for temporary files is full.
        """
        import numpy as np

        new = np.unique(numbers)
        if len(new):
            self._new.append(new)
            self._count += len(new)
        if self._count > self.in_memory:
            self._spill()

    def has(self, asked: Any) -> Any:
        """Tell of each number of an array whether it is in the set."""
        import numpy as np

        self._settle()
        order = np.argsort(asked)  # side by side in the set: few of its pages are read
        found = np.empty(len(asked), np.bool_)
        found[order] = _among(asked[order], [self._sorted, *self._runs])
        return found

    def _settle(self) -> None:
        import numpy as np

        if self._new:
            self._sorted, self._new = np.unique(np.concatenate([self._sorted, *self._new])), []
            self._count = len(self._sorted)

    def _spill(self) -> None:
        """Write what is in memory as a run, but for what an earlier one has; wait where that leaves little."""
        self._settle()
        self._sorted = self._sorted[~_among(self._sorted, self._runs)]
        self._count = len(self._sorted)
        if self._count > self.in_memory // 2:
            self._file = self._file or Scratch()
            self._runs.append(self._file.numbers(self._file.append(self._sorted.tobytes()), self._count))
            self._sorted, self._count = self._sorted[:0].copy(), 0


def _among(asked: Any, runs: list[Any]) -> Any:
    """Tell of each of some sorted numbers whether one of several sorted arrays has it."""
    import numpy as np

    found = np.zeros(len(asked), np.bool_)
    for run in runs:
        if len(run):
            found |= run[np.minimum(np.searchsorted(run, asked), len(run) - 1)] == asked
    return found
