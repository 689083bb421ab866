"""How far flows are, and whether they can be worked off: for people, who change nothing by asking."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sterna.errors import SternaError, TableGone
from sterna.flows.decide import Idle
from sterna.flows.failure import read_failure
from sterna.flows.look import look, next_step, source_of
from sterna.flows.plan_of_sql import check_sql
from sterna.flows.run import sql_of
from sterna.flows.shop import FlowShop
from sterna.flows.write import Writing
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow
from sterna.wap.model import flow_channel


@dataclass(frozen=True)
class FlowStatus:
    """How far a flow is.

    Args:
        flow: its name.
        source, into, mode: as in the services file.
        mark: what the mark on the target says, "" for none.
        current: the source's current snapshot on this region's replica; None for none.
        behind: how many snapshots of the source there are that the target has not; None: that can't be told.
        state: `up to date`, `behind`, why it waits or stopped, or why the last step failed that this region tried.
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


def read_flows(context: RegionContext, flows: Sequence[Flow]) -> tuple[FlowStatus, ...]:
    """Return how far flows are, without Spark; what goes wrong with one stands in its state.

    Args:
        context: the region.
        flows: which.
    """
    return tuple(_status(context, flow) for flow in flows)


def _status(context: RegionContext, flow: Flow) -> FlowStatus:
    said = (flow.name, flow.source, flow.into, str(flow.mode))
    try:
        sides = look(context, flow)
    except SternaError as error:
        return FlowStatus(*said, state=f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    mark = sides.target.properties.get(flow_channel(flow.name).mark, "")
    current = sides.source.current if sides.source else None
    try:
        work = next_step(context, flow, sides)
    except SternaError as error:
        return FlowStatus(*said, mark, current, state=f"{type(error).__name__}: {error}", exit_code=error.exit_code)
    if isinstance(work, Idle):
        return FlowStatus(*said, mark, current, 0, work.reason)
    line = [each.id for each in sides.source.line] if sides.source else []
    behind = len(line) if work.start is None else line.index(work.start)
    try:
        failure = read_failure(context, flow.name, mark)
    except SternaError as error:
        return FlowStatus(*said, mark, current, behind, f"{type(error).__name__}: {error}", error.exit_code)
    if failure is None:
        return FlowStatus(*said, mark, current, behind, "behind")
    state = f"failed at {failure.at:%Y-%m-%d %H:%M:%S} UTC: {failure.kind}: {failure.reason}"
    return FlowStatus(*said, mark, current, behind, state, failure.exit_code)


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
            Writing(bench, flow, sql).check(bench.table.look(), source.current)
            return ""
        columns = check_sql(bench.spark, flow, sql, bench.whole(source.current).schema, None)
    return create_text(flow, [(field.name, field.dataType.simpleString()) for field in columns.fields])


def create_text(flow: Flow, columns: Sequence[tuple[str, str]]) -> str:
    """Return the statement that makes a flow's target.

    Args:
        flow: the flow.
        columns: names and types, as Spark spells them.
    """
    listed = ", ".join(f"`{name}` {kind}" for name, kind in columns)
    parts = f" PARTITIONED BY ({flow.mode.columns[0]})" if flow.mode.kind == "replace" else ""
    return f"CREATE TABLE {flow.into} ({listed}) USING iceberg{parts} TBLPROPERTIES ('write.wap.enabled'='true')"
