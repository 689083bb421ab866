"""Online features, for people."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.errors import printable
from sterna.pipelines.features.materialize import Materialization
from sterna.pipelines.features.region import FailedView
from sterna.pipelines.features.status import ViewStatus
from sterna.pipelines.features.verify import Verification


def materialized_text(materialized: Materialization) -> str:
    """Return what became of a view as one line."""
    reason = f" ({printable(materialized.why)})" if materialized.why else ""
    if materialized.how in ("same", "empty"):
        outcome = "nothing to do" if materialized.how == "same" else "its table has no rows yet"
        return f"{materialized.view}: {outcome}"
    snapshot_text = "" if materialized.snapshot is None else f", at snapshot {materialized.snapshot}"
    return (
        f"{materialized.view}: {materialized.how}{reason}: {materialized.rows} rows written, {materialized.gone} "
        f"gone{snapshot_text}"
    )


def run_text(materialized: Sequence[Materialization], failed: Sequence[FailedView]) -> str:
    """Return what became of all views as lines."""
    lines = [materialized_text(view) for view in materialized]
    return "\n".join([*lines, *(f"{view.view}: failed: {view.error}" for view in failed)])


def status_text(views: Sequence[ViewStatus]) -> str:
    """Return how far all views are as lines."""
    return "\n".join(_view_text(view) for view in views)


def _view_text(view: ViewStatus) -> str:
    lag = "unknown" if view.behind is None else f"{view.behind:.0f} s"
    completeness = "whole" if view.ready else "not whole"
    storage = completeness if view.serve == "complete" else "a cache"
    snapshot = "none" if view.snapshot is None else str(view.snapshot)
    alarm = f"\n  alarm: {printable(view.alarm)}" if view.alarm else ""
    return f"{view.view} of {view.table}: snapshot {snapshot}, behind {lag}, {storage}{alarm}"


def verified_text(comparisons: Sequence[Verification]) -> str:
    """Return what comparisons found as lines."""
    return "\n".join(_comparison_text(comparison) for comparison in comparisons)


def _comparison_text(comparison: Verification) -> str:
    if comparison.problem:
        return f"{comparison.view}: not compared: {comparison.problem}"
    differences = (
        f"{comparison.missing} missing, {comparison.different} different, {comparison.surplus} only in the store"
    )
    lines = [
        f"{comparison.view}: {comparison.compared} rows compared: {'the same' if comparison.matches else differences}"
    ]
    return "\n".join([*lines, *(f"  {printable(example, 200)}" for example in comparison.examples)])
