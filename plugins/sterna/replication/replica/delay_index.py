"""Reads, continues and writes the index of delays (`sterna.replication.replica.delay_hours`).

A reader continues it in memory to the branches' heads, and a sync that has published writes that down. Where its files
are missing, don't join or aren't what sterna writes, it is rebuilt from the last eight days' commits.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import dropwhile, groupby, islice
from typing import TYPE_CHECKING, Final

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Commit, key_name
from sterna.codec import MalformedRecord
from sterna.config.registry.folders import DELAYS, state_folder
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ObjectMissing, ReferenceNotFound, SternaError, TableError, printable
from sterna.replication.replica.delay_hours import (
    HOUR_FILE,
    DelayHour,
    find_gap,
    first_hour,
    hour_name,
    hour_of,
    next_hour,
    parse_hour_name,
)
from sterna.replication.replica.delay_tracker import (
    DelayTracker,
    OpenCommits,
    ReplicaCommit,
    SourceCommit,
    initial_state,
)
from sterna.replication.replica.head import HELD, PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replication.replica.held import held_since
from sterna.replication.replica.held_list import parse_held_list, read_held_list
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.replica.run_folder import compress, decompress

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

HORIZON: Final = timedelta(days=8)
"""How far back an index is rebuilt: a week, and a day beside it."""
MAX_COMMITS: Final = 30_000
"""Commits of a branch that a sync reads for the index at most; of older ones no delays are counted."""
MAX_READER_COMMITS: Final = 5_000
"""The same for readers: beyond that the index counts as unusable."""


log = logging.getLogger(__name__)
_CHANGING_HOURS = 2
_MAX_CLOCK_SKEW = timedelta(hours=1)
_MAX_CACHED_HOURS = 1_000
_MAX_CACHED_BYTES = 100_000  # of one hour's file


@dataclass(frozen=True)
class _ListedHour:
    uri: str
    size: int
    modified: datetime


_over_hours: dict[_ListedHour, DelayHour] = {}


class IndexUnusable(ValueError):
    """The index can't be read, or the commits don't continue it; the message says why."""


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
        return _continue(context, objects, _read_hours(context, objects, since), MAX_READER_COMMITS)
    except IndexUnusable as error:
        return _rebuild_index(context, objects, str(error), MAX_READER_COMMITS, may_begin_late=False)


def update_delay_index(context: RegionContext, progress: Progress) -> None:
    """Write down which delays ended with the last publications; what keeps it from that is only reported.

    Nothing else depends on it: a later sync continues where this one left.
    """
    try:
        index = _index_for_writing(context)
        if index.rebuilt:
            progress(f"the index of delays is rebuilt: {index.rebuilt}")
            context.objects.delete([uri for uri, _, _ in context.objects.list(_folder(context))])
        for hour in index.hours:
            if hour.hour in index.changed:
                data = compress(HOUR_FILE.dumps(hour).decode())
                context.objects.overwrite(f"{_folder(context)}/{hour_name(hour.hour)}", data)
    except (IndexUnusable, SternaError) as error:
        progress(f"the index of delays was not continued: {error}")
    except Exception as error:
        # Unexpected, maybe by a garbled file: what was published stays published.
        log.exception("the index of delays of %s was not continued", context.region.name)
        progress(f"the index of delays was not continued: {type(error).__name__}: {printable(str(error))}")


def _index_for_writing(context: RegionContext) -> DelayIndex:
    objects = context.objects
    try:
        newest = _read_hours(context, objects, datetime.now(UTC))
        return _continue(context, objects, newest, MAX_COMMITS)
    except IndexUnusable as error:
        return _rebuild_index(context, objects, str(error), MAX_COMMITS, may_begin_late=True)


def _read_hours(context: RegionContext, objects: Objects, since: datetime) -> list[DelayHour]:
    """Return the written hours from a time on, and the newest ones in any case.

    Raises:
        IndexUnusable: there is none, one is missing, damaged, or of a time that is to come.
    """
    first, oldest = (hour_of(_milliseconds(time)) for time in (since, since - HORIZON))
    listed = {
        hour: _ListedHour(uri, size, modified)
        for uri, size, modified in objects.list(_folder(context), after=oldest)
        if (hour := parse_hour_name(uri.rpartition("/")[2]))
    }
    if not listed:
        raise IndexUnusable("there is no index of delays")
    if max(listed) > hour_of(_milliseconds(datetime.now(UTC) + _MAX_CLOCK_SKEW)):
        raise IndexUnusable(f"the index of delays has an hour that is to come: {max(listed)}")
    newest = sorted(listed)[-_CHANGING_HOURS:]
    chosen = sorted({*(hour for hour in listed if hour >= first), *newest})
    try:
        hours = _load_hours(objects, {hour: listed[hour] for hour in chosen}, newest)
    except (MalformedRecord, ObjectMissing, TableError) as error:
        raise IndexUnusable(f"the index of delays is damaged: {error}") from error
    if gap := find_gap(hours):
        raise IndexUnusable(f"the index of delays lacks an hour: {gap}")
    if hours[0].previous >= first:
        raise IndexUnusable(f"the index of delays lacks the hour {hours[0].previous}")
    return hours


def _load_hours(objects: Objects, listed: Mapping[str, _ListedHour], changing: Collection[str]) -> list[DelayHour]:
    """Return hours, the oldest first: those that are over as this process read them before, if they didn't change."""
    present = {hour: _over_hours[file] for hour, file in listed.items() if file in _over_hours}
    bodies = dict(objects.read_many([file.uri for hour, file in listed.items() if hour not in present]))
    for hour, file in listed.items():
        if hour in present:
            continue
        present[hour] = _parse_hour(hour, bodies[file.uri])
        if hour not in changing and file.size <= _MAX_CACHED_BYTES:
            if len(_over_hours) >= _MAX_CACHED_HOURS:
                _over_hours.clear()
            _over_hours[file] = present[hour]
    return [present[hour] for hour in listed]


def _parse_hour(hour: str, body: bytes | SternaError) -> DelayHour:
    if isinstance(body, SternaError):
        raise body
    try:
        parsed = HOUR_FILE.loads(decompress(body))
    except MalformedRecord as error:
        raise MalformedRecord(f"the hour {hour}: {error}") from error
    if parsed.hour != hour:
        raise MalformedRecord(f"the hour {hour} has what belongs to {parsed.hour[:20]!r}")
    return parsed


def _continue(context: RegionContext, objects: Objects, hours: Sequence[DelayHour], max_commits: int) -> DelayIndex:
    """Return the index with what the branches got since its newest hour.

    Raises:
        IndexUnusable: its last commits aren't near the branches' heads.
    """
    state = hours[-1].state
    replica = list(_replica_history(context, max_commits, until=state.replica))
    tracker = DelayTracker(state, _source_commits(context, state.source, max_commits))
    continued = _apply(tracker, hours[-1], _parse_replica_commits(objects, reversed(replica)))
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
    for commit in islice(_replica_history(context, max_commits + 1), max_commits + 1):
        history.append(commit)
        if commit.commit_time < begin:
            break
    if len(history) > max_commits and not may_begin_late:
        raise IndexUnusable(f"{reason}; a sync that publishes rebuilds it")
    commits = [commit for commit in _parse_replica_commits(objects, reversed(history)) if commit.watermark]
    commits = list(dropwhile(lambda commit: commit.held is None, commits))
    if not commits:
        raise IndexUnusable(f"{reason}; nothing was published yet")
    if may_begin_late:
        commits, source = _begin_on_source(context, commits, max_commits, reason)
    else:
        source = _source_commits(context, commits[0].watermark, max_commits)
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
        They, and the commits of `main` after the first one's watermark, the oldest first.

    Raises:
        IndexUnusable: no watermark is.
    """
    history, head = _source_history(context, commits[0].watermark)
    newest = list(islice(history, max_commits))[::-1]
    oldest = newest[0].parent if newest else head
    positions = {oldest: 0} | {commit.hash: number for number, commit in enumerate(newest, 1)}
    kept = list(dropwhile(lambda commit: commit.held is None or commit.watermark not in positions, commits))
    if not kept:
        raise IndexUnusable(f"{reason}; none of the newest commits of main was published")
    source = newest[positions[kept[0].watermark] :]
    return kept, [_parse_source_commit(context, commit) for commit in source]


def _apply(tracker: DelayTracker, newest: DelayHour, commits: Iterable[ReplicaCommit]) -> list[DelayHour]:
    """Return the newest hour and those behind it, with the delays that commits of the replica branch end."""
    hours = [newest]
    for hour, group in groupby(commits, key=lambda commit: max(newest.hour, hour_of(commit.at))):
        delays = [delay for commit in group for delay in tracker.apply(commit)]
        if hour <= hours[-1].hour:
            hours[-1] = next_hour(hours[-1], hour, delays, tracker.state)
        else:
            hours.append(next_hour(hours[-1], hour, delays, tracker.state))
    return hours


def _replica_history(context: RegionContext, max_commits: int, until: str | None = None) -> Iterator[Commit]:
    """Yield the newest commits of the replica branch, down to one where it is named.

    Raises:
        IndexUnusable: that one isn't among the newest, or the branch is missing.
    """
    branch = context.region.replica_branch
    try:
        head = context.catalog.reference(branch).hash
        yield from _read_back(
            context.catalog.history(f"{branch}@{head}", operations=True, until=until), head, until, max_commits
        )
    except ReferenceNotFound as error:
        raise IndexUnusable("there is no index of delays: nothing was published yet") from error


def _source_commits(context: RegionContext, since: str, max_commits: int) -> list[SourceCommit]:
    """Return the commits of `main` after one, oldest first.

    Raises:
        IndexUnusable: that one isn't among the newest.
    """
    history, head = _source_history(context, since)
    commits = [_parse_source_commit(context, commit) for commit in _read_back(history, head, since, max_commits)]
    return commits[::-1]


def _source_history(context: RegionContext, since: str) -> tuple[Iterator[Commit], str]:
    """Return the commits of `main` down to one, newest first, and the head."""
    head = context.primary.reference(SOURCE_BRANCH).hash
    return context.primary.history(f"{SOURCE_BRANCH}@{head}", operations=True, until=since), head


def _read_back(history: Iterable[Commit], head: str, until: str | None, max_commits: int) -> Iterator[Commit]:
    last = head
    for number, commit in enumerate(history):
        if number == max_commits:
            break
        yield commit
        last = commit.parent
    if until is not None and last != until:
        raise IndexUnusable("the index of delays doesn't continue: its last commit isn't one of the branch's newest")


def _parse_source_commit(context: RegionContext, commit: Commit) -> SourceCommit:
    region = context.region.name
    tables = [key_name(put.key) for put in commit.puts if put.content.kind in (ICEBERG_TABLE, ICEBERG_VIEW)]
    kept = [table for table in tables if not context.registry.exclusion_reason(table, region)]
    return SourceCommit(commit.hash, _milliseconds(commit.commit_time), tuple(kept))


def _parse_replica_commits(objects: Objects, commits: Iterable[Commit]) -> Iterator[ReplicaCommit]:
    """Yield what counts of commits of the replica branch; one that isn't sterna's is left out.

    None counts as of later than now: an hour that is to come would take up all that follows until then.
    """
    now = _milliseconds(datetime.now(UTC))
    lists: dict[str, Mapping[str, int | None] | None] = {}
    for commit in commits:
        if RUN_ID not in commit.properties:
            continue
        text = commit.properties.get(HELD, "[]")
        if text not in lists:
            lists = {text: _held_since(objects, text)}  # mostly that of the commit before
        watermark = commit.properties.get(SOURCE_HASH, "")
        yield ReplicaCommit(
            commit.hash,
            min(now, _milliseconds(commit.commit_time)),
            watermark,
            commit.properties.get(PLANNED_HASH, watermark),
            frozenset(key_name(put.key) for put in commit.puts),
            lists[text],
        )


def _held_since(objects: Objects, text: str) -> Mapping[str, int | None] | None:
    """Return since when each key of a commit's list is held; None where the list is lost."""
    try:
        held_list = read_held_list(objects, parse_held_list(text))
    except ValueError:
        return None
    if held_list.read_error or held_list.entries is None:
        return None
    times = {entry.key: held_since(entry) for entry in held_list.entries}
    return {key: None if time is None else _milliseconds(time) for key, time in times.items()}


def _milliseconds(time: datetime) -> int:
    return int(time.timestamp() * 1000)


def _folder(context: RegionContext) -> str:
    return state_folder(context.region.replica_root, DELAYS)
