"""The status of a region as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sterna.errors import list_some
from sterna.operations.alarms import budget_text
from sterna.text.gc import excluded_size_text, size_text
from sterna.text.lines import join_lines, one_line

if TYPE_CHECKING:
    from sterna.operations.objectives import ObjectiveStatus
    from sterna.operations.status.delay_model import DelaySummary, RegionDelays, TableDelays
    from sterna.operations.status.model import HeldStatus, InTransitStatus, RegionStatus, ShortRetention, StorageUsage
    from sterna.replication.failover.model import Slot


_MAX_NAMED_TABLES = 3  # tables in one line


def status_text(status: RegionStatus) -> str:
    """Return the status of a region as lines."""
    lines = [
        _summary_line(status),
        *([f"  {status.cut_off.line}"] if status.cut_off else []),
        *(
            []
            if status.replica_hash
            else [f"  {status.region} has never synced: unpause its DAG, or sterna sync --region {status.region}"]
        ),
        *(
            [f"  published at the primary and not served here yet: {status.unserved[:12]}: see sterna catalog status"]
            if status.unserved
            else []
        ),
        f"  last commit {status.last_commit or 'never'} by run {status.last_run or '-'}",
        *(f"  {line}" for line in delay_lines(status.delays)),
        *(f"  {transit_line(transit)}" for transit in status.transit),
        *(f"  {held_line(held)}" for held in status.held),
        *([f"  {status.unread_held.line}"] if status.unread_held else []),
        *(f"  refused {excluded.key}: {excluded.reason}{excluded_size_text(excluded)}" for excluded in status.refused),
        *(f"  {short_retention_line(short)}" for short in status.short_retention),
        *(f"  {slot_line(slot)}" for slot in status.slots),
        *(f"  {lagging.line}" for lagging in status.silent or ()),
        *([f"  {uncopied_line(status.uncopied)}"] if status.uncopied else []),
        *([f"  {storage_line(status.stored)}"] if status.stored else []),
        *(f"  region {name} runs another registry" for name in status.other_registry),
        *(f"  not read: {check}" for check in status.unseen),
        *([f"  {_problem_line(status)}"] if status.problem else []),
    ]
    return join_lines(lines)


def delay_lines(delays: RegionDelays | None) -> list[str]:
    """Return the lines on how late new versions became visible, on objectives, and on the slowest tables of a day."""
    if delays is None:
        return []
    lines = [f"objective {_objective_text(objective)}" for objective in delays.objectives]
    if delays.problem:
        return [
            one_line(line) for line in (f"how late new versions became visible is unknown: {delays.problem}", *lines)
        ]
    windows = "; ".join(_window_text(summary) for summary in delays.windows)
    slowest = sorted(delays.tables, key=lambda table: -(_day_of(table).most or 0))[:_MAX_NAMED_TABLES]
    shown = [f"{table.key} {_window_text(_day_of(table))}" for table in slowest if _day_of(table).most]
    lines = [f"new versions became visible, since {delays.since}: {windows}", *lines]
    lines += [f"the slowest tables: {'; '.join(shown)}"] if shown else []
    lines += [f"these figures come from the catalog: {delays.rebuilt}"] if delays.rebuilt else []
    return [one_line(line) for line in lines]


def _objective_text(objective: ObjectiveStatus) -> str:
    if objective.left is None:
        return f"{objective.name}: {budget_text(objective)}"
    met = objective.count - objective.late
    state = " (BURNING)" if objective.burning else ""
    return f"{objective.name}: {met} of {objective.count} in a week, {budget_text(objective)}{state}"


def _window_text(summary: DelaySummary) -> str:
    if not summary.count:
        return f"{summary.window} none"
    return (
        f"{summary.window} p50 {summary.p50} s, p95 {summary.p95} s, p99 {summary.p99} s, most {summary.most} s "
        f"of {summary.count}"
    )


def _day_of(table: TableDelays) -> DelaySummary:
    return next(summary for summary in table.windows if summary.window == "day")


def transit_line(table: InTransitStatus) -> str:
    """Return the line of a key in transit: since when, how much is left, and whether a run is working on it."""
    if not table.held.bytes:
        return f"{table.held.state} {table.held.key} since {table.held.since}: {table.held.kind}: {table.held.reason}"
    copy_states = {True: "being copied", False: "no bulk run is copying it", None: "its bulk run is unknown"}
    since = f"since {table.held.since}, lag {_format_seconds(table.lag_seconds)}"
    return f"in transit {table.held.key} {since}: {table.bytes_left} bytes left, {copy_states[table.under_way]}"


def held_line(table: HeldStatus) -> str:
    """Return the line of a held key: the reason, the attempts, what to do."""
    attempts = f", tried {table.tries} times, last at {table.last_try}" if table.tries else ""
    since = table.held.since or "an unknown time"
    return one_line(
        f"held {table.held.key} since {since}{attempts}: {table.held.kind}: {table.held.reason} {table.held.file} -> "
        f"{_with_card(table.do, table.card)}"
    )


def _problem_line(status: RegionStatus) -> str:
    kind = f"{status.problem_kind}: " if status.problem_kind else ""
    return _with_card(f"{kind}{status.problem}", status.problem_card)


def _with_card(text: str, card: str) -> str:
    return f"{text}, see {card}" if card else text


def short_retention_line(table: ShortRetention) -> str:
    """Return the line of a table that `main` may expire too soon."""
    return one_line(
        f"warning {table.key}: main keeps its snapshots for {table.keeps_seconds:.0f} s "
        f"(history.expire.max-snapshot-age-ms), this region is {table.lag_seconds:.0f} s behind: what is expired "
        "before it was copied holds the table"
    )


def uncopied_line(names: Sequence[str]) -> str:
    """Return the line of tables whose verbatim copies aren't all here."""
    return one_line(
        f"verbatim copies are incomplete of {len(names)} tables and views: {list_some(names, _MAX_NAMED_TABLES)} "
        "-> sterna sync --full, once their stores answer"
    )


def slot_line(slot: Slot) -> str:
    """Return the line of a replication slot."""
    used = "" if slot.used is None else f", {100 * slot.used:.0f} % of its limit"
    return (
        f"slot {slot.name}: {'' if slot.active else 'NOT '}active, {slot.behind} bytes behind, {slot.wal_status}{used}"
    )


def storage_line(stored: StorageUsage) -> str:
    """Return the line of a region's storage usage, and how old the count is."""
    verbatim = f"verbatim copies {size_text(stored.verbatim)}; " if stored.verbatim.files else ""
    dropped = f"of dropped tables {size_text(stored.dropped)}; " if stored.dropped.files else ""
    return (
        f"stored at the clean-up of {stored.at}: {size_text(stored.objects)}; {verbatim}{dropped}evidence of runs "
        f"{size_text(stored.evidence)}; metadata.json of older heads {size_text(stored.superseded)}; unreachable "
        f"{size_text(stored.unreachable)}, {size_text(stored.garbage)} of them garbage"
    )


def _summary_line(status: RegionStatus) -> str:
    lag = _format_seconds(status.lag_seconds)
    lags = {"held": status.held_lag_seconds, "in transit": status.transit_lag_seconds}
    if others := [state for state, state_lag in lags.items() if state_lag is None or state_lag > 0]:
        without = "held tables" if others == ["held"] else f"tables {' or '.join(others)}"
        lag += f" (without {without} {_format_seconds(status.watermark_lag_seconds)})"
    if status.watermark_lag_seconds is not None and not status.watermark:
        lag += ", being seeded"
    seen, bound = ("was", "at most ") if status.cut_off else ("is", "")
    return (
        f"{status.branch}: at main@{status.watermark[:12] or 'nothing'}, main {seen} at "
        f"{status.source_hash[:12]}; lag {bound}{lag}"
    )


def _format_seconds(lag: float | None) -> str:
    return "unknown" if lag is None else f"{lag:.1f} s"
