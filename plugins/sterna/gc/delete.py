"""Deleting garbage: a slice at a time, never while a sync is between plan and publication."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sterna.cleaning.deleting import Garbage, Tally
from sterna.errors import Busy, CatalogConflict
from sterna.gc.evidence import Runs
from sterna.gc.fence import Fence, fence
from sterna.gc.heads import Heads, versions_since
from sterna.gc.model import GcOptions
from sterna.ha.certain import refuse_other_epoch
from sterna.replica.head import head_of, newest_commit, read_head, refuse_foreign
from sterna.replica.reach import Walk
from sterna.replica.region import RegionContext

_LOOK_SECONDS = 1.0
_FRUITLESS = 10  # fences behind which there was no time left to delete anything


@dataclass
class Deleted:
    """What was deleted, what could not be, and the replica head afterwards."""

    head: str
    tally: Tally = field(default_factory=Tally)


@dataclass
class Deletion:
    """A deletion that is under way.

    Args:
        context: the region.
        pass_id: names it.
        options: what was asked for.
        epoch: of the primary when the heads were read.
        runs: the syncs that it doesn't disturb.
        heads: what was walked; goes on with the branch.
        walk: the walk over what is kept, to be taken further when the branch moves.
        progress: called with lines for people.
    """

    context: RegionContext
    pass_id: str
    options: GcOptions
    epoch: str
    runs: Runs
    heads: Heads
    walk: Walk
    progress: Callable[[str], None]

    def run(self, garbage: Garbage) -> Deleted:
        """Delete garbage.

        Args:
            garbage: what nothing reaches that was kept up to the head that was walked; the walk takes from it what is
                reached meanwhile.

        Raises:
            UpkeepBlocked: which region is the primary isn't certain any more.
            Busy: a sync or another clean-up is at work for longer than the caller would wait, or the primary was
                switched.
            CatalogConflict: the branch moved at every try to fence it, for as long.
            ReplicaBroken: what a new head reaches can't be read; nothing more is deleted.
            CatalogError, StoreError: something doesn't answer.
        """
        result = Deleted(self.heads.head.hash)
        fruitless = 0
        while garbage.more():
            self._wait_for_syncs()
            # Most of what was published is walked while syncs may go on; the fence is left with the last of it.
            self._reach_more(read_head(self.context.primary, self._branch).hash, look=True)
            if not garbage.more():
                break
            refuse_other_epoch(self.context, self.options.gone, self.epoch)
            before, started = result.tally.tried, time.monotonic()
            self._fenced(garbage, result)
            fruitless = fruitless + 1 if result.tally.tried == before else 0
            if fruitless == _FRUITLESS:
                raise Busy("the branch moves faster than what it reaches can be read", hint="a later run goes on")
            if garbage.more():
                time.sleep(time.monotonic() - started)  # as long as syncs had to wait
        return result

    @property
    def _branch(self) -> str:
        return self.context.region.replica_branch

    def _wait_for_syncs(self) -> None:
        """Wait for the syncs that are about to be published, and for no other one that begins meanwhile.

        Syncs may follow one another without a pause. One that is planned between this look and the fence has to be
        planned again, and then the next look finds it.
        """
        end = time.monotonic() + self.options.patience
        asked: tuple[str, ...] | None = None
        while True:
            head = read_head(self.context.primary, self._branch)
            if head.deleting:
                what, running = "another clean-up is at work", head.collecting
            else:
                asked = self.runs.in_flight(head.hash) if asked is None else self.runs.still(asked, head.hash)
                what, running = "a sync is between its plan and its publication", ", ".join(asked)
            if not running:
                return
            if time.monotonic() >= end:
                raise Busy(f"{what}: {running}; nothing is deleted meanwhile", hint="a later run goes on")
            self.progress(f"waiting for {running}")
            time.sleep(_LOOK_SECONDS)

    def _reach_more(self, head: str, *, look: bool) -> None:
        """Walk what the branch reaches by now, and what other references do."""
        found = versions_since(self.context, self.heads.head.hash, head)
        if look:
            found |= self.heads.elsewhere.look()
        found -= self.heads.kept
        self.walk.over(found)
        self.heads.kept |= found
        self.heads.head = replace(self.heads.head, hash=head)

    def _fenced(self, garbage: Garbage, result: Deleted) -> None:
        """Delete a slice behind a fence."""
        end = time.monotonic() + self.options.patience
        while True:
            parent = newest_commit(self.context.primary, self._branch)
            if parent is None:
                raise Busy(f"{self._branch} was reset while it was looked at", hint="start again")
            refuse_foreign(self._branch, parent)
            if head_of(parent).deleting:
                return  # another clean-up was first
            try:
                with fence(self.context, parent, self.pass_id) as standing:
                    # What was published up to the very commit that the fence stands on. Nothing is, from here on.
                    self._reach_more(parent.hash, look=False)
                    self._slice(garbage, standing, result)
                break
            except CatalogConflict:
                if time.monotonic() >= end:
                    raise
        result.head = standing.hash
        self.progress(str(result.tally))

    def _slice(self, garbage: Garbage, standing: Fence, result: Deleted) -> None:
        """Delete as much as the fence has time for."""
        while garbage.more() and standing.has_time:
            garbage.delete_part(result.tally, lambda uris: self.context.objects.delete(uris, proceed=standing.stands))
