"""A clean-up: files that no retained head reaches are deleted once that has been so for long enough."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import chain

from sterna.config.registry.folders import state_root
from sterna.maintenance.deletion.delete import Garbage
from sterna.maintenance.deletion.file_lists import Files, exclude_reached, table_amount
from sterna.maintenance.deletion.model import ZERO_AMOUNT, Amount
from sterna.maintenance.deletion.passes import read_passes, save_pass
from sterna.maintenance.gc.decide import EVIDENCE, ClassifiedFiles, Rules, classify_files, select_garbage
from sterna.maintenance.gc.delete import Deletion, DeletionResult
from sterna.maintenance.gc.evidence import PendingRuns, gc_folder, save_gc_report
from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.pin import delete_expired_pins
from sterna.maintenance.gc.retained_heads import RetainedHeads, read_retained_heads, versions_since
from sterna.replication.failover.certain_term import require_certain_term
from sterna.replication.replica.head import Head, load_held_list, read_head
from sterna.replication.replica.held import held_since, parse_commit_time
from sterna.replication.replica.ids import GC_ID_PREFIX, new_id
from sterna.replication.replica.reachability import ReachabilityWalk, ReachedFiles
from sterna.replication.replica.region import RegionContext

_MAX_CLOCK_SKEW = timedelta(hours=1)  # between the clocks of a catalog and a store
_EARLIEST = datetime(1970, 1, 2, tzinfo=UTC)


def run_gc(
    context: RegionContext,
    options: GcOptions,
    progress: Callable[[str], None] = lambda line: None,
    *,
    now: datetime | None = None,
) -> GcReport:
    """Find unreachable files below a region's replica root, and delete them with `options.delete`.

    A pass records what it found unreachable and did not delete. A file is deleted when no kept head reaches it, every
    pass since one that is at least `grace` old found it unreachable, and the file itself is as old.

    Args:
        now: the time; default: the clock's.

    Returns:
        What was found and done.

    Raises:
        ReplicaBroken: a file that a kept head needs can't be read; then nothing is deleted.
        UpkeepBlocked: which region is the primary isn't certain; then nothing is deleted.
        Busy: a sync or another clean-up was at work for longer than the caller would wait, or the primary was switched.
        UsageError: there is no replica branch.
        CatalogError, StoreError: something doesn't answer; a later run continues.
        EngineError: the local disk is too full for the list of reachable files; a later run continues.
    """
    now = now or datetime.now(UTC)
    pass_id = new_id(now, GC_ID_PREFIX)
    term = require_certain_term(context, options.excluded_regions)
    heads = read_retained_heads(context, now - options.keep, whole_history=options.evict)
    if options.delete:
        delete_expired_pins(context, now, progress, heads.other_references.seen)
    progress(f"{len(heads.kept)} versions of tables and views are kept, {len(heads.refused)} belong to refused tables")
    kept, refused = ReachedFiles(), ReachedFiles()
    walk = _walk_retained(context, heads, kept, refused, progress)
    rules = _build_rules(context, heads, options, now)
    classified = classify_files(
        context.objects.list(context.region.replica_root), rules, kept, refused, heads.superseded
    )
    heads = _catch_up(context, heads, walk)
    unreachable, only_refused = (
        Files(exclude_reached(files.parts(), kept)) for files in (classified.unreachable, classified.refused)
    )
    classified = replace(classified, unreachable=unreachable, refused=only_refused)
    deletable = _select_deletable(classified, rules, options)
    runs = PendingRuns(context, now, options.grace)
    report = build_report(context, pass_id, options, heads, classified, deletable, runs, now)
    remaining, store_error = classified.unreachable, None
    if options.delete:
        deletion = Deletion(context, pass_id, options, term, runs, heads, walk, progress)
        deleted = deletion.run(Garbage(chain(*(files.parts() for files in deletable)), kept))
        store_error = deleted.tally.store_error
        report = _with_deleted(report, deleted, _deleted_evidence(deleted, rules))
        remaining = deleted.tally.remaining(remaining, kept)
    # At the end, so that a clean-up that was killed leaves the earlier passes as the next one needs them.
    save_pass(context, gc_folder(context), pass_id, remaining)
    if store_error:  # recorded first: else later passes would have only what can't be deleted in common
        raise store_error
    report = replace(report, left=remaining.amount)
    save_gc_report(context, report)
    return report


def _walk_retained(
    context: RegionContext,
    heads: RetainedHeads,
    kept: ReachedFiles,
    refused: ReachedFiles,
    progress: Callable[[str], None],
) -> ReachabilityWalk:
    """Reach what the kept versions need, and what refused tables do; return the walk over the former."""
    walk = ReachabilityWalk(context, kept.add, progress)
    walk.visit(heads.kept)
    ReachabilityWalk(context, kept.add, progress, ignore_missing=True).visit(heads.past_on_main)
    ReachabilityWalk(context, refused.add, progress, ignore_missing=True).visit(heads.refused)
    return walk


def build_report(
    context: RegionContext,
    pass_id: str,
    options: GcOptions,
    heads: RetainedHeads,
    classified: ClassifiedFiles,
    deletable: tuple[Files, Files],
    runs: PendingRuns,
    now: datetime,
) -> GcReport:
    """Return the report of what was found, before anything is deleted."""
    return GcReport(
        region=context.region.name,
        pass_id=pass_id,
        replica_hash=heads.head.hash,
        dry_run=not options.delete,
        objects=classified.objects,
        strange=classified.unknown,
        unreachable=classified.unreachable.amount,
        garbage=deletable[0].amount + deletable[1].amount,
        refused=classified.refused.amount,
        in_flight=runs.in_flight(heads.head.hash),
        still_shown=heads.still_shown,
        at=now.isoformat(),
        evidence=classified.evidence,
        superseded=classified.superseded,
    )


def _with_deleted(report: GcReport, deleted: DeletionResult, evidence: Amount) -> GcReport:
    """Return a report with what was deleted, evidence among it."""
    return replace(
        report,
        deleted=deleted.tally.done,
        failed=deleted.tally.failed,
        failures=deleted.tally.failures,
        replica_hash=deleted.head,
        evidence=report.evidence - evidence,
    )


def _build_rules(context: RegionContext, heads: RetainedHeads, options: GcOptions, now: datetime) -> Rules:
    location_ids = frozenset((*context.registry.bindings(), *(heads.head.bindings or {})))
    passes = read_passes(context, gc_folder(context), now - options.grace)
    return Rules(
        context.mapping,
        location_ids,
        now,
        options.keep,
        options.grace,
        passes,
        _in_transit_since(context, heads.head, now - options.keep),
    )


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


def _catch_up(context: RegionContext, heads: RetainedHeads, walk: ReachabilityWalk) -> RetainedHeads:
    """Reach what was published, or committed to `main`, while the store was listed."""
    head = read_head(context.primary, context.region.replica_branch)
    versions = versions_since(context, heads.head.hash, head.hash) | heads.other_references.read_new_versions()
    walk.visit(versions - heads.kept)
    return replace(heads, head=head, kept=heads.kept | versions)


def _select_deletable(classified: ClassifiedFiles, rules: Rules, options: GcOptions) -> tuple[Files, Files]:
    """Return the files and the evidence to delete; evidence is deleted last: its age shows whether clean-ups
    complete."""
    import pyarrow.compute as pc

    refused = classified.refused.parts() if options.evict else ()
    table_files, evidence = Files(), Files()
    for part in chain(select_garbage(classified.unreachable, rules).parts(), refused):
        is_own = pc.starts_with(part.column("uri"), state_root(rules.mapping.region.replica_root))
        table_files.add(part.filter(pc.invert(is_own)))
        evidence.add(part.filter(is_own))
    return table_files, evidence


def _deleted_evidence(deleted: DeletionResult, rules: Rules) -> Amount:
    import pyarrow as pa

    evidence = ZERO_AMOUNT
    for part in deleted.tally.deleted.parts():
        is_evidence = [rules.classify(uri) == EVIDENCE for uri in part.column("uri").to_pylist()]
        evidence += table_amount(part.filter(pa.array(is_evidence, pa.bool_())))
    return evidence
