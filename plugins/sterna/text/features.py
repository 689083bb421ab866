"""Online features, for people."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.errors import printable
from sterna.pipelines.features.materialize import Materialization, describe_materialization
from sterna.pipelines.features.status import ViewStatus
from sterna.pipelines.features.verify import Verification
from sterna.runtime.runner import RunSummary
from sterna.text.lines import join_lines


def run_text(summary: RunSummary[Materialization]) -> str:
    """Return what became of all views as lines."""
    lines = [describe_materialization(view) for view in summary.steps]
    lines += [f"{name}: {reason}" for name, reason in summary.idle.items()]
    return join_lines([*lines, *(f"{name}: failed: {error}" for name, error in summary.errors.items())])


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
