"""A flow's target made anew on an operator's word: the same SQL over the whole source, in one snapshot."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sterna.errors import FlowStopped, TableMoved
from sterna.flows.decide import by_sql, rebuild_step, rebuilding
from sterna.flows.failure import UNREAD, rebuild_under_way, write_failure
from sterna.flows.look import look
from sterna.flows.shop import Bench, FlowShop
from sterna.flows.write import Writing
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow
from sterna.wap.decide import is_rewound
from sterna.wap.model import flow_channel
from sterna.wap.protocol import LOOKS, Outcome, put
from sterna.wap.spark import SparkTable


@dataclass(frozen=True)
class Rebuilt:
    """What a rebuild does.

    Args:
        flow: the flow's name.
        source: the table that is read.
        end: its snapshot up to which.
        into: the table all of whose rows are replaced.
        mark: the target's mark before.
        snapshot: the target's snapshot that has the rows; None: only shown.
        commit: a commit of `main` that has it.
        done: whether it was done.
    """

    flow: str
    source: str
    end: int
    into: str
    mark: str
    snapshot: int | None = None
    commit: str = ""
    done: bool = False


def rebuild(context: RegionContext, flow: Flow, sql: str, shop: FlowShop, *, act: bool = False) -> Rebuilt:
    """Replace all rows of a flow's target by those that follow from the whole source.

    Readers see the old rows until the new ones are there. Safe to interrupt and to repeat.

    Args:
        context: the region, whose replica is read.
        flow: the flow.
        sql: its SQL.
        shop: where the Spark is.
        act: do it; else only say what it would do.

    Raises:
        FlowStopped: the source has no rows here yet.
        MarkMoved: another rebuild, or a step, was first.
        SternaError: as `sterna.flows.step.step`.
    """
    mark = UNREAD
    try:
        sides = look(context, flow)
        mark = sides.target.properties.get(flow_channel(flow.name).mark, "")
        if sides.source is None or sides.source.current is None:
            raise FlowStopped("there are no rows to rebuild from on this region's replica", table=flow.source)
        shown = Rebuilt(flow.name, flow.source, sides.source.current, flow.into, mark)
        if not act:
            return shown
        with rebuild_under_way(context, flow.name, mark) as moved, shop.bench(context, flow, sides.metadata) as bench:
            mark = _begun(bench.table, flow)
            if mark != shown.mark:
                moved(mark)
            outcome = _put(bench, flow, sql, mark, shown.end)
    except BaseException as error:
        # Whoever asks for the status has no other word of it, as of a step.
        if act:
            write_failure(context, flow.name, mark, error, rebuild=True)
        raise
    return replace(shown, mark=mark, snapshot=outcome.snapshot, commit=outcome.commit, done=True)


def _put(bench: Bench, flow: Flow, sql: str, mark: str, end: int) -> Outcome:
    step, writing = by_sql(rebuild_step(flow, mark, end), flow, sql), Writing(bench, flow, sql)
    return put(bench.table, step, lambda at: writing.stage_anew(at, step, end), lambda at, snapshot: None)


def _begun(table: SparkTable, flow: Flow) -> str:
    """Return the mark that the rebuild goes on from; where the target was rolled back it says so until it is done."""
    channel = flow_channel(flow.name)
    for _ in range(LOOKS):
        at = table.look()
        mark = at.state.properties.get(channel.mark, "")
        if not is_rewound(at.state, channel):
            return mark
        try:
            table.set_mark(at, channel, rebuilding(mark))
        except TableMoved:
            continue
    raise TableMoved("the table was changed by others each time", table=table.name)
