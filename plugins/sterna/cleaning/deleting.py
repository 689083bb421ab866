"""Deleting in parts: what can't be deleted is told, and a store that deletes nothing ends it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING

from sterna.cleaning.files import Files, among, without
from sterna.cleaning.model import Amount, NotDeleted
from sterna.errors import SternaError
from sterna.replica.reach import ReachedFiles

if TYPE_CHECKING:
    import pyarrow as pa

AT_ONCE = 5_000
"""Files between two looks at whether the deletion may go on."""
SHOWN_FAILURES = 100


@dataclass
class Tally:
    """What was deleted, and what could not be.

    Args:
        gone: what was deleted.
        failed: how many files could not be.
        failures: these, the first 100.
        stopped: why nothing goes on: it is the store, not the files.
    """

    gone: Files = field(default_factory=Files)
    failed: int = 0
    failures: tuple[NotDeleted, ...] = ()
    stopped: SternaError | None = None

    @property
    def done(self) -> Amount:
        """How much was deleted."""
        return self.gone.amount

    @property
    def tried(self) -> int:
        """How many files were deleted, or could not be."""
        return self.done.files + self.failed

    def remaining(self, unreachable: Files, reached: ReachedFiles) -> Files:
        """Return what is unreachable still: not deleted, and not reached meanwhile."""
        return Files(without(among(unreachable.parts(), self.gone.parts(), wanted=False), reached))

    def __str__(self) -> str:
        """Say it in a line."""
        return f"{self.done.files} files, {self.done.bytes} bytes deleted, {self.failed} failed"


class Garbage:
    """What is to be deleted still.

    Args:
        parts: the files, in the order in which they go.
        reached: what is needed; it may grow, and then these files stay.
    """

    def __init__(self, parts: Iterable[pa.Table], reached: ReachedFiles) -> None:
        self._parts = _cut(parts)
        self._reached = reached
        self._next: pa.Table | None = None

    def more(self) -> bool:
        """Whether there is more to delete."""
        while True:
            if self._next is not None:
                (self._next,) = without([self._next], self._reached)
                if self._next.num_rows:
                    return True
            self._next = next(self._parts, None)
            if self._next is None:
                return False

    def delete_part(self, tally: Tally, delete: Callable[[Sequence[str]], dict[str, SternaError]]) -> None:
        """Delete the first part of it.

        Args:
            tally: takes what was deleted, and what wasn't.
            delete: returns the error of each file that may still be there. Where none of a full part could be deleted,
                or none at all, nothing of the rest is tried, and the tally is stopped.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        if not self.more():
            return
        part, self._next = self._next, None
        assert part is not None
        failures = delete(part.column("uri").to_pylist())
        tally.failed += len(failures)
        shown = [NotDeleted(uri, str(error)) for uri, error in islice(failures.items(), SHOWN_FAILURES)]
        tally.failures = (*tally.failures, *shown)[:SHOWN_FAILURES]
        if len(failures) == part.num_rows and (part.num_rows == AT_ONCE or not tally.done.files):
            tally.stopped = next(iter(failures.values()))
            self._parts = iter(())
            return
        failed = pc.is_in(part.column("uri"), pa.array(list(failures), pa.string()))
        tally.gone.add(part.filter(pc.invert(failed)))


def _cut(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield full parts: of few files all may fail though the store deletes others."""
    import pyarrow as pa

    waiting: list[pa.Table] = []
    for part in parts:
        while part.num_rows:
            waiting.append(part.slice(0, AT_ONCE - sum(map(len, waiting))))
            part = part.slice(len(waiting[-1]))
            if sum(map(len, waiting)) == AT_ONCE:
                yield pa.concat_tables(waiting)
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
