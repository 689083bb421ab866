"""One step of a flow: look, decide, compute, stage, publish; done again by anybody it comes to the same."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sterna.errors import MarkMoved, SternaError
from sterna.flows.decide import Idle, Work, by_sql
from sterna.flows.failure import UNREAD, settle, under_way, write_failure
from sterna.flows.look import look, mark_of, next_step
from sterna.flows.shop import Bench, FlowShop
from sterna.flows.write import Writing
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow
from sterna.wap.model import flow_channel
from sterna.wap.protocol import Look, Outcome, put
from sterna.wap.spark import JavaBase, move_mark

_PLANS = 5
"""How often a step is planned anew, where another region was first each time."""


@dataclass(frozen=True)
class Stepped:
    """What became of a step.

    Args:
        flow: the flow's name.
        start: the source's snapshot from which; None: from before the first row.
        end: the one up to which; None: there was nothing to do.
        snapshot: the target's snapshot that has the rows; None: no row changed, or there was nothing to do.
        commit: a commit of `main` that has it, where this call published it.
        reason: why there was nothing to do.
    """

    flow: str
    start: int | None = None
    end: int | None = None
    snapshot: int | None = None
    commit: str = ""
    reason: str = ""


def step(
    context: RegionContext,
    flow: Flow,
    sql: str,
    shop: FlowShop,
    before: Callable[[str], None] = lambda moment: None,
) -> Stepped:
    """Bring a flow's target up to what the region's replica has of its source.

    Args:
        context: the region.
        flow: the flow.
        sql: its SQL.
        shop: where the Spark is.
        before: told `stage` and `publish` before each.

    Raises:
        Gap, NotAnAncestor: the source has expired, or was rolled back.
        Rewound, FlowStopped: the target isn't what the flow left.
        NotOnlyAdded, NotAKey, ServicesError: the source's rows, or the SQL, are none for the flow's mode.
        MarkMoved, TableMoved: others were first each time.
        TableGone, NotStaged: the target can't be written to.
        CatalogError, StoreError, EngineError: something doesn't answer.
    """
    mark = UNREAD
    try:
        for turn in range(_PLANS):
            sides = look(context, flow)
            mark = sides.target.properties.get(flow_channel(flow.name).mark, "")
            work = next_step(context, flow, sides)
            if isinstance(work, Idle):
                settle(context, flow.name, mark)
                return Stepped(flow.name, reason=work.reason)
            work = replace(work, step=by_sql(work.step, flow, sql))
            try:
                with under_way(context, flow.name, mark), shop.bench(context, flow, sides.metadata) as bench:
                    outcome = _done(bench, flow, sql, work, before)
            except MarkMoved:
                if turn == _PLANS - 1:
                    raise
                continue  # another region has come further: what is left follows from where it is
            return Stepped(flow.name, work.start, work.end, outcome.snapshot, outcome.commit)
        raise AssertionError("not reached")
    except BaseException as error:
        # Whoever asks for the status has no other word of it: nor of what nobody foresaw, nor of a time limit.
        write_failure(context, flow.name, mark, error)
        raise


def write_not_begun(context: RegionContext, flow: Flow, error: SternaError) -> None:
    """Write down why a step can't begin, for whoever asks for the status elsewhere.

    Args:
        context: the region.
        flow: the flow.
        error: what is wrong with its definition, or with its file of SQL.
    """
    try:
        mark = mark_of(context, flow)
    except SternaError:
        mark = UNREAD
    write_failure(context, flow.name, mark, error)


def _done(bench: Bench, flow: Flow, sql: str, work: Work, before: Callable[[str], None]) -> Outcome:
    writing = Writing(bench, flow, sql)
    planned = writing.planned(work)
    writing.refuse_other_columns(work)
    if sum(planned.files) == 0:
        return move_mark(bench.table, work.step)

    def stage(at: Look[JavaBase]) -> None:
        before("stage")
        writing.stage(at, work, planned)

    return put(bench.table, work.step, stage, lambda at, snapshot: before("publish"))
