"""The collector: what nothing needs is listed and recorded, and deleted once that has been so for long enough.

A scope says what it lists, what keeps a file, and under which conditions it deletes: a replica root
(`sterna.maintenance.gc.scope`), or a region's own locations of `main` (`sterna.maintenance.tables.orphan_files`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from sterna.codec import Record
from sterna.errors import SternaError
from sterna.maintenance.deletion.delete import DeletionTally, Garbage
from sterna.maintenance.deletion.file_lists import Files, exclude_reached
from sterna.maintenance.deletion.model import Amount, PassReport
from sterna.maintenance.deletion.passes import save_pass, save_report
from sterna.replication.replica.reachability import ReachedFiles
from sterna.replication.replica.region import RegionContext


@dataclass
class Listing:
    """What a scope lists.

    Args:
        objects: everything.
        unknown: what isn't the scope's.
        unreachable: what nothing needs.
    """

    objects: Amount
    unknown: Amount
    unreachable: Files

    def exclude(self, reached: ReachedFiles) -> None:
        """Take out what is reached by now."""
        self.unreachable = Files(exclude_reached(self.unreachable.parts(), reached))


L = TypeVar("L", bound=Listing)
R = TypeVar("R", bound=PassReport)


class Scope(Protocol[L, R]):
    """Where a pass collects.

    Args:
        pass_id: of the pass.
        folder: with the records of its passes.
        record: of its reports.
        reached: what is needed; it only grows.
        are_stores: what is selected as garbage is by store.
    """

    context: RegionContext
    pass_id: str
    folder: str
    record: Record[R]
    reached: ReachedFiles
    are_stores: bool

    def list_files(self) -> L:
        """Reach what is needed, then list everything."""
        ...

    def catch_up(self) -> None:
        """Reach what was committed since."""
        ...

    def select_garbage(self, listing: L) -> Sequence[Files]:
        """Return what has been unreachable for long enough, in the order in which it is deleted."""
        ...

    def build_report(self, listing: L, garbage: Amount) -> R:
        """Return the report of what was found, before anything is deleted."""
        ...

    def prepare(self) -> None:
        """Wait until something may be deleted, or raise why nothing may."""
        ...

    def delete(self, garbage: Garbage, tally: DeletionTally) -> None:
        """Delete some of it, where nothing that is needed can be among it meanwhile."""
        ...

    def complete_report(self, report: R, tally: DeletionTally) -> R:
        """Return the report with what a deletion changed of the scope's own."""
        ...


def collect(scope: Scope[L, R], *, delete: bool, progress: Callable[[str], None]) -> tuple[R, SternaError | None]:
    """Run a pass: list, select, delete, record what is unreachable still, and store the report.

    Args:
        delete: delete; otherwise only report what would be deleted, and record the pass.

    Returns:
        The report, and the error of a store that deletes nothing. What the scope raises ends the pass.
    """
    listing = scope.list_files()
    scope.catch_up()
    listing.exclude(scope.reached)
    selected = scope.select_garbage(listing)
    report = scope.build_report(listing, sum((files.amount for files in selected), Amount()))
    remaining, tally = listing.unreachable, DeletionTally()
    if delete:
        garbage = Garbage([files.parts() for files in selected], scope.reached, are_stores=scope.are_stores)
        _delete(scope, garbage, tally, progress)
        report = replace(report, deleted=tally.done, failed=tally.failed, failures=tally.failures)
        report = scope.complete_report(report, tally)
        remaining = tally.remaining(remaining, scope.reached)
    # At the end, so that a pass that was killed leaves the earlier ones as the next one needs them.
    # Also where a store deleted nothing: else later passes would have only what can't be deleted in common.
    save_pass(scope.context, scope.folder, scope.pass_id, remaining)
    report = replace(report, left=remaining.amount)
    save_report(scope.context.objects, scope.folder, scope.record, report)
    return report, tally.store_error


def _delete(scope: Scope[L, R], garbage: Garbage, tally: DeletionTally, progress: Callable[[str], None]) -> None:
    while garbage.has_more():
        scope.prepare()
        scope.catch_up()
        if not garbage.has_more():
            break
        scope.delete(garbage, tally)
        progress(str(tally))
