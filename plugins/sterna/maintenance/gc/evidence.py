"""The reports of clean-ups, and the syncs that have a plan and are not published yet."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from sterna.codec import FLAG, TEXT, Field, Record, UnknownFields, tuple_of
from sterna.config.registry import run_names
from sterna.config.registry.folders import GC, state_folder
from sterna.errors import UsageError
from sterna.maintenance.deletion.model import AMOUNT, COUNT_FIELDS, DELETED_FIELDS, LEFT_FIELD, ZERO_AMOUNT
from sterna.maintenance.gc.model import GcReport
from sterna.replication.replica.ids import format_timestamp, parse_start_time
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.run_folder import load_plan, runs_folder

# Between a run's start, which is in its name, and its plan. A sync that plans for longer may have to plan again.
_MAX_PLANNING_TIME = timedelta(hours=1)

GC_REPORT: Final = Record(
    GcReport,
    (
        Field("region", TEXT),
        Field("pass_id", TEXT),
        Field("replica_hash", TEXT),
        Field("dry_run", FLAG),
        *COUNT_FIELDS,
        Field("refused", AMOUNT.codec),
        *DELETED_FIELDS,
        Field("in_flight", tuple_of(TEXT), ()),
        Field("still_shown", tuple_of(TEXT), ()),
        Field("at", TEXT, ""),
        Field("evidence", AMOUNT.codec, ZERO_AMOUNT),
        Field("superseded", AMOUNT.codec, ZERO_AMOUNT),
        LEFT_FIELD,
        Field("verbatim", AMOUNT.codec, ZERO_AMOUNT),
        Field("dropped", AMOUNT.codec, ZERO_AMOUNT, omits_default=True),
    ),
    UnknownFields.IGNORE,
)


@dataclass
class PendingRuns:
    """The syncs that are between plan and publication: such a run has a plan and no report.

    One that was planned for another head than the current one can't be published any more, and one older than `grace`
    is dead. The runs' folders are listed once; a later call lists only runs that began since.

    Args:
        grace: no run takes longer.
    """

    context: RegionContext
    now: datetime
    grace: timedelta
    _list_after: str = ""
    _planned_heads: dict[str, str | None] = field(default_factory=dict)  # by run, the head that it is for

    def in_flight(self, replica_hash: str) -> tuple[str, ...]:
        """Return the ids of those that may be published on a head of the replica branch."""
        reported = self._list_new_runs()
        return self.still_in_flight([run for run in self._planned_heads if run not in reported], replica_hash)

    def still_in_flight(self, runs: Iterable[str], replica_hash: str) -> tuple[str, ...]:
        """Return those of some runs that are still in flight, without listing the folders again."""
        waiting = [run for run in runs if self._planned_heads[run] in (None, replica_hash)]
        reports = {f"{runs_folder(self.context)}/{run}/{run_names.REPORT}": run for run in waiting}
        sizes = self.context.objects.sizes(reports) if reports else {}
        return tuple(sorted(run for uri, run in reports.items() if sizes[uri] is None))

    def _list_new_runs(self) -> set[str]:
        """Remember the plans that are new; return the listed runs that have a report."""
        folder = runs_folder(self.context)
        planned: set[str] = set()
        reported: set[str] = set()
        newest_run = ""
        after = self._list_after or format_timestamp(self.now - self.grace - _MAX_PLANNING_TIME)
        for uri, _, modified in self.context.objects.list(folder, after=after):
            run, _, name = uri.removeprefix(f"{folder}/").partition("/")
            newest_run = max(newest_run, run)
            if name == run_names.PLAN and modified > self.now - self.grace:
                planned.add(run)
            elif name == run_names.REPORT:
                reported.add(run)
        self._list_after = _earliest_concurrent_run(newest_run) or after
        for run in planned - reported - self._planned_heads.keys():
            self._planned_heads[run] = _planned_head(self.context, f"{folder}/{run}")
        return reported


def _earliest_concurrent_run(run: str) -> str:
    """Return the earliest name of a run that may be planned after a given one; "" where its name isn't a run's."""
    try:
        return format_timestamp(parse_start_time(run) - _MAX_PLANNING_TIME)
    except ValueError:
        return ""


def _planned_head(context: RegionContext, run: str) -> str | None:
    """Return the head that a run was planned for; None where its plan can't be understood."""
    try:
        plan = load_plan(context, run)
        # A bulk run publishes nothing; the next sync checks what it copied.
        return "" if plan.lane else plan.replica_hash
    except UsageError:
        return ""  # it was deleted meanwhile
    except ValueError:
        return None


def gc_folder(context: RegionContext) -> str:
    """Return the URI of the folder with the records of clean-ups."""
    return state_folder(context.region.replica_root, GC)
