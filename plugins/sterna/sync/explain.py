"""What a plan would do, as facts: from where, at what price, and what is held and why."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from sterna.replica import file_list as listing
from sterna.replica.held import Held
from sterna.replica.records import Plan
from sterna.replica.region import RegionContext
from sterna.sync.placement import Placement, placements

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class ExplainedAction:
    """One key that changes on the replica branch.

    Args:
        key: key name.
        kind: content type, as the catalog spells it.
        change: what happens to the key.
        files, bytes: what is copied for it.
        localize: how many of its files are localized. All three are None for a key that brings no file.
    """

    key: str
    kind: str
    change: Literal["put", "drop"]
    files: int | None = None
    bytes: int | None = None
    localize: int | None = None


@dataclass(frozen=True)
class OriginSum:
    """What is copied from one location.

    Args:
        batches, files, bytes: how many.
    """

    batches: int = 0
    files: int = 0
    bytes: int = 0


@dataclass(frozen=True)
class PlanExplained:
    """A plan in facts that a page, a command or a task's log can show.

    Args:
        region, branch: what is brought up to date.
        source_hash: the commit of `main` that it is brought to.
        watermark: the commit of `main` that it stands for, None where there is none yet.
        idle: nothing is to be done.
        seeding: the branch is being seeded for the first time.
        more: another sync must follow: the seed has further groups.
        actions: keys that change.
        left: how many of the compared keys are as they should be.
        present: how many foreign files, not proven by the replica's head, are here already.
        localize: where the files of each role are localized, in the order of the passes.
        origins: what is copied, by the id of the location that it comes from.
        egress_cost: estimated price of the copies.
        held: keys that can't be taken up now.
    """

    region: str
    branch: str
    source_hash: str
    watermark: str | None
    idle: bool
    seeding: bool
    more: bool
    actions: tuple[ExplainedAction, ...]
    left: int
    present: int
    localize: tuple[Placement, ...]
    origins: dict[str, OriginSum]
    egress_cost: float
    held: tuple[Held, ...]


def explain(context: RegionContext, plan: Plan, files: pa.Table | None) -> PlanExplained:
    """Return what a plan would do: tables, files and bytes by table and by origin, price, and what is held.

    Args:
        context: the region.
        plan: the plan.
        files: its list of files, None when it has none.
    """
    return PlanExplained(
        region=plan.region,
        branch=context.region.replica_branch,
        source_hash=plan.source_hash,
        watermark=plan.watermark or None,
        idle=plan.idle,
        seeding=plan.seeding,
        more=plan.more,
        actions=_actions(plan, files),
        left=plan.left,
        present=plan.present,
        localize=() if files is None else tuple(placements(context.region, files)),
        origins=_origins(plan),
        egress_cost=round(plan.egress, 6),
        held=plan.held,
    )


def _origins(plan: Plan) -> dict[str, OriginSum]:
    sums: dict[str, OriginSum] = {}
    for batch in plan.batches:
        known = sums.get(batch.origin, OriginSum())
        sums[batch.origin] = OriginSum(known.batches + 1, known.files + batch.files, known.bytes + batch.bytes)
    return sums


def _actions(plan: Plan, files: pa.Table | None) -> tuple[ExplainedAction, ...]:
    work = {} if files is None else _work(files)
    actions = (ExplainedAction(action.key, action.kind, action.change) for action in plan.actions)
    return tuple(replace(action, **work.get(action.key, {})) for action in actions)


def _work(files: pa.Table) -> dict[str, dict[str, int]]:
    """Return, by table, the files and bytes to copy and the files to localize."""
    import pyarrow.compute as pc

    copied = files.select(["table", "size", "batch"]).filter(pc.greater_equal(files.column("batch"), 0))
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"files": 0, "bytes": 0, "localize": 0})
    for row in copied.group_by("table").aggregate([("size", "count"), ("size", "sum")]).to_pylist():
        found[row["table"]].update({"files": row["size_count"], "bytes": row["size_sum"]})
    for row in listing.to_localize(files).group_by("table").aggregate([("size", "count")]).to_pylist():
        found[row["table"]]["localize"] = row["size_count"]
    return found
