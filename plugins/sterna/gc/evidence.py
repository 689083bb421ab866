"""What earlier passes and running syncs left beside the replica.

Records of what was unreachable, and plans not yet published.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from sterna.cleaning.codecs import AMOUNT, NOT_DELETED
from sterna.cleaning.model import NOTHING
from sterna.errors import ObjectMissing, UsageError
from sterna.gc.model import Collected
from sterna.json_record import FLAG, INTEGER, TEXT, Field, Record, Unknown, many
from sterna.registry import run_names
from sterna.registry.folders import COLLECT, own_folder
from sterna.replica.ids import began, stamp
from sterna.replica.region import RegionContext
from sterna.replica.run_folder import load_plan, runs_folder

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects

# Between a run's beginning, which its name tells, and its plan. Who plans for longer may be disturbed.
_PLANNING = timedelta(hours=1)

COLLECTED: Final = Record(
    Collected,
    (
        Field("region", TEXT),
        Field("pass_id", TEXT),
        Field("replica_hash", TEXT),
        Field("dry_run", FLAG),
        Field("objects", AMOUNT.kind),
        Field("strange", AMOUNT.kind),
        Field("unreachable", AMOUNT.kind),
        Field("garbage", AMOUNT.kind),
        Field("refused", AMOUNT.kind),
        Field("deleted", AMOUNT.kind, NOTHING),
        Field("failed", INTEGER, 0),
        Field("failures", many(NOT_DELETED.kind), ()),
        Field("in_flight", many(TEXT), ()),
        Field("still_shown", many(TEXT), ()),
        Field("at", TEXT, ""),
        Field("evidence", AMOUNT.kind, NOTHING),
        Field("superseded", AMOUNT.kind, NOTHING),
        Field("left", AMOUNT.kind, NOTHING),
    ),
    Unknown.IGNORE,
)


def save_collected(context: RegionContext, report: Collected) -> None:
    """Write down what a clean-up found and did: `status` shows it."""
    context.objects.write_new(f"{collect_folder(context)}/{report.pass_id}.json", COLLECTED.dumps(report).encode())


def newest_collected(context: RegionContext, objects: Objects) -> Collected | None:
    """Return what the newest clean-up found and did; None where none has come to its end, or nobody can read it.

    Raises:
        StoreUnreachable, StoreDenied, CredentialError: the store can't be used.
    """
    reports = [uri for uri, _, _ in objects.list(collect_folder(context)) if uri.endswith(".json")]
    try:
        # Their names begin with their time.
        return COLLECTED.loads(objects.read(max(reports))) if reports else None
    except (ValueError, ObjectMissing):
        return None


@dataclass
class Runs:
    """The syncs that are between plan and publication: such a run has a plan and no report.

    One that was planned for another head than the branch has now can't be published any more, and one older than
    `grace` is dead. The folders of runs are listed once; a later look lists what began since.

    Args:
        context: the region.
        now: the time.
        grace: longer than any run takes.
    """

    context: RegionContext
    now: datetime
    grace: timedelta
    _after: str = ""
    _planned: dict[str, str | None] = field(default_factory=dict)  # by run, the head that it is for

    def in_flight(self, replica_hash: str) -> tuple[str, ...]:
        """Return the ids of those that may be published on a head of the replica branch."""
        reported = self._list()
        return self.still([run for run in self._planned if run not in reported], replica_hash)

    def still(self, runs: Iterable[str], replica_hash: str) -> tuple[str, ...]:
        """Return those of some runs in flight that still are; nothing is listed."""
        waiting = [run for run in runs if self._planned[run] in (None, replica_hash)]
        reports = {f"{runs_folder(self.context)}/{run}/{run_names.REPORT}": run for run in waiting}
        sizes = self.context.objects.sizes(reports) if reports else {}
        return tuple(sorted(run for uri, run in reports.items() if sizes[uri] is None))

    def _list(self) -> set[str]:
        """Take note of the plans that are new; return the runs of those listed that have a report."""
        folder = runs_folder(self.context)
        planned: set[str] = set()
        reported: set[str] = set()
        newest = ""
        after = self._after or stamp(self.now - self.grace - _PLANNING)
        for uri, _, modified in self.context.objects.list(folder, after=after):
            run, _, name = uri.removeprefix(f"{folder}/").partition("/")
            newest = max(newest, run)
            if name == run_names.PLAN and modified > self.now - self.grace:
                planned.add(run)
            elif name == run_names.REPORT:
                reported.add(run)
        self._after = _an_hour_before(newest) or after
        for run in planned - reported - self._planned.keys():
            self._planned[run] = _planned_for(self.context, f"{folder}/{run}")
        return reported


def _an_hour_before(run: str) -> str:
    """Return where the runs begin that may have been planned after one was; "" where its name isn't a run's."""
    try:
        return stamp(began(run) - _PLANNING)
    except ValueError:
        return ""


def _planned_for(context: RegionContext, run: str) -> str | None:
    """Return the head that a run was planned for; None where its plan can't be understood."""
    try:
        plan = load_plan(context, run)
        return "" if plan.lane else plan.replica_hash  # the large lane publishes nothing: what it brings is looked for
    except UsageError:
        return ""  # it is gone by now
    except ValueError:
        return None


def collect_folder(context: RegionContext) -> str:
    """Return the URI of the folder in which the records of clean-ups lie."""
    return own_folder(context.region.replica_root, COLLECT)
