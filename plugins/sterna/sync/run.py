"""A whole sync in one process: the stages, one after the other, again while there is more to do."""

from __future__ import annotations

import time
from dataclasses import replace

from sterna.replica.records import Report, StageReport
from sterna.replica.region import Progress, RegionContext
from sterna.sync import stages
from sterna.sync.engine import Engine, engine_or_spark
from sterna.sync.options import SyncOptions
from sterna.sync.sizes import Dark

_PLANS_PER_SYNC = 10_000  # a bound against a bug, not against work: a seed of a million tables in groups of a hundred


def sync(
    context: RegionContext,
    options: SyncOptions,
    progress: Progress,
    *,
    again: bool = True,
    engine: Engine | None = None,
) -> Report:
    """Run all stages in this process, again while the plan says that there is more to do.

    Args:
        context: the region.
        options: what the caller asks for.
        progress: called with lines for people.
        again: follow up at once when a seed has further groups, or `main` moved on while a file was gone.
        engine: where to localize; default: the region's Spark.

    Returns:
        The last report, its counts and keys summed up over all of them.
    """
    with engine_or_spark(context, progress, engine) as used:
        total = _once(context, options, progress, used)
        for _ in range(_PLANS_PER_SYNC):
            if not (total.more and again):
                break
            total = _summed(total, _once(context, options, progress, used))
    return total


def _once(context: RegionContext, options: SyncOptions, progress: Progress, engine: Engine) -> Report:
    started = time.monotonic()
    planned = stages.plan(context, options, progress)
    if planned.report is not None:
        return planned.report
    copied, dark = StageReport(), Dark()
    for batch in planned.batches:
        progress(
            f"copying batch {batch.number + 1} of {len(planned.batches)} from {batch.origin}: {batch.files} files, "
            f"{batch.bytes} bytes"
        )
        copied += stages.copy(context, planned.run, batch.number, progress, dark=dark)
    localized = stages.localize(context, planned.run, copied, progress, engine)
    report = stages.publish(context, planned.run, copied, localized, progress)
    return replace(report, seconds=time.monotonic() - started)


def _summed(total: Report, report: Report) -> Report:
    return replace(
        report,
        outcome=total.outcome if report.outcome == "idle" else report.outcome,
        published=tuple(dict.fromkeys((*total.published, *report.published))),
        copied=total.copied + report.copied,
        localized=total.localized + report.localized,
        seconds=total.seconds + report.seconds,
    )
