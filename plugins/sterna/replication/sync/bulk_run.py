"""Bulk runs, the work of the large lane: heartbeats, the tables being copied, and the outcome. Nothing is published.

When all files of a table are here it is localized and proven, so that the small lane need not list its files.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime

from sterna.catalog.model import ICEBERG_TABLE
from sterna.errors import Busy, NotLocalized, Paused, SternaError, TableError, UsageError
from sterna.libraries import pa
from sterna.replication.execution.spark_executor import Engine, engine_or_spark
from sterna.replication.plan.dependencies import publication_groups
from sterna.replication.plan.metadata_reader import read_metadata
from sterna.replication.plan.sharded_listing import needs_sharding
from sterna.replication.replica import file_list as listing
from sterna.replication.replica import run_folder
from sterna.replication.replica.bulk_state import (
    BulkRun,
    BulkTable,
    Heartbeat,
    begin_bulk_run,
    end_bulk_run,
    keep_alive,
    mark_complete,
    read_bulk_state,
)
from sterna.replication.replica.head import files_replaced_since
from sterna.replication.replica.held import WAITS
from sterna.replication.replica.model import Plan, Report, StageReport, TableFailure
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.sync.copy_progress import RunProgress
from sterna.replication.sync.localize import localize_files
from sterna.replication.sync.preflight import localization_failures
from sterna.replication.sync.verbatim import copy_verbatim


def require_no_bulk_run(context: RegionContext) -> None:
    """Require that no other bulk run is alive.

    Raises:
        Busy: one is, by its heartbeat. Two would not corrupt anything: they would send files twice.
    """
    bulk_state = read_bulk_state(context.objects, context.region)
    if bulk_state and bulk_state.is_alive and bulk_state.heartbeat_at:
        seconds = (datetime.now(UTC) - bulk_state.heartbeat_at).total_seconds()
        raise Busy(f"another bulk run is active: {bulk_state.run.run_id}, last heartbeat {seconds:.0f} s ago")


def start_bulk_run(context: RegionContext, plan: Plan, files: pa.Table | None) -> None:
    """Record the tables that a plan of the large lane copies, and the bytes and batches of each."""
    batches_by_table = listing.batches_by_table(files) if files is not None else {}
    for batch in plan.batches:
        if batch.table:
            batches_by_table.setdefault(batch.table, []).append(batch.number)
    groups = publication_groups(plan.atomic_groups, plan.actions, plan.relaxed)
    batches = {
        name: sorted(set().union(*(batches_by_table.get(member, ()) for member in group)))
        for group in groups
        for name in group
    }
    bulk_run, invalidated = _bulk_run(plan, files), _invalidation_counts(context, plan)
    tables = tuple(
        replace(
            bulk_table, batches=tuple(batches.get(bulk_table.key, ())), invalidated=invalidated.get(bulk_table.key, 0)
        )
        for bulk_table in bulk_run.tables
    )
    begin_bulk_run(context, replace(bulk_run, tables=tables))


def record_excluded(context: RegionContext, plan: Plan) -> None:
    """Record what a plan of the large lane that copies nothing had to leave out: the small lane reports it."""
    bulk_run, bulk_state = _bulk_run(plan, None), read_bulk_state(context.objects, context.region)
    if bulk_state and bulk_state.is_alive:
        return  # another large lane has begun meanwhile
    if bulk_state and bulk_state.run.finished:
        bulk_run = replace(bulk_state.run, held=bulk_run.held)
    if bulk_run.held or (bulk_state and bulk_state.run.held):
        end_bulk_run(context, bulk_run)


def heartbeat_of(context: RegionContext, plan: Plan, batch: int, rows: pa.Table) -> Heartbeat:
    """Return the heartbeat that reports the progress of one batch's copy."""
    sizes = {name: size for name, (_, size) in listing.copied_by_table(rows).items()}
    return Heartbeat(context, plan.run_id, batch, sizes)


def localize_completed(
    context: RegionContext,
    run: str,
    plan: Plan,
    batch: int,
    run_progress: RunProgress,
    engine: Engine | None,
    progress: Progress,
) -> tuple[str, ...]:
    """Localize the tables that a batch completes while others are left; record and return them.

    The small lane then publishes them: they don't wait for the rest of the run. What fails here is reported at its end.

    Args:
        run: URI of the run's folder.
        plan: of the large lane.
        batch: the number of the one that is done now.
        run_progress: which batches are done, and for which tables they failed.
        engine: where to localize; by default the region's Spark.
    """
    finished = run_progress.finished
    if len(finished) == len(plan.batches):
        return ()  # the run is at its end, which handles all tables

    try:
        bulk_state = read_bulk_state(context.objects, context.region)
        if bulk_state is None or bulk_state.run.run_id != plan.run_id:
            return ()
        completed = {
            bulk_table.key for bulk_table in bulk_state.run.tables if _completes_table(bulk_table, batch, finished)
        } - _blocked_tables(plan, run_progress.failed_tables)
        unannounced = {name for name in completed if not bulk_state.is_complete(name)}
        if not unannounced:
            return tuple(sorted(completed))  # the task is retried, and may not have reported them yet
        files = listing.filter_tables(run_folder.load_files(context, run), unannounced)
        with keep_alive(context, plan.run_id):
            with engine_or_spark(context, progress, engine) as active_engine:
                localized = localize_files(context, run, files, active_engine, progress)
            copy_verbatim(context, run, plan, files, progress)
            proven, _ = _prove_localized(context, plan, files, unannounced, localized)
        mark_complete(context, plan.run_id, proven)
    except SternaError as error:
        progress(f"tables that are here wait for the end of the bulk run: {error.message}")
        return ()
    return tuple(sorted({*(completed - unannounced), *proven}))


def _blocked_tables(plan: Plan, failed: Collection[str]) -> set[str]:
    """Return tables that could not be copied, and those that move together with them."""
    groups = publication_groups(plan.atomic_groups, plan.actions, plan.relaxed) if failed else ()
    return set(failed).union(*(group for group in groups if not set(group).isdisjoint(failed)))


def _completes_table(bulk_table: BulkTable, number: int, finished: frozenset[int]) -> bool:
    """Return whether a batch was the last one of a table; for a table without batches the first batch counts."""
    return finished >= {*bulk_table.batches} and number in (bulk_table.batches or (min(finished),))


def _prove_localized(
    context: RegionContext, plan: Plan, files: pa.Table, tables: Collection[str], localized: StageReport
) -> tuple[tuple[str, ...], tuple[TableFailure, ...]]:
    """Return those of some tables that were localized and whose localized files are proven there; and the failures of
    the others."""
    localized_keys = set(tables) - {failure.table for failure in localized.failed}
    failures = list(localization_failures(context, files, localized_keys))
    for action in plan.actions:
        if action.key in localized_keys and action.kind == ICEBERG_TABLE and action.target:
            try:
                read_metadata(context, action.target)  # the small lane will
            except TableError as error:
                fault = NotLocalized(error.message, table=action.key, file=action.target)
                failures.append(TableFailure.from_error(fault))
    return tuple(sorted(localized_keys - {failure.table for failure in failures})), tuple(failures)


def announced_tables(context: RegionContext, plan: Plan) -> list[str]:
    """Return the tables of a bulk run that are marked complete for the small lane: they are localized."""
    bulk_state = read_bulk_state(context.objects, context.region)
    is_current = bulk_state is not None and bulk_state.run.run_id == plan.run_id
    return [action.key for action in plan.actions if is_current and bulk_state and bulk_state.is_complete(action.key)]


def finish_bulk_run(
    context: RegionContext, run: str, plan: Plan, copied: StageReport, localized: StageReport, seconds: float
) -> Report:
    """Record that a bulk run is over, with the tables that are complete; the small lane's next sync publishes them.

    Raises:
        UsageError: the plan isn't the large lane's.
        StoreError, CatalogError: the region's own store, or the catalog, can't be used.
    """
    if plan.lane != "large":
        raise UsageError("this run's plan is for the small lane: publish it")
    files, failed = run_folder.load_files(context, run), (copied + localized).failed
    unfailed = {item.key for item in plan.held_if_failed} - {item.table for item in failed}
    complete = [name for name in announced_tables(context, plan) if name in unfailed]
    if localized.run_id == plan.run_id:  # without that stage, existing files may be older than a clean-up
        remaining = unfailed - set(complete)
        with keep_alive(context, plan.run_id):
            proven, failures = _prove_localized(context, plan, files, remaining, localized)
        complete += proven
        branch = context.region.replica_branch
        if failures and not files_replaced_since(
            context.primary, branch, plan.replica_hash, context.primary.reference(branch).hash
        ):
            failed += failures  # else a clean-up may have deleted it, and the next bulk run writes it again
    bulk_state = read_bulk_state(context.objects, context.region)
    is_own = bulk_state is not None and bulk_state.run.run_id == plan.run_id
    if (
        bulk_state is None or is_own or not (bulk_state.is_alive or bulk_state.run.finished)
    ):  # else another one has begun since
        bulk_run = bulk_state.run if bulk_state and is_own else _bulk_run(plan, files)
        end_bulk_run(context, replace(bulk_run, failed=failed, complete=tuple(complete)))
    report = Report(
        run_id=plan.run_id,
        region=plan.region,
        source_hash=plan.source_hash,
        outcome="copied",
        replica_hash="",
        watermark=plan.watermark,
        copied=copied,
        localized=localized,
        lag_seconds=None,
        seconds=seconds,
    )
    run_folder.save_report(context, report)
    return report


def _invalidation_counts(context: RegionContext, plan: Plan) -> dict[str, int]:
    """Return, by key name, how many bulk runs completed a table during its transit before files were deleted.

    Raises:
        StoreError, CatalogError: the region's own store, or the catalog, can't be used.
    """
    bulk_state = read_bulk_state(context.objects, context.region)
    if bulk_state is None:
        return {}
    earlier = {
        held_key.key: bulk_table
        for held_key in plan.held_if_failed
        if (bulk_table := bulk_state.run.find_table(held_key))
    }
    completed = {key for key in earlier if bulk_state.is_complete(key)}
    is_invalidated = completed and files_replaced_since(
        context.primary, context.region.replica_branch, bulk_state.run.replica_hash, plan.replica_hash
    )
    return {
        key: bulk_table.invalidated + bool(is_invalidated and key in completed) for key, bulk_table in earlier.items()
    }


def _bulk_run(plan: Plan, files: pa.Table | None) -> BulkRun:
    targets = {action.key: action.target for action in plan.actions}
    lengths = listing.manifest_sizes_by_table(files) if files is not None else {}
    manifest_counts = {name: len(manifests) for name, manifests in lengths.items() if needs_sharding(manifests)}
    tables = tuple(
        BulkTable(
            held_key.key,
            held_key.since,
            held_key.bytes,
            target=targets[held_key.key],
            manifests=manifest_counts.get(held_key.key, 0),
        )
        for held_key in plan.held_if_failed
    )
    return BulkRun(
        plan.run_id,
        tables,
        replica_hash=plan.replica_hash,
        digest=plan.digest,
        registry=plan.registry,
        term=plan.term,
        held=tuple(
            held_key
            for held_key in plan.held
            # A pause ends without a look of the large lane, and what waits for another key goes by that one.
            if not held_key.in_transit and held_key.kind not in (WAITS, Paused.__name__)
        ),
    )
