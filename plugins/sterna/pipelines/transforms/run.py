"""Runs a region's transforms one after another: once, or for some time with Spark kept warm."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.config.sections.transforms import Transform
from sterna.errors import EngineError, Remedy, ServicesError, SternaError, UsageError
from sterna.pipelines.transforms.step import StepSummary, step, write_start_failure
from sterna.pipelines.transforms.step_context import FlowSpark
from sterna.replication.replica.region import RegionContext

log = logging.getLogger(__name__)
_POLL_SECONDS = 1.0
_RETRY_SECONDS = 30.0  # before a transform that failed is tried again
_MAX_SQL_CHARS = 100_000


@dataclass(frozen=True)
class RunSummary:
    """What a run did.

    Args:
        steps: the steps that published rows, in order.
        idle: why there is nothing to do now, by transform.
        failed: the last error, by transform.
        stopped: transforms with an error that no retry cures.
        exit_code: of the command: of a transform that is stopped, or else of one that failed.
    """

    steps: tuple[StepSummary, ...]
    idle: Mapping[str, str]
    failed: Mapping[str, str]
    stopped: tuple[str, ...]
    exit_code: int = 0


@dataclass
class Runner:
    """Takes steps of transforms.

    Args:
        open_region: returns the region by its current registry.
        flows: the transforms.
        folder: of the services file and of the files of SQL that it names.
        report_progress: called with lines of text.
        sleep, clock: as in `time`.
    """

    open_region: Callable[[], RegionContext]
    flows: Sequence[Transform]
    folder: Path
    report_progress: Callable[[str], object]
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _steps: list[StepSummary] = field(default_factory=list)
    _idle: dict[str, str] = field(default_factory=dict)
    _failed: dict[str, SternaError] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float = 0.0) -> RunSummary:
        """Take all steps that are due; an error of one transform doesn't stop the others.

        Args:
            seconds: for how long to poll; 0: each transform is run once.
        """
        flow_spark, end = FlowSpark(), self.clock() + seconds
        try:
            while True:
                for flow in self.flows:
                    if self.clock() >= self._due.get(flow.name, 0.0):
                        self._step(flow_spark, flow)
                if self.clock() >= end:
                    return self._summary()
                self.sleep(_POLL_SECONDS)
        finally:
            flow_spark.close()

    def _step(self, flow_spark: FlowSpark, flow: Transform) -> None:
        started_at = self.clock()
        try:
            context = self.open_region()
            summary = step(context, flow, self._read_sql(context, flow), flow_spark)
        except SternaError as error:
            self._record_failure(flow, error)
        except Exception as error:
            # An unexpected error must not stop the other transforms.
            log.exception("transform %s failed", flow.name)
            self._record_failure(flow, EngineError(f"nobody foresaw this: {type(error).__name__}; the log has more"))
        else:
            self._failed.pop(flow.name, None)
            if summary.end is None:
                self._idle[flow.name] = summary.reason
                return  # polling is cheap, so changes are noticed at once
            self._due[flow.name] = started_at + flow.every
            self._idle.pop(flow.name, None)
            self._steps.append(summary)
            self.report_progress(f"{flow.name}: {flow.into} has come up to snapshot {summary.end} of {flow.source}")

    def _read_sql(self, context: RegionContext, flow: Transform) -> str:
        """Return a transform's SQL, read from its file again."""
        try:
            return read_sql(flow, self.folder)
        except SternaError as error:
            write_start_failure(context, flow, error)
            raise

    def _record_failure(self, flow: Transform, error: SternaError) -> None:
        self._due[flow.name] = self.clock() + _RETRY_SECONDS
        self._failed[flow.name] = error
        self.report_progress(f"{flow.name}: {type(error).__name__}: {error}")

    def _summary(self) -> RunSummary:
        failed = {name: f"{type(error).__name__}: {error}" for name, error in self._failed.items()}
        stopped = tuple(name for name, error in self._failed.items() if error.remedy is not Remedy.RETRY)
        exit_codes = [self._failed[name].exit_code for name in (*stopped, *failed)]
        return RunSummary(tuple(self._steps), dict(self._idle), failed, stopped, exit_codes[0] if exit_codes else 0)


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
        folder: where the services file lies.

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
