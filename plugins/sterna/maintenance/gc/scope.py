"""The collector's scope below a replica root: a part at a time, never while a sync is between plan and publication."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import chain, filterfalse

from sterna.config.registry.folders import state_root
from sterna.config.verbatim_copies import copies_of_localized
from sterna.errors import Busy, CatalogConflict, SternaError
from sterna.libraries import pa, pc
from sterna.maintenance.deletion.delete import DeletionTally, Garbage
from sterna.maintenance.deletion.file_lists import Files, table_amount
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount
from sterna.maintenance.deletion.passes import read_passes
from sterna.maintenance.gc.decide import EVIDENCE, ClassifiedFiles, Rules, classify_files, select_garbage
from sterna.maintenance.gc.evidence import GC_REPORT, PendingRuns, gc_folder
from sterna.maintenance.gc.fencing import Fence, fence
from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.retained_heads import RetainedHeads, versions_since
from sterna.replication.failover.certain_term import require_same_term
from sterna.replication.replica.head import (
    Head,
    load_held_list,
    newest_commit,
    parse_head,
    read_head,
    require_own_commit,
)
from sterna.replication.replica.held import held_since, parse_commit_time
from sterna.replication.replica.reachability import ReachabilityWalk, ReachedFiles
from sterna.replication.replica.region import RegionContext

_POLL_SECONDS = 1.0
_MAX_FRUITLESS_FENCES = 10  # fences behind which there was no time left to delete anything
_MAX_CLOCK_SKEW = timedelta(hours=1)  # between the clocks of a catalog and a store
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)


@dataclass
class ReplicaScope:
    """What is below a region's replica root; see `sterna.maintenance.deletion.collect.Scope`.

    Args:
        term: of the primary when the heads were read.
        heads: what is kept; advances with the branch.
        now: when the pass began.
    """

    context: RegionContext
    pass_id: str
    options: GcOptions
    term: str
    heads: RetainedHeads
    now: datetime
    progress: Callable[[str], None]
    reached: ReachedFiles = field(default_factory=ReachedFiles)
    record = GC_REPORT
    are_stores = False
    _fruitless: int = 0

    def __post_init__(self) -> None:
        self._reported_head = self.heads.head.hash
        self.folder = gc_folder(self.context)
        self._walk = ReachabilityWalk(self.context, _with_copies(self.context, self.reached), self.progress)
        self._runs = PendingRuns(self.context, self.now, self.options.grace)

    def list_files(self) -> ClassifiedFiles:
        """Reach what the kept versions need, and what refused tables do, and classify what is below the root.

        Raises:
            ReplicaBroken: a file that a kept head needs can't be read.
            StoreError: the store doesn't answer.
        """
        refused, dropped = ReachedFiles(), ReachedFiles()
        self._walk.visit(self.heads.kept)
        for versions, reached in (
            (self.heads.past_on_main, self.reached),
            (self.heads.dropped, dropped),
            (self.heads.refused, refused),
        ):
            add = _with_copies(self.context, reached)
            ReachabilityWalk(self.context, add, self.progress, ignore_missing=True).visit(versions)
        self._rules = self._build_rules()
        listing = self.context.objects.list(self.context.region.replica_root)
        return classify_files(listing, self._rules, self.reached, refused, self.heads.superseded, dropped)

    def _build_rules(self) -> Rules:
        context, options = self.context, self.options
        return Rules(
            context.mapping,
            frozenset((*context.registry.bindings(), *(self.heads.head.bindings or {}))),
            self.now,
            options.keep,
            options.grace,
            read_passes(context, self.folder, self.now - options.grace),
            _in_transit_since(context, self.heads.head, self.now - options.keep),
        )

    def catch_up(self) -> None:
        """Reach what was published, or committed to `main`, meanwhile.

        Raises:
            ReplicaBroken: what a new head reaches can't be read; nothing more is deleted.
            Busy: the branch was reset.
        """
        # Most of what was published is walked while syncs may publish; behind the fence only the last is left.
        self._extend_reach(read_head(self.context.primary, self._branch).hash)

    def _extend_reach(self, head: str) -> None:
        """Walk what the branch reaches by now, and what other references reach."""
        versions = versions_since(self.context, self.heads.head.hash, head)
        versions |= self.heads.other_references.read_new_versions()
        versions -= self.heads.kept
        self._walk.visit(versions)
        self.heads.kept |= versions
        self.heads.head = replace(self.heads.head, hash=head)
        self._reported_head = head

    def select_garbage(self, listing: ClassifiedFiles) -> tuple[Files, Files, Files]:
        """Return the markers, the other files and the evidence to delete.

        A marker says that verbatim copies are here, so it goes before them. Evidence is deleted last: its age shows
        whether clean-ups complete.
        """
        refused = listing.refused.parts() if self.options.evict else ()
        markers, table_files, evidence = Files(), Files(), Files()
        for part in chain(select_garbage(listing.unreachable, self._rules).parts(), refused):
            is_own = pc.starts_with(part.column("uri"), state_root(self.context.region.replica_root))
            table_files.add(part.filter(pc.invert(is_own)))
            own = part.filter(is_own)
            is_marker = pa.array([self._rules.is_marker(uri) for uri in own.column("uri").to_pylist()], pa.bool_())
            markers.add(own.filter(is_marker))
            evidence.add(own.filter(pc.invert(is_marker)))
        return markers, table_files, evidence

    def build_report(self, listing: ClassifiedFiles, garbage: Amount) -> GcReport:
        """Return the report of what was found, before anything is deleted."""
        return GcReport(
            region=self.context.region.name,
            pass_id=self.pass_id,
            replica_hash=self._reported_head,
            dry_run=not self.options.delete,
            objects=listing.objects,
            strange=listing.unknown,
            unreachable=listing.unreachable.amount,
            garbage=garbage,
            refused=listing.refused.amount,
            in_flight=self._runs.in_flight(self.heads.head.hash),
            still_shown=self.heads.still_shown,
            at=self.now.isoformat(),
            evidence=listing.evidence,
            superseded=listing.superseded,
            verbatim=listing.verbatim,
            dropped=listing.dropped,
        )

    def complete_report(self, report: GcReport, tally: DeletionTally) -> GcReport:
        """Return the report with the newest head, and without the evidence and the verbatim copies that were
        deleted."""
        evidence = verbatim = ZERO_AMOUNT
        for part in tally.deleted.parts():
            is_evidence = [self._rules.classify(uri) == EVIDENCE for uri in part.column("uri").to_pylist()]
            evidence += table_amount(part.filter(pa.array(is_evidence, pa.bool_())))
            verbatim += table_amount(part.filter(pc.starts_with(part.column("uri"), self._rules.verbatim_folder)))
        return replace(
            report,
            replica_hash=self._reported_head,
            evidence=report.evidence - evidence,
            verbatim=report.verbatim - verbatim,
        )

    @property
    def _branch(self) -> str:
        return self.context.region.replica_branch

    def prepare(self) -> None:
        """Wait for the syncs that are about to publish, but not for those that begin meanwhile.

        Syncs may follow one another without a pause. One that is planned between this check and the fence has to plan
        again, and the next check sees it.

        Raises:
            Busy: a sync or another clean-up is at work for longer than the caller would wait.
        """
        deadline, runs = time.monotonic() + self.options.max_wait_seconds, self._runs
        pending: tuple[str, ...] | None = None
        while True:
            head = read_head(self.context.primary, self._branch)
            if head.is_gc_running:
                reason, running = "another clean-up is at work", head.gc_pass
            else:
                pending = runs.in_flight(head.hash) if pending is None else runs.still_in_flight(pending, head.hash)
                reason, running = "a sync is between its plan and its publication", ", ".join(pending)
            if not running:
                return
            if time.monotonic() >= deadline:
                raise Busy(f"{reason}: {running}; nothing is deleted meanwhile", hint="a later run continues")
            self.progress(f"waiting for {running}")
            time.sleep(_POLL_SECONDS)

    def delete(self, garbage: Garbage, tally: DeletionTally) -> None:
        """Delete a slice behind a fence.

        Raises:
            UpkeepBlocked: which region is the primary isn't certain any more.
            Busy: the primary was switched, or the branch moves too fast.
            CatalogConflict: the branch moved at every try to fence it, for as long as the caller would wait.
            ReplicaBroken: what a new head reaches can't be read; nothing more is deleted.
            CatalogError, StoreError: something doesn't answer.
        """
        require_same_term(self.context, self.options.excluded_regions, self.term)
        attempted, started = tally.attempted, time.monotonic()
        self._delete_fenced(garbage, tally)
        self._fruitless = self._fruitless + 1 if tally.attempted == attempted else 0
        if self._fruitless == _MAX_FRUITLESS_FENCES:
            raise Busy("the branch moves faster than what it reaches can be read", hint="a later run continues")
        if garbage.has_more():
            time.sleep(time.monotonic() - started)  # as long as syncs had to wait

    def _delete_fenced(self, garbage: Garbage, tally: DeletionTally) -> None:
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
                    # What was published up to the commit that the fence is built on; from here on nothing is. Pins and
                    # restores that come after the fence see it, and stop. Those before it are seen now: a restore
                    # commits to `main`, then deletes its pin. One listing may have `main` before and tags after that.
                    for _ in range(2):
                        self._extend_reach(parent.hash)
                    self._delete_slice(garbage, active_fence, tally)
                # Not what was walked: where the fence was taken for dead, it may be a sync's.
                self._reported_head = active_fence.hash
                break
            except CatalogConflict:
                if time.monotonic() >= deadline:
                    raise

    def _delete_slice(self, garbage: Garbage, active_fence: Fence, tally: DeletionTally) -> None:
        """Delete as much as the fence has time for."""
        while garbage.has_more() and active_fence.has_time:
            garbage.delete_part(tally, partial(self._delete_files, active_fence))

    def _delete_files(self, active_fence: Fence, uris: Sequence[str]) -> dict[str, SternaError]:
        """Delete some files, the markers among them first, and return the errors of those that may still be there."""
        is_marker, failures = self._rules.is_marker, dict[str, SternaError]()
        for portion in (list(filter(is_marker, uris)), list(filterfalse(is_marker, uris))):
            if portion:
                failures |= self.context.objects.delete(portion, may_continue=active_fence.may_send)
        return failures


def _with_copies(context: RegionContext, reached: ReachedFiles) -> Callable[[Iterable[str]], None]:
    """Return a function that adds files to what is reached, and the verbatim copies that belong to them."""

    def add(uris: Iterable[str]) -> None:
        listed = list(uris)
        reached.add(listed)
        reached.add(copies_of_localized(context.mapping, listed))

    return add


def _in_transit_since(context: RegionContext, head: Head, oldest: datetime) -> datetime | None:
    """Return since when a table is in transit, by the store's clock; what a bulk run copied for it is younger.

    For one that has a fault by now its files are kept as long as replaced ones: its copy may never complete.
    """
    held_list = load_held_list(context.objects, head).held_list
    in_transit = [
        (held_key, held_since(held_key) or _EARLIEST) for held_key in held_list.entries or () if held_key.bytes
    ]
    since = [at if held_key.in_transit else max(at, oldest) for held_key, at in in_transit]
    if held_list.read_error:
        since = [parse_commit_time(held_list.oldest) or _EARLIEST]
    return min(since) - _MAX_CLOCK_SKEW if since else None
