"""Online features, for people."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.errors import printable
from sterna.pipelines.features.materialize import Materialization, describe_materialization
from sterna.pipelines.features.verify import Verification
from sterna.runtime.runner import RunSummary
from sterna.text.reconcilers import run_text


def materialized_text(summary: RunSummary[Materialization]) -> str:
    """Return what became of all views as lines."""
    return run_text(map(describe_materialization, summary.steps), summary)


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
