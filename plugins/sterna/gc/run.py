"""A clean-up: what the kept heads reach stays; what none of them reaches goes once it has been so for long enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain

from sterna.cleaning.deleting import Garbage
from sterna.cleaning.files import Files, amount, without
from sterna.cleaning.model import NOTHING, Amount
from sterna.cleaning.passes import read_passes, save_pass
from sterna.gc.decide import EVIDENCE, Rules, SortedOut, garbage, sort_out
from sterna.gc.delete import Deleted, Deletion
from sterna.gc.evidence import Runs, collect_folder, save_collected
from sterna.gc.heads import Heads, kept_heads, versions_since
from sterna.gc.hold import end_holds
from sterna.gc.model import Collected, GcOptions
from sterna.ha.certain import certain_epoch
from sterna.registry.folders import own_root
from sterna.replica.head import Head, read_head, with_held
from sterna.replica.held import held_since, moment
from sterna.replica.ids import COLLECT_ID, new_id
from sterna.replica.reach import ReachedFiles, Walk
from sterna.replica.region import RegionContext

_SKEW = timedelta(hours=1)  # between the clocks of a catalog and a store
_LONG_AGO = datetime(1970, 1, 2, tzinfo=UTC)


def collect(
    context: RegionContext,
    options: GcOptions,
    progress: Callable[[str], None] = lambda line: None,
    *,
    now: datetime | None = None,
) -> Collected:
    """Find what nothing reaches below a region's replica root, and delete it where that was asked for.

    A pass writes down what it found unreachable and left there. A file is deleted when no kept head reaches it, every
    pass since one that is at least `grace` old found it unreachable, and the file itself is as old.

    Args:
        context: the region.
        options: what the caller asks for.
        progress: called with lines for people.
        now: the time; default: the clock's.

    Returns:
        What was found and done.

    Raises:
        ReplicaBroken: a file that a kept head needs can't be read; then nothing is deleted.
        UpkeepBlocked: which region is the primary isn't certain; then nothing is deleted.
        Busy: a sync or another clean-up was at work for longer than the caller would wait, or the primary was switched.
        UsageError: there is no replica branch.
        CatalogError, StoreError: something doesn't answer; a later run goes on.
        EngineError: very much is reached, and there is no room on local disk for it; a later run goes on.
    """
    now = now or datetime.now(UTC)
    pass_id = new_id(now, COLLECT_ID)
    epoch = certain_epoch(context, options.gone)
    heads = kept_heads(context, now - options.keep, whole_history=options.evict)
    if options.delete:
        end_holds(context, now, progress, heads.elsewhere.seen)
    progress(f"{len(heads.kept)} versions of tables and views are kept, {len(heads.refused)} belong to refused tables")
    kept, refused = ReachedFiles(), ReachedFiles()
    walk = _walked(context, heads, kept, refused, progress)
    rules = _rules(context, heads, options, now)
    found = sort_out(context.objects.list(context.region.replica_root), rules, kept, refused, heads.superseded)
    heads = _caught_up(context, heads, walk)
    unreachable, only_refused = (Files(without(files.parts(), kept)) for files in (found.unreachable, found.refused))
    found = replace(found, unreachable=unreachable, refused=only_refused)
    doomed = _doomed(found, rules, options)
    runs = Runs(context, now, options.grace)
    report = report_of(context, pass_id, options, heads, found, doomed, runs, now)
    remaining, stopped = found.unreachable, None
    if options.delete:
        deletion = Deletion(context, pass_id, options, epoch, runs, heads, walk, progress)
        deleted = deletion.run(Garbage(chain(*(files.parts() for files in doomed)), kept))
        stopped = deleted.tally.stopped
        report = _after(report, deleted, _evidence_gone(deleted, rules))
        remaining = deleted.tally.remaining(remaining, kept)
    # At the end, so that a clean-up that was killed leaves the earlier passes as its next try needs them.
    save_pass(context, collect_folder(context), pass_id, remaining)
    if stopped:  # with its record: else what can't be deleted would be all that later passes have in common
        raise stopped
    report = replace(report, left=remaining.amount)
    save_collected(context, report)
    return report


def _walked(
    context: RegionContext, heads: Heads, kept: ReachedFiles, refused: ReachedFiles, progress: Callable[[str], None]
) -> Walk:
    """Reach what the kept versions need, and what refused tables do; return the walk over the former."""
    walk = Walk(context, kept.add, progress)
    walk.over(heads.kept)
    Walk(context, kept.add, progress, gone_is_fine=True).over(heads.past)
    Walk(context, refused.add, progress, gone_is_fine=True).over(heads.refused)
    return walk


def report_of(
    context: RegionContext,
    pass_id: str,
    options: GcOptions,
    heads: Heads,
    found: SortedOut,
    doomed: tuple[Files, Files],
    runs: Runs,
    now: datetime,
) -> Collected:
    """Return what was found."""
    return Collected(
        region=context.region.name,
        pass_id=pass_id,
        replica_hash=heads.head.hash,
        dry_run=not options.delete,
        objects=found.objects,
        strange=found.strange,
        unreachable=found.unreachable.amount,
        garbage=doomed[0].amount + doomed[1].amount,
        refused=found.refused.amount,
        in_flight=runs.in_flight(heads.head.hash),
        still_shown=heads.still_shown,
        at=now.isoformat(),
        evidence=found.evidence,
        superseded=found.superseded,
    )


def _after(report: Collected, deleted: Deleted, evidence: Amount) -> Collected:
    """Return a report with what was deleted, evidence among it."""
    return replace(
        report,
        deleted=deleted.tally.done,
        failed=deleted.tally.failed,
        failures=deleted.tally.failures,
        replica_hash=deleted.head,
        evidence=report.evidence - evidence,
    )


def _rules(context: RegionContext, heads: Heads, options: GcOptions, now: datetime) -> Rules:
    ids = frozenset((*context.registry.bindings(), *(heads.head.bindings or {})))
    passes = read_passes(context, collect_folder(context), now - options.grace)
    return Rules(
        context.mapping,
        ids,
        now,
        options.keep,
        options.grace,
        passes,
        _moving_since(context, heads.head, now - options.keep),
    )


def _moving_since(context: RegionContext, head: Head, oldest: datetime) -> datetime | None:
    """Return since when a table is in transit, by the store's clock; what the large lane brought for it is younger.

    For one that has a fault by now that is kept as long as anything that was replaced: it may never come.
    """
    listed = with_held(context.objects, head).listed
    moving = [(item, held_since(item) or _LONG_AGO) for item in listed.entries or () if item.bytes]
    since = [at if item.in_transit else max(at, oldest) for item, at in moving]
    if listed.lost:
        since = [moment(listed.oldest) or _LONG_AGO]
    return min(since) - _SKEW if since else None


def _caught_up(context: RegionContext, heads: Heads, walk: Walk) -> Heads:
    """Reach what was published, or committed to `main`, while the store was listed."""
    head = read_head(context.primary, context.region.replica_branch)
    found = versions_since(context, heads.head.hash, head.hash) | heads.elsewhere.look()
    walk.over(found - heads.kept)
    return replace(heads, head=head, kept=heads.kept | found)


def _doomed(found: SortedOut, rules: Rules, options: GcOptions) -> tuple[Files, Files]:
    """Return what is to be deleted, and of evidence, which goes last: how old the oldest is tells whether clean-ups get
    to their end.
    """
    import pyarrow.compute as pc

    refused = found.refused.parts() if options.evict else ()
    first, last = Files(), Files()
    for part in chain(garbage(found.unreachable, rules).parts(), refused):
        written = pc.starts_with(part.column("uri"), own_root(rules.mapping.region.replica_root))
        first.add(part.filter(pc.invert(written)))
        last.add(part.filter(written))
    return first, last


def _evidence_gone(deleted: Deleted, rules: Rules) -> Amount:
    import pyarrow as pa

    evidence = NOTHING
    for part in deleted.tally.gone.parts():
        is_evidence = [rules.kind(uri) == EVIDENCE for uri in part.column("uri").to_pylist()]
        evidence += amount(part.filter(pa.array(is_evidence, pa.bool_())))
    return evidence
