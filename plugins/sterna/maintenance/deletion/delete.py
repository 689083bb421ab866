"""Deletion in parts. Files that can't be deleted are reported; a store that deletes nothing ends it there."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice

from sterna.errors import SternaError
from sterna.libraries import pa, pc
from sterna.maintenance.deletion.file_lists import Files, exclude_reached, filter_by_uri
from sterna.maintenance.deletion.model import Amount, NotDeleted
from sterna.replication.replica.reachability import ReachedFiles

MAX_PART_FILES = 5_000
"""Files between two checks whether the deletion may continue."""
MAX_SHOWN_FAILURES = 100


@dataclass
class DeletionTally:
    """What was deleted, and what could not be.

    Args:
        failed: how many files could not be.
        failures: these, the first 100.
        store_error: why the deletion ended: the store failed, not single files.
    """

    deleted: Files = field(default_factory=Files)
    failed: int = 0
    failures: tuple[NotDeleted, ...] = ()
    store_error: SternaError | None = None

    @property
    def done(self) -> Amount:
        """How much was deleted."""
        return self.deleted.amount

    @property
    def attempted(self) -> int:
        """How many files were deleted, or could not be."""
        return self.done.files + self.failed

    def remaining(self, unreachable: Files, reached: ReachedFiles) -> Files:
        """Return what is unreachable still: not deleted, and not reached meanwhile."""
        return Files(exclude_reached(filter_by_uri(unreachable.parts(), self.deleted.parts(), wanted=False), reached))

    def __str__(self) -> str:
        """Return a one-line summary."""
        return f"{self.done.files} files, {self.done.bytes} bytes deleted, {self.failed} failed"


class Garbage:
    """What is to be deleted still.

    Args:
        groups: the files, in the order in which they go.
        reached: what is needed; it may grow, and then these files stay.
        are_stores: each group is in a store of its own: where one deletes nothing, the others still do.
    """

    def __init__(
        self, groups: Iterable[Iterable[pa.Table]], reached: ReachedFiles, *, are_stores: bool = False
    ) -> None:
        parts = groups if are_stores else [chain.from_iterable(groups)]
        self._groups = deque(_full_parts(group) for group in parts)
        self._group: Iterator[pa.Table] | None = None  # that the last part was of
        self._done_before = 0  # how many files were deleted before that
        self._reached = reached
        self._next: pa.Table | None = None

    def has_more(self) -> bool:
        """Whether there is more to delete."""
        while True:
            if self._next is not None:
                (self._next,) = exclude_reached([self._next], self._reached)
                if self._next.num_rows:
                    return True
            if not self._groups:
                return False
            self._next = next(self._groups[0], None)
            if self._next is None:
                self._groups.popleft()

    def delete_part(self, tally: DeletionTally, delete: Callable[[Sequence[str]], dict[str, SternaError]]) -> None:
        """Delete the first part of it.

        Args:
            tally: records what was deleted, and what wasn't.
            delete: returns the error of each file that may still exist. Where every file of a full part failed, or
                every file of a store so far, the rest there is not tried, and the tally has a `store_error`.
        """
        if not self.has_more():
            return
        part, self._next = self._next, None
        assert part is not None
        group = self._groups[0]
        if group is not self._group:
            self._group, self._done_before = group, tally.done.files
        failures = delete(part.column("uri").to_pylist())
        tally.failed += len(failures)
        shown = [NotDeleted(uri, str(error)) for uri, error in islice(failures.items(), MAX_SHOWN_FAILURES)]
        tally.failures = (*tally.failures, *shown)[:MAX_SHOWN_FAILURES]
        if len(failures) == part.num_rows and (
            part.num_rows == MAX_PART_FILES or tally.done.files == self._done_before
        ):
            tally.store_error = tally.store_error or next(iter(failures.values()))
            self._groups.popleft()
            return
        failed = pc.is_in(part.column("uri"), pa.array(list(failures), pa.string()))
        tally.deleted.add(part.filter(pc.invert(failed)))


def _full_parts(parts: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yield parts of full size: in a small part all files may fail though the store deletes others."""
    waiting: list[pa.Table] = []
    for part in parts:
        while part.num_rows:
            waiting.append(part.slice(0, MAX_PART_FILES - sum(map(len, waiting))))
            part = part.slice(len(waiting[-1]))
            if sum(map(len, waiting)) == MAX_PART_FILES:
                yield pa.concat_tables(waiting)
                waiting = []
    if waiting:
        yield pa.concat_tables(waiting)
