"""Deleting garbage: a slice at a time, never while a sync is between plan and publication."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING

from sterna.errors import Busy, CatalogConflict, SternaError
from sterna.gc.decide import amount, without
from sterna.gc.evidence import runs_in_flight
from sterna.gc.fence import Fence, fence
from sterna.gc.heads import elsewhere, versions_since
from sterna.gc.model import Amount, GcOptions
from sterna.replica.head import read_head
from sterna.replica.reach import ReachedFiles, TableVersion, Walk
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    import pyarrow as pa

_AT_ONCE = 5_000  # files between two looks at the fence's clock
_LOOK_SECONDS = 1.0


@dataclass
class Deleted:
    """What was deleted, what could not be, and the replica head afterwards."""

    head: str
    done: Amount
    failures: dict[str, SternaError]


@dataclass
class Deletion:
    """A deletion that is under way.

    Args:
        context: the region.
        pass_id: names it.
        options: what was asked for.
        now: the time that the clean-up goes by.
        walk: the walk over what is kept, to be taken further when the branch moves.
        kept: what it reaches.
        seen: the versions that were walked.
        progress: called with lines for people.
    """

    context: RegionContext
    pass_id: str
    options: GcOptions
    now: datetime
    walk: Walk
    kept: ReachedFiles
    seen: set[TableVersion]
    progress: Callable[[str], None]

    def run(self, garbage: pa.Table, head: str) -> Deleted:
        """Delete garbage.

        Args:
            garbage: what nothing reaches that was kept up to a head.
            head: that head.

        Raises:
            Busy: syncs follow one another so closely, or another clean-up is at work; what is left is for a later run.
            ReplicaBroken: what a new head reaches can't be read; nothing more is deleted.
            CatalogError, StoreError: something doesn't answer.
        """
        result = Deleted(head, Amount(), {})
        end = time.monotonic() + self.options.patience
        while garbage.num_rows:
            garbage = self._still(garbage, result)
            try:
                with fence(self.context, result.head, self.pass_id) as standing:
                    started = time.monotonic()
                    garbage = self._slice(garbage, standing, result)
            except CatalogConflict:
                if time.monotonic() > end:
                    raise
                continue
            result.head = standing.hash
            self.progress(
                f"{result.done.files} files, {result.done.bytes} bytes deleted, {len(result.failures)} failed"
            )
            end = time.monotonic() + self.options.patience
            if garbage.num_rows:
                time.sleep(time.monotonic() - started)  # as long as syncs had to wait
        return result

    def _still(self, garbage: pa.Table, result: Deleted) -> pa.Table:
        """Wait for syncs that are about to be published; return what is still garbage at the head that they made."""
        # Before the wait, so that it is short from then to the fence: what `main` newly names is on the replica's new
        # head, too, or young.
        found = elsewhere(self.context) - self.seen
        result.head, before = self._head_at_rest(), result.head
        found |= versions_since(self.context, before, result.head) - self.seen
        if not found:
            return garbage
        self.seen |= found
        self.walk.over(found)
        return without(garbage, self.kept)

    def _head_at_rest(self) -> str:
        end = time.monotonic() + self.options.patience
        while True:
            head = read_head(self.context.primary, self.context.region.replica_branch)
            running = (
                (head.collecting,)
                if head.deleting
                else runs_in_flight(self.context, head.hash, self.now, self.options.grace)
            )
            if not running:
                return head.hash
            if time.monotonic() >= end:
                what = (
                    "another clean-up is at work" if head.deleting else "a sync is between its plan and its publication"
                )
                raise Busy(f"{what}: {', '.join(running)}; nothing is deleted meanwhile", hint="a later run goes on")
            self.progress(f"waiting for {', '.join(running)}")
            time.sleep(_LOOK_SECONDS)

    def _slice(self, garbage: pa.Table, standing: Fence, result: Deleted) -> pa.Table:
        """Delete as much as the fence has time for; return what is left."""
        while garbage.num_rows and standing.has_time:
            part = garbage.slice(0, _AT_ONCE)
            failures = self.context.objects.delete(part.column("uri").to_pylist(), proceed=standing.stands)
            result.failures |= failures
            if len(failures) == part.num_rows:
                raise next(iter(failures.values()))  # it is the store, not the files
            result.done += amount(part) if not failures else _without_failures(part, failures)
            garbage = garbage.slice(part.num_rows)
        return garbage


def _without_failures(part: pa.Table, failures: dict[str, SternaError]) -> Amount:
    import pyarrow as pa
    import pyarrow.compute as pc

    return amount(part.filter(pc.invert(pc.is_in(part.column("uri"), pa.array(list(failures), pa.string())))))
