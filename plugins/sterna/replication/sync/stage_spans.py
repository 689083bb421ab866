"""What the spans of a sync and of its stages have as attributes: regions, commits and counts, and no table's name."""

from __future__ import annotations

from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.model import Plan, Report, StageReport
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import run_id_from_uri
from sterna.tracing.span import Attributes, annotate, own_attributes


def sync_attributes(context: RegionContext, options: SyncOptions, *_: object, **__: object) -> Attributes:
    """Return those of a sync, or of its first stage: where, and which lane."""
    return {**_region_attributes(context), **own_attributes(lane=options.lane)}


def run_attributes(context: RegionContext, run: str, *_: object, **__: object) -> Attributes:
    """Return those of a stage that carries out the plan of a run."""
    return {**_region_attributes(context), **own_attributes(run_id=run_id_from_uri(run))}


def batch_attributes(context: RegionContext, run: str, batch: int, *_: object, **__: object) -> Attributes:
    """Return those of the copy of one batch."""
    return {**run_attributes(context, run), **own_attributes(batch=batch)}


def stage_attributes(report: StageReport) -> Attributes:
    """Return what a stage has done."""
    return own_attributes(files=report.files, bytes=report.bytes, sent_bytes=report.sent, failed=len(report.failed))


def report_attributes(report: Report) -> Attributes:
    """Return how a sync has ended."""
    return own_attributes(
        run_id=report.run_id,
        source_hash=report.source_hash,
        replica_hash=report.replica_hash,
        outcome=report.outcome,
        published=len(report.published),
        held=len(report.held),
        in_transit=len(report.transit),
    )


def annotate_plan(plan: Plan) -> None:
    """Set a plan's run and its commit of `main` on the span that is open."""
    annotate(own_attributes(run_id=plan.run_id, source_hash=plan.source_hash))


def _region_attributes(context: RegionContext) -> Attributes:
    return own_attributes(region=context.region.name, branch=context.region.replica_branch)
