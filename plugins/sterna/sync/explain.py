"""A plan for people: what it would do, from where, at what price, and what is held and why."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import NAMESPACE
from sterna.replica import file_list as listing
from sterna.replica.held import Held
from sterna.replica.records import Plan
from sterna.replica.region import RegionContext
from sterna.sync.placement import Placement, placements

if TYPE_CHECKING:
    import pyarrow as pa


def explain(context: RegionContext, plan: Plan, files: pa.Table | None) -> dict[str, Any]:
    """Return a plan as plain data: tables, files and bytes by table and by origin, price, and what is held.

    Args:
        context: the region.
        plan: the plan.
        files: its list of files, None when it has none.
    """
    tables = {} if files is None else _tables(files)
    origins: dict[str, dict[str, int]] = defaultdict(lambda: {"batches": 0, "files": 0, "bytes": 0})
    for batch in plan.batches:
        origin = origins[batch.origin]
        origin["batches"] += 1
        origin["files"] += batch.files
        origin["bytes"] += batch.bytes
    return {
        "region": plan.region,
        "branch": context.region.replica_branch,
        "source_hash": plan.source_hash,
        "watermark": plan.watermark or None,
        "idle": plan.idle,
        "seeding": plan.seeding,
        "more": plan.more,
        "actions": [
            {"key": action.key, "kind": action.kind, "change": action.change, **tables.get(action.key, {})}
            for action in plan.actions
        ],
        "left": plan.left,
        "present": plan.present,
        "localize": [vars(place) for place in (placements(context.region, files) if files is not None else ())],
        "origins": dict(origins),
        "egress_cost": round(plan.egress, 6),
        "held": [vars(item) for item in plan.held],
    }


def _tables(files: pa.Table) -> dict[str, dict[str, int]]:
    """Return, by table, the files and bytes to copy and the files to localize."""
    import pyarrow.compute as pc

    copied = files.select(["table", "size", "batch"]).filter(pc.greater_equal(files.column("batch"), 0))
    found: dict[str, dict[str, int]] = defaultdict(lambda: {"files": 0, "bytes": 0, "localize": 0})
    for row in copied.group_by("table").aggregate([("size", "count"), ("size", "sum")]).to_pylist():
        found[row["table"]].update({"files": row["size_count"], "bytes": row["size_sum"]})
    for row in listing.to_localize(files).group_by("table").aggregate([("size", "count")]).to_pylist():
        found[row["table"]]["localize"] = row["size_count"]
    return found


def explain_text(explained: dict[str, Any]) -> str:
    """Return an explained plan as lines for a terminal or a task's log."""
    lines = [
        f"{explained['branch']}: from main@{(explained['watermark'] or 'nothing')[:12]} to "
        f"main@{explained['source_hash'][:12]}"
    ]
    if explained["idle"]:
        lines.append("  nothing to do")
    for action in explained["actions"]:
        detail = ""
        if action["change"] == "put" and action["kind"] != NAMESPACE:
            detail = (
                f": copy {action.get('files', 0)} files, {action.get('bytes', 0)} bytes; localize "
                f"{action.get('localize', 0)}"
            )
        lines.append(f"  {action['change']} {action['kind'].lower()} {action['key']}{detail}")
    for origin, sums in explained["origins"].items():
        lines.append(f"  from {origin}: {sums['files']} files, {sums['bytes']} bytes in {sums['batches']} batches")
    lines += [f"  {Placement(**place).line}" for place in explained["localize"]]
    if explained["origins"]:
        lines.append(f"  estimated egress cost: {explained['egress_cost']}")
    for item in explained["held"]:
        lines.append(f"  {Held(**item).line}")
    if explained["more"]:
        lines.append("  more tables follow in further groups")
    return "\n".join(lines)
