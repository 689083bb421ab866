"""Runs a region's transforms, and reads their SQL."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from threading import Event

from sterna.config.sections.transforms import Transform
from sterna.errors import ServicesError, UsageError
from sterna.pipelines.transforms.step import StepSummary, TransformReconciler
from sterna.pipelines.transforms.step_context import TransformSpark
from sterna.replication.replica.region import RegionContext
from sterna.runtime.runner import Runner, RunSummary

_MAX_SQL_CHARS = 100_000


def run_transforms(
    open_region: Callable[[], RegionContext],
    transforms: Sequence[Transform],
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
    transform_spark = TransformSpark()
    reconcilers = [
        TransformReconciler(open_region, transform, partial(read_sql, transform, folder), transform_spark)
        for transform in transforms
    ]
    try:
        return Runner(reconcilers, report_progress, stopping=stopping).run(seconds)
    finally:
        transform_spark.close()


def select_transforms(transforms: Sequence[Transform], names: Sequence[str]) -> list[Transform]:
    """Return transforms by their names, by default all, in the order of the file.

    Raises:
        UsageError: there is no such transform, or none at all.
    """
    if not transforms:
        raise UsageError(
            "the services file has no section transforms", hint="say there what follows what: docs/transforms.md"
        )
    if unknown := set(names) - {transform.name for transform in transforms}:
        transform_names = ", ".join(transform.name for transform in transforms)
        raise UsageError(f"no transform {', '.join(sorted(unknown))}: there are {transform_names}")
    return [transform for transform in transforms if not names or transform.name in names]


def read_sql(transform: Transform, folder: Path) -> str:
    """Return a transform's SQL.

    Args:
        folder: of the services file.

    Raises:
        ServicesError: its file can't be read.
    """
    if not transform.file:
        return transform.sql
    try:
        text = (folder / transform.file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # not UTF-8, or not a valid file name
        raise ServicesError(f"transform {transform.name}: can't read {transform.file}: {error}") from None
    if not text.strip() or len(text) > _MAX_SQL_CHARS:
        raise ServicesError(
            f"transform {transform.name}: {transform.file} is empty, or has more than {_MAX_SQL_CHARS} letters"
        )
    return text
