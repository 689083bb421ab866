"""Reads, continues and writes the index of delays (`sterna.replication.replica.delay_hours`).

A reader continues it in memory to the branches' heads, and a sync that has published writes that down. Where its files
are missing, don't join or aren't what sterna writes, it is rebuilt from the last eight days' commits.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import dropwhile, groupby, islice
from typing import TYPE_CHECKING, Final

from sterna.catalog.model import Commit
from sterna.errors import SternaError, printable
from sterna.replication.replica.delay_commits import (
    newest_source_commits,
    parse_replica_commits,
    replica_history,
    source_commits,
)
from sterna.replication.replica.delay_files import delete_hours, read_hours, write_hours
from sterna.replication.replica.delay_hours import (
    HORIZON,
    DelayHour,
    IndexUnusable,
    first_hour,
    hour_of,
    milliseconds,
    next_hour,
    without_open,
)
from sterna.replication.replica.delay_tracker import (
    DelayTracker,
    OpenCommits,
    ReplicaCommit,
    SourceCommit,
    initial_state,
)
from sterna.replication.replica.region import Progress, RegionContext

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

MAX_COMMITS: Final = 30_000
"""Commits of a branch that are read for the index at most; of older ones no delays are counted."""
MAX_READER_COMMITS: Final = 5_000
"""The same for readers: of the replica branch, and of `main` where they rebuild it. Beyond that it is unusable."""
log = logging.getLogger(__name__)
_rebuilt_hours: dict[str, tuple[DelayHour, ...]] = {}  # by replica root: those that a reader's commits made last


@dataclass(frozen=True)
class DelayIndex:
    """The index of a region's delays at its branches' heads.

    Args:
        hours: the oldest first; those before the read ones are left out.
        open: by table, the commits that the region doesn't show.
        changed: the hours that differ from what is written.
        rebuilt: why it was rebuilt from the commits; "" where its files were continued.
    """

    hours: tuple[DelayHour, ...]
    open: Mapping[str, tuple[OpenCommits, ...]]
    changed: frozenset[str] = frozenset()
    rebuilt: str = ""


def read_delay_index(context: RegionContext, objects: Objects, since: datetime) -> DelayIndex:
    """Return the index with all hours from a time on, continued to the branches' heads; nothing is written.

    Args:
        context: the region.
        objects: the stores.
        since: the time.

    Raises:
        IndexUnusable: its files don't have it, and to rebuild it takes too many commits.
        CatalogError, StoreError, CredentialError: the catalog, or the region's store, does not answer.
    """
    try:
        return _continue(context, objects, read_hours(context, objects, since), MAX_READER_COMMITS)
    except IndexUnusable as error:
        return _rebuild_for_reading(context, objects, str(error))


def update_delay_index(context: RegionContext, progress: Progress) -> None:
    """Write down which delays ended with the last publications; what keeps it from that is only reported.

    Nothing else depends on it: a later sync continues where this one left.
    """
    try:
        index = _index_for_writing(context)
        if index.rebuilt:
            progress(f"the index of delays is rebuilt: {index.rebuilt}")
            delete_hours(context)
        changed = [hour for hour in index.hours if hour.hour in index.changed]
        # The newest hour has what is open: the one before gives it up after that. Of a rebuilt index that is written
        # in part the newest hour names its successor, so that it is rebuilt again.
        write_hours(context, changed if index.rebuilt else reversed(changed))
    except (IndexUnusable, SternaError) as error:
        progress(f"the index of delays was not continued: {error}")
    except Exception as error:
        # Unexpected, maybe by a garbled file: what was published stays published.
        log.exception("the index of delays of %s was not continued", context.region.name)
        progress(f"the index of delays was not continued: {type(error).__name__}: {printable(str(error))}")


def _rebuild_for_reading(context: RegionContext, objects: Objects, reason: str) -> DelayIndex:
    """Return the index that the commits make, beginning with what this process made of them before.

    It is needed at each look until a sync has put the files right, or an operator.

    Args:
        reason: why its files can't be used.

    Raises:
        IndexUnusable: as `_rebuild_index`.
    """
    root = context.region.replica_root
    index = None
    if root in _rebuilt_hours:
        try:
            continued = _continue(context, objects, _rebuilt_hours[root], MAX_READER_COMMITS)
            index = replace(continued, rebuilt=reason)
        except IndexUnusable:
            log.info("the delays of %s are worked out of all commits again", context.region.name)
    if index is None:
        index = _rebuild_index(context, objects, reason, MAX_READER_COMMITS, may_begin_late=False)
    oldest = hour_of(milliseconds(datetime.now(UTC) - HORIZON))
    _rebuilt_hours[root] = (*(hour for hour in index.hours[:-1] if hour.hour >= oldest), index.hours[-1])
    return index


def _index_for_writing(context: RegionContext) -> DelayIndex:
    objects = context.objects
    try:
        newest = read_hours(context, objects, datetime.now(UTC))
        return _continue(context, objects, newest, MAX_COMMITS)
    except IndexUnusable as error:
        return _rebuild_index(context, objects, str(error), MAX_COMMITS, may_begin_late=True)


def _continue(context: RegionContext, objects: Objects, hours: Sequence[DelayHour], max_commits: int) -> DelayIndex:
    """Return the index with what the branches got since its newest hour.

    Args:
        max_commits: of the replica branch.

    Raises:
        IndexUnusable: its last commits aren't near the branches' heads.
    """
    state = hours[-1].state
    replica = list(replica_history(context, max_commits, until=state.replica))
    tracker = DelayTracker(state, source_commits(context, state.source, MAX_COMMITS))
    continued = _apply(tracker, hours[-1], parse_replica_commits(objects, reversed(replica)))
    changed = frozenset(hour.hour for hour in continued) if replica else frozenset[str]()
    return DelayIndex((*hours[:-1], *continued), tracker.open_at_head(), changed)


def _rebuild_index(
    context: RegionContext, objects: Objects, reason: str, max_commits: int, *, may_begin_late: bool
) -> DelayIndex:
    """Return the index that the commits of the last days make.

    Args:
        reason: why its files can't be used.
        may_begin_late: where there are more commits, of either branch, it begins with the oldest of so many.

    Raises:
        IndexUnusable: there are more commits, or none that a sync published.
    """
    begin = datetime.now(UTC) - HORIZON
    history: list[Commit] = []
    for commit in islice(replica_history(context, max_commits + 1), max_commits + 1):
        history.append(commit)
        if commit.commit_time < begin:
            break
    if len(history) > max_commits and not may_begin_late:
        raise IndexUnusable(f"{reason}; a sync that publishes rebuilds it")
    commits = [commit for commit in parse_replica_commits(objects, reversed(history)) if commit.watermark]
    commits = list(dropwhile(lambda commit: commit.held is None, commits))
    if not commits:
        raise IndexUnusable(f"{reason}; nothing was published yet")
    if may_begin_late:
        commits, source = _begin_on_source(context, commits, max_commits, reason)
    else:
        source = source_commits(context, commits[0].watermark, max_commits)
    state = initial_state(commits[0])
    tracker = DelayTracker(state, source)
    hours = _apply(tracker, first_hour(state), commits[1:])
    return DelayIndex(tuple(hours), tracker.open_at_head(), frozenset(hour.hour for hour in hours), reason)


def _begin_on_source(
    context: RegionContext, commits: Sequence[ReplicaCommit], max_commits: int, reason: str
) -> tuple[list[ReplicaCommit], list[SourceCommit]]:
    """Return commits of the replica branch from the first one on whose watermark is near `main`'s head.

    Args:
        commits: the oldest first.
        max_commits: how far a watermark may be from the head.
        reason: why the index is rebuilt.

    Returns:
        These, and the commits of `main` after the first one's watermark, the oldest first.

    Raises:
        IndexUnusable: no watermark is.
    """
    before, newest = newest_source_commits(context, commits[0].watermark, max_commits)
    positions = {before: 0} | {commit.hash: number for number, commit in enumerate(newest, 1)}
    kept = list(dropwhile(lambda commit: commit.held is None or commit.watermark not in positions, commits))
    if not kept:
        raise IndexUnusable(f"{reason}; none of the newest commits of main was published")
    return kept, newest[positions[kept[0].watermark] :]


def _apply(tracker: DelayTracker, newest: DelayHour, commits: Iterable[ReplicaCommit]) -> list[DelayHour]:
    """Return the newest hour and those behind it, with the delays that commits of the replica branch end."""
    hours = [newest]
    for hour, group in groupby(commits, key=lambda commit: max(newest.hour, hour_of(commit.at))):
        delays = [delay for commit in group for delay in tracker.apply(commit)]
        *earlier, last = hours
        over = [without_open(last, hour)] if hour > last.hour else []
        hours = [*earlier, *over, next_hour(last, hour, delays, tracker.state)]
    return hours
