"""Deleting garbage: a slice at a time, never while a sync is between plan and publication."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from sterna.errors import Busy, CatalogConflict
from sterna.maintenance.deletion.delete import DeletionTally, Garbage
from sterna.maintenance.gc.evidence import PendingRuns
from sterna.maintenance.gc.fencing import Fence, fence
from sterna.maintenance.gc.model import GcOptions
from sterna.maintenance.gc.retained_heads import RetainedHeads, versions_since
from sterna.replication.failover.certain_term import require_same_term
from sterna.replication.replica.head import newest_commit, parse_head, read_head, require_own_commit
from sterna.replication.replica.reachability import ReachabilityWalk
from sterna.replication.replica.region import RegionContext

_POLL_SECONDS = 1.0
_MAX_FRUITLESS_FENCES = 10  # fences behind which there was no time left to delete anything


@dataclass
class DeletionResult:
    """What was deleted, what could not be, and the replica head afterwards."""

    head: str
    tally: DeletionTally = field(default_factory=DeletionTally)


@dataclass
class Deletion:
    """A deletion that is under way.

    Args:
        term: of the primary when the heads were read.
        runs: the syncs that it waits for.
        heads: what was walked; advances with the branch.
        walk: the walk over what is kept; it continues when the branch moves.
    """

    context: RegionContext
    pass_id: str
    options: GcOptions
    term: str
    runs: PendingRuns
    heads: RetainedHeads
    walk: ReachabilityWalk
    progress: Callable[[str], None]

    def run(self, garbage: Garbage) -> DeletionResult:
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
        result = DeletionResult(self.heads.head.hash)
        fruitless = 0
        while garbage.has_more():
            self._wait_for_syncs()
            # Most of what was published is walked while syncs may publish; behind the fence only the last is left.
            self._extend_reach(read_head(self.context.primary, self._branch).hash, include_references=True)
            if not garbage.has_more():
                break
            require_same_term(self.context, self.options.excluded_regions, self.term)
            attempted, started = result.tally.attempted, time.monotonic()
            self._delete_fenced(garbage, result)
            fruitless = fruitless + 1 if result.tally.attempted == attempted else 0
            if fruitless == _MAX_FRUITLESS_FENCES:
                raise Busy("the branch moves faster than what it reaches can be read", hint="a later run continues")
            if garbage.has_more():
                time.sleep(time.monotonic() - started)  # as long as syncs had to wait
        return result

    @property
    def _branch(self) -> str:
        return self.context.region.replica_branch

    def _wait_for_syncs(self) -> None:
        """Wait for the syncs that are about to publish, but not for those that begin meanwhile.

        Syncs may follow one another without a pause. One that is planned between this check and the fence has to plan
        again, and the next check sees it.
        """
        deadline = time.monotonic() + self.options.max_wait_seconds
        pending: tuple[str, ...] | None = None
        while True:
            head = read_head(self.context.primary, self._branch)
            if head.is_gc_running:
                reason, running = "another clean-up is at work", head.gc_pass
            else:
                pending = (
                    self.runs.in_flight(head.hash) if pending is None else self.runs.still_in_flight(pending, head.hash)
                )
                reason, running = "a sync is between its plan and its publication", ", ".join(pending)
            if not running:
                return
            if time.monotonic() >= deadline:
                raise Busy(f"{reason}: {running}; nothing is deleted meanwhile", hint="a later run continues")
            self.progress(f"waiting for {running}")
            time.sleep(_POLL_SECONDS)

    def _extend_reach(self, head: str, *, include_references: bool) -> None:
        """Walk what the branch reaches by now, and what other references reach."""
        versions = versions_since(self.context, self.heads.head.hash, head)
        if include_references:
            versions |= self.heads.other_references.read_new_versions()
        versions -= self.heads.kept
        self.walk.visit(versions)
        self.heads.kept |= versions
        self.heads.head = replace(self.heads.head, hash=head)

    def _delete_fenced(self, garbage: Garbage, result: DeletionResult) -> None:
        """Delete a slice behind a fence."""
        deadline = time.monotonic() + self.options.max_wait_seconds
        while True:
            parent = newest_commit(self.context.primary, self._branch)
            if parent is None:
                raise Busy(f"{self._branch} was reset while it was read", hint="start again")
            require_own_commit(self._branch, parent)
            if parse_head(parent).is_gc_running:
                return  # another clean-up was first
            try:
                with fence(self.context, parent, self.pass_id) as active_fence:
                    # What was published up to the commit that the fence is built on; from here on nothing is.
                    self._extend_reach(parent.hash, include_references=False)
                    self._delete_slice(garbage, active_fence, result)
                break
            except CatalogConflict:
                if time.monotonic() >= deadline:
                    raise
        result.head = active_fence.hash
        self.progress(str(result.tally))

    def _delete_slice(self, garbage: Garbage, active_fence: Fence, result: DeletionResult) -> None:
        """Delete as much as the fence has time for."""
        while garbage.has_more() and active_fence.has_time:
            garbage.delete_part(
                result.tally, lambda uris: self.context.objects.delete(uris, may_continue=active_fence.may_send)
            )
