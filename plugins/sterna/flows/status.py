"""How far flows are, and whether they can be worked off: for people, who change nothing by asking."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from sterna.errors import EngineError, SternaError, TableGone
from sterna.flows.decide import Idle, Work, other_sql
from sterna.flows.failure import failure_text, read_failure, reason_of
from sterna.flows.look import Sides, look, next_step, source_of
from sterna.flows.plan_of_sql import check_sql
from sterna.flows.run import sql_of
from sterna.flows.shop import FlowShop
from sterna.flows.write import Writing
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow
from sterna.wap.model import flow_channel

log = logging.getLogger(__name__)
_CHANGED_SQL: Final = "; its SQL was changed since its last rows: sterna flow rebuild makes all by the new one"


@dataclass(frozen=True)
class FlowStatus:
    """How far a flow is.

    Args:
        flow: its name.
        source, into, mode: as in the services file.
        mark: what the mark on the target says, "" for none.
        current: the source's current snapshot on this region's replica; None for none.
        behind: how many snapshots of the source there are that the target has not; None: that can't be told.
        state: `up to date`, `behind`, that a step or a rebuild is at work, why it waits or stopped, or why the last one
            failed that this region tried; and whether its SQL is another one than that of its last rows.
        exit_code: what a command ends with; 0 where nothing is wrong.
    """

    flow: str
    source: str
    into: str
    mode: str
    mark: str = ""
    current: int | None = None
    behind: int | None = None
    state: str = ""
    exit_code: int = 0


@dataclass(frozen=True)
class Checked:
    """Whether a flow can be worked off.

    Args:
        flow: its name.
        fault: why not, "" where it can.
        create: a statement that makes the target, where there is none.
        exit_code: what a command ends with.
    """

    flow: str
    fault: str = ""
    create: str = ""
    exit_code: int = 0


def read_flows(
    context: RegionContext, flows: Sequence[Flow], folder: Path, *, now: datetime | None = None
) -> tuple[FlowStatus, ...]:
    """Return how far flows are, without Spark; what goes wrong with one stands in its state.

    Args:
        context: the region.
        flows: which.
        folder: where the services file lies.
        now: the time; default: the clock's.
    """
    return tuple(_status(context, flow, folder, now or datetime.now(UTC)) for flow in flows)


def _status(context: RegionContext, flow: Flow, folder: Path, now: datetime) -> FlowStatus:
    found = FlowStatus(flow.name, flow.source, flow.into, str(flow.mode))
    try:
        sides = look(context, flow)
        mark = sides.target.properties.get(flow_channel(flow.name).mark, "")
        found = replace(found, mark=mark, current=sides.source.current if sides.source else None)
        return _progress(context, flow, folder, now, sides, found)
    except SternaError as error:
        state = f"{type(error).__name__}: {error}{_rebuild(context, flow, found.mark, now)}"
        return replace(found, state=state, exit_code=error.exit_code)
    except Exception as error:
        # Nobody foresaw it: of this flow nothing can be told, and of the others it can.
        log.exception("how far flow %s is can't be told", flow.name)
        return replace(found, state=f"{type(error).__name__}: {reason_of(error)}", exit_code=EngineError.exit_code)


def _progress(
    context: RegionContext, flow: Flow, folder: Path, now: datetime, sides: Sides, found: FlowStatus
) -> FlowStatus:
    """Return what a flow does next, and what failed: of one that is up to date that is a rebuild alone.

    Raises:
        SternaError: it stopped, or its SQL or what failed can't be read.
    """
    work, sql = next_step(context, flow, sides), sql_of(flow, folder)
    changed = _CHANGED_SQL if other_sql(flow, sides.target, sql) else ""
    idle = isinstance(work, Idle)
    state, behind = (work.reason, 0) if isinstance(work, Idle) else ("behind", _behind(sides, work))
    found = replace(found, behind=behind, state=f"{state}{changed}")
    failure = read_failure(context, flow.name, found.mark)
    if failure is None or (idle and not failure.rebuild):
        return found
    told = failure_text(failure, now)
    code = 0 if failure.at_work(now) else failure.exit_code or EngineError.exit_code
    return replace(found, state=f"{state}; {told}{changed}" if idle else f"{told}{changed}", exit_code=code)


def _rebuild(context: RegionContext, flow: Flow, mark: str, now: datetime) -> str:
    """Return what there is to say of a rebuild of a flow that stopped."""
    try:
        failure = read_failure(context, flow.name, mark)
    except SternaError:
        return ""  # the flow is an alarm in any case
    return f"; {failure_text(failure, now)}" if failure is not None and failure.rebuild else ""


def _behind(sides: Sides, work: Work) -> int:
    line = [each.id for each in sides.source.line] if sides.source else []
    return len(line) if work.start is None else line.index(work.start)


def check_flows(context: RegionContext, flows: Sequence[Flow], folder: Path) -> tuple[Checked, ...]:
    """See whether flows can be worked off, by their SQL, their source and their target. Changes nothing.

    Args:
        context: the region.
        flows: which.
        folder: where the services file lies.
    """
    shop = FlowShop()
    try:
        return tuple(_checked(context, flow, folder, shop) for flow in flows)
    finally:
        shop.close()


def _checked(context: RegionContext, flow: Flow, folder: Path, shop: FlowShop) -> Checked:
    try:
        create = _check(context, flow, sql_of(flow, folder), shop)
    except SternaError as error:
        return Checked(flow.name, f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    except Exception as error:
        # Nobody foresaw it: it must not end the check of the other flows.
        log.exception("whether flow %s can be worked off can't be told", flow.name)
        return Checked(flow.name, f"{type(error).__name__}: {reason_of(error)}", exit_code=EngineError.exit_code)
    if create:
        return Checked(flow.name, f"there is no table {flow.into} on main yet", create, TableGone.exit_code)
    return Checked(flow.name)


def _check(context: RegionContext, flow: Flow, sql: str, shop: FlowShop) -> str:
    try:
        sides, there = look(context, flow), True
        source, metadata = sides.source, sides.metadata
    except TableGone as error:
        if error.table != flow.into:
            raise
        source, metadata = source_of(context, flow)
        there = False
    if source is None or source.current is None:
        raise TableGone("this region's replica has no rows of the source yet", table=flow.source)
    with shop.bench(context, flow, metadata) as bench:
        if there:
            _check_step(context, flow, sides, Writing(bench, flow, sql), source.current)
            return ""
        columns = check_sql(bench.spark, flow, sql, bench.whole(source.current).schema, None)
    return create_text(flow, [(field.name, field.dataType.simpleString()) for field in columns.fields])


def _check_step(context: RegionContext, flow: Flow, sides: Sides, writing: Writing, end: int) -> None:
    """See whatever a step would refuse, but for what the rows that changed decide."""
    at = writing.bench.table.look()
    writing.check(at, end)
    work = next_step(context, flow, sides)
    if isinstance(work, Work):
        writing.refuse_older_files(at, work)
        writing.planned(work)
        writing.refuse_other_columns(work)


def create_text(flow: Flow, columns: Sequence[tuple[str, str]]) -> str:
    """Return the statement that makes a flow's target.

    Args:
        flow: the flow.
        columns: names and types, as Spark spells them.
    """
    listed = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    parts = f" PARTITIONED BY ({flow.mode.columns[0]})" if flow.mode.kind == "replace" else ""
    return f"CREATE TABLE {flow.into} ({listed}) USING iceberg{parts} TBLPROPERTIES ('write.wap.enabled'='true')"
