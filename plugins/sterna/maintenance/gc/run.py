"""A clean-up: files that no retained head reaches are deleted once that has been so for long enough."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime

from sterna.maintenance.deletion.collect import collect
from sterna.maintenance.deletion.dropped import read_dropped_versions
from sterna.maintenance.gc.model import GcOptions, GcReport
from sterna.maintenance.gc.pin import delete_expired_pins
from sterna.maintenance.gc.retained_heads import below_replica_root, read_retained_heads
from sterna.maintenance.gc.scope import ReplicaScope
from sterna.replication.failover.certain_term import require_certain_term
from sterna.replication.replica.ids import GC_ID_PREFIX, new_id
from sterna.replication.replica.region import RegionContext


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
    if options.short_retention:
        progress(f"warning: {options.short_retention}")
    now = now or datetime.now(UTC)
    pass_id = new_id(now, GC_ID_PREFIX)
    term = require_certain_term(context, options.excluded_regions)
    heads = read_retained_heads(context, now - options.keep, whole_history=options.evict)
    dropped = read_dropped_versions(context, heads.head.hash, now)
    heads.dropped = set(below_replica_root(context, dropped)) - heads.kept
    if options.delete:
        delete_expired_pins(context, now, progress, heads.other_references.seen)
    progress(f"{len(heads.kept)} versions of tables and views are kept, {len(heads.refused)} belong to refused tables")
    scope = ReplicaScope(context, pass_id, options, term, heads, now, progress)
    report, store_error = collect(scope, delete=options.delete, progress=progress)
    if store_error is not None:
        raise store_error
    return report
