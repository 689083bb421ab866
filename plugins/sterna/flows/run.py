"""Flows of a region, one after another: once, or for a while with Spark warm."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from sterna.errors import EngineError, Remedy, ServicesError, SternaError, UsageError
from sterna.flows.shop import FlowShop
from sterna.flows.step import Stepped, step, write_not_begun
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow

log = logging.getLogger(__name__)
_LOOKS = 1.0  # seconds between two looks of one that lingers
_TROUBLE = 30.0  # seconds before a flow is tried again that failed
_LARGEST_SQL = 100_000


@dataclass(frozen=True)
class Ran:
    """What was done.

    Args:
        steps: the steps that brought something, in their order.
        idle: why there is nothing to do now, by flow.
        failed: what went wrong last, by flow.
        stopped: those of the failed that wait for somebody.
        exit_code: what a command ends with: that of one that waits for somebody, else of one that a later run cures.
    """

    steps: tuple[Stepped, ...]
    idle: Mapping[str, str]
    failed: Mapping[str, str]
    stopped: tuple[str, ...]
    exit_code: int = 0


@dataclass
class Runner:
    """Takes steps.

    Args:
        region: returns the region as its registry has it now.
        flows: which flows.
        folder: where the services file lies, and files of SQL that it names.
        say: called with lines for people.
        sleep, clock: waits, and tells the seconds.
    """

    region: Callable[[], RegionContext]
    flows: Sequence[Flow]
    folder: Path
    say: Callable[[str], object]
    sleep: Callable[[float], object] = time.sleep
    clock: Callable[[], float] = time.monotonic
    _steps: list[Stepped] = field(default_factory=list)
    _idle: dict[str, str] = field(default_factory=dict)
    _failed: dict[str, SternaError] = field(default_factory=dict)
    _due: dict[str, float] = field(default_factory=dict)

    def run(self, seconds: float = 0.0) -> Ran:
        """Take the steps that there are; what goes wrong with one flow ends no other.

        Args:
            seconds: for how long to look for more; 0: each flow once.
        """
        shop, end = FlowShop(), self.clock() + seconds
        try:
            while True:
                for flow in self.flows:
                    if self.clock() >= self._due.get(flow.name, 0.0):
                        self._step(shop, flow)
                if self.clock() >= end:
                    return self._ran()
                self.sleep(_LOOKS)
        finally:
            shop.close()

    def _step(self, shop: FlowShop, flow: Flow) -> None:
        began = self.clock()
        try:
            context = self.region()
            stepped = step(context, flow, self._sql(context, flow), shop)
        except SternaError as error:
            self._fail(flow, error)
        except Exception as error:
            # Nobody foresaw it: it must not end the other flows.
            log.exception("flow %s failed", flow.name)
            self._fail(flow, EngineError(f"nobody foresaw this: {type(error).__name__}; the log has more"))
        else:
            self._failed.pop(flow.name, None)
            if stepped.end is None:
                self._idle[flow.name] = stepped.reason
                return  # looking costs little: what comes is seen at once
            self._due[flow.name] = began + flow.every
            self._idle.pop(flow.name, None)
            self._steps.append(stepped)
            self.say(f"{flow.name}: {flow.into} has come up to snapshot {stepped.end} of {flow.source}")

    def _sql(self, context: RegionContext, flow: Flow) -> str:
        """Return a flow's SQL as its file has it now."""
        try:
            return sql_of(flow, self.folder)
        except SternaError as error:
            write_not_begun(context, flow, error)
            raise

    def _fail(self, flow: Flow, error: SternaError) -> None:
        self._due[flow.name] = self.clock() + _TROUBLE
        self._failed[flow.name] = error
        self.say(f"{flow.name}: {type(error).__name__}: {error}")

    def _ran(self) -> Ran:
        failed = {name: f"{type(error).__name__}: {error}" for name, error in self._failed.items()}
        stopped = tuple(name for name, error in self._failed.items() if error.remedy is not Remedy.RETRY)
        codes = [self._failed[name].exit_code for name in (*stopped, *failed)]
        return Ran(tuple(self._steps), dict(self._idle), failed, stopped, codes[0] if codes else 0)


def chosen(flows: Sequence[Flow], names: Sequence[str]) -> list[Flow]:
    """Return flows by their names, all without any, in the order of the file.

    Raises:
        UsageError: there is no such flow, or none at all.
    """
    if not flows:
        raise UsageError("the services file has no section flows", hint="say there what follows what: docs/flows.md")
    if unknown := set(names) - {flow.name for flow in flows}:
        known = ", ".join(flow.name for flow in flows)
        raise UsageError(f"no flow {', '.join(sorted(unknown))}: there are {known}")
    return [flow for flow in flows if not names or flow.name in names]


def sql_of(flow: Flow, folder: Path) -> str:
    """Return a flow's SQL.

    Args:
        flow: the flow.
        folder: where the services file lies.

    Raises:
        ServicesError: it stands in a file that can't be read.
    """
    if not flow.file:
        return flow.sql
    try:
        text = (folder / flow.file).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:  # no UTF-8, or no name of a file
        raise ServicesError(f"flow {flow.name}: can't read {flow.file}: {error}") from None
    if not text.strip() or len(text) > _LARGEST_SQL:
        raise ServicesError(f"flow {flow.name}: {flow.file} is empty, or has more than {_LARGEST_SQL} letters")
    return text
