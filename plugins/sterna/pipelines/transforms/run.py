"""Runs a region's transforms, and reads their SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event

from sterna.config.sections.transforms import Transform
from sterna.errors import ServicesError, UsageError
from sterna.pipelines.transforms.step import StepSummary, TransformReconciler
from sterna.pipelines.transforms.step_context import FlowSpark
from sterna.replication.replica.region import RegionContext
from sterna.runtime.runner import Runner, RunSummary

_MAX_SQL_CHARS = 100_000


def run_transforms(
    open_region: Callable[[], RegionContext],
    flows: Sequence[Transform],
    folder: Path,
    report_progress: Callable[[str], object],
    seconds: float = 0.0,
    stopping: Event | None = None,
) -> RunSummary[StepSummary]:
    """Take all steps of transforms that are due: once, or for some time with Spark kept warm.

    Args:
        open_region: returns the region by its current registry.
        folder: of the services file and of the files of SQL that it names.
        report_progress: called with lines of text.
        seconds: for how long to poll for more; 0: each transform is run once.
        stopping: ends the run after the step under way, once it is set.
    """
    flow_spark = FlowSpark()
    reconcilers = [
        TransformReconciler(open_region, flow, partial(read_sql, flow, folder), flow_spark) for flow in flows
    ]
    try:
        return Runner(reconcilers, report_progress, stopping=stopping).run(seconds)
    finally:
        flow_spark.close()


def select_flows(flows: Sequence[Transform], names: Sequence[str]) -> list[Transform]:
    """Return transforms by their names, by default all, in the order of the file.

    Raises:
        UsageError: there is no such transform, or none at all.
    """
    if not flows:
        raise UsageError(
            "the services file has no section transforms", hint="say there what follows what: docs/transforms.md"
        )
    if unknown := set(names) - {flow.name for flow in flows}:
        flow_names = ", ".join(flow.name for flow in flows)
        raise UsageError(f"no transform {', '.join(sorted(unknown))}: there are {flow_names}")
    return [flow for flow in flows if not names or flow.name in names]


def read_sql(flow: Transform, folder: Path) -> str:
    """Return a transform's SQL.

    Args:
        folder: of the services file.

    Raises:
        ServicesError: its file can't be read.
    """
    if not flow.file:
        return flow.sql
    try:
        text = (folder / flow.file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # not UTF-8, or not a valid file name
        raise ServicesError(f"transform {flow.name}: can't read {flow.file}: {error}") from None
    if not text.strip() or len(text) > _MAX_SQL_CHARS:
        raise ServicesError(f"transform {flow.name}: {flow.file} is empty, or has more than {_MAX_SQL_CHARS} letters")
    return text
