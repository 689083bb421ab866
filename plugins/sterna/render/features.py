"""Online features, for people."""

from __future__ import annotations

from collections.abc import Sequence

from sterna.errors import printable
from sterna.features.materialize import Materialized
from sterna.features.region import Failed
from sterna.features.status import ViewStatus
from sterna.features.verify import Verified


def materialized_text(found: Materialized) -> str:
    """Return what became of a view as one line."""
    why = f" ({printable(found.why)})" if found.why else ""
    if found.how in ("same", "empty"):
        said = "nothing to do" if found.how == "same" else "its table has no rows yet"
        return f"{found.view}: {said}"
    at = "" if found.snapshot is None else f", at snapshot {found.snapshot}"
    return f"{found.view}: {found.how}{why}: {found.rows} rows written, {found.gone} gone{at}"


def run_text(made: Sequence[Materialized], failed: Sequence[Failed]) -> str:
    """Return what became of all views as lines."""
    lines = [materialized_text(each) for each in made]
    return "\n".join([*lines, *(f"{each.view}: failed: {each.error}" for each in failed)])


def status_text(views: Sequence[ViewStatus]) -> str:
    """Return how far all views are as lines."""
    return "\n".join(_status(each) for each in views)


def _status(view: ViewStatus) -> str:
    behind = "unknown" if view.behind is None else f"{view.behind:.0f} s"
    whole = "whole" if view.ready else "not whole"
    kept = whole if view.serve == "complete" else "a cache"
    snapshot = "none" if view.snapshot is None else str(view.snapshot)
    alarm = f"\n  alarm: {printable(view.alarm)}" if view.alarm else ""
    return f"{view.view} of {view.table}: snapshot {snapshot}, behind {behind}, {kept}{alarm}"


def verified_text(found: Sequence[Verified]) -> str:
    """Return what comparisons found as lines."""
    return "\n".join(_verified(each) for each in found)


def _verified(found: Verified) -> str:
    if found.problem:
        return f"{found.view}: not compared: {found.problem}"
    said = f"{found.missing} missing, {found.different} different, {found.surplus} only in the store"
    lines = [f"{found.view}: {found.compared} rows compared: {'the same' if found.good else said}"]
    return "\n".join([*lines, *(f"  {printable(each, 200)}" for each in found.examples)])
