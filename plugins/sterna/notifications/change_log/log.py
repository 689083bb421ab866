"""Reading events from a replica branch's log, in the region's own copy of the catalog.

So every announced snapshot can be read in the region; the primary is not involved.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Delete, Key, Put, key_name, parse_key
from sterna.catalog.tables import content_snapshot_id
from sterna.errors import ReferenceNotFound, UsageError
from sterna.notifications.change_log.cursor import Cursor
from sterna.notifications.change_log.event import CommitDetails, Event, build_events
from sterna.replication.replica.change_record import (
    ChangeRecord,
    TableHeld,
    has_change_record,
    has_own_change_record,
    read_change_record,
)
from sterna.replication.replica.head import HELD, RUN_ID
from sterna.replication.replica.held_list import parse_held_list
from sterna.replication.replica.region import RegionContext


@dataclass(frozen=True)
class CommitEvents:
    """One commit and its events.

    Args:
        renumbered: its change record can't be read any more, so its events are fewer, and have other numbers than when
            it was there: a cursor between two of them leads nowhere.
    """

    commit: Commit
    events: tuple[Event, ...]
    renumbered: bool = False


@dataclass(frozen=True)
class LogSegment:
    """A part of the log without a gap.

    Args:
        base: the commit before the first one.
        commits: the commits, oldest first.
        complete: whether `base` is the commit that was requested.
    """

    base: str
    commits: tuple[CommitEvents, ...]
    complete: bool


@dataclass(frozen=True)
class CurrentTable:
    """A table as the replica branch shows it: its key name, and its current snapshot."""

    table: str
    snapshot: int | None


class EventLog:
    """A region's events, read from its branch in the region's own catalog at each call.

    Args:
        keep: how far back events are returned.
        max_commits: how many commits one call reads.
    """

    def __init__(self, context: RegionContext, keep: timedelta, max_commits: int) -> None:
        self._context = context
        self._keep = keep
        self._max_commits = max_commits
        self.region = context.region.name
        self.branch = context.region.replica_branch

    def head(self) -> str:
        """Return the branch's head; the hash before the first commit where there is no branch yet."""
        try:
            return self._context.catalog.reference(self.branch).hash
        except ReferenceNotFound:
            return self._context.catalog.no_ancestor()

    def read_since(
        self, older: str | None, head: str, max_commits: int | None = None, *, inclusive: bool = False
    ) -> LogSegment:
        """Return what was committed after one commit, up to another.

        Args:
            older: the commit after which to begin; None: as far back as `keep` allows.
            head: the commit to end with.
            max_commits: how many commits to read; default: the log's own limit.
            inclusive: begin with `older`, even if it alone is older than `keep`.

        Returns:
            The segment. It begins later, and is incomplete, where `older` is not within `keep` or `max_commits`.
        """
        root = self._context.catalog.no_ancestor()
        if older == head and not inclusive:
            return LogSegment(head, (), True)
        oldest = datetime.now(UTC) - self._keep
        commits: list[Commit] = []
        base = head
        if head != root:
            until = None if inclusive else older
            for commit in self._context.catalog.history(f"{self.branch}@{head}", operations=True, until=until):
                is_last = inclusive and commit.hash == older
                if (commit.commit_time < oldest and not is_last) or len(commits) >= (max_commits or self._max_commits):
                    break
                commits.append(commit)
                base = commit.parent
                if is_last:
                    break
        reached = bool(commits) and commits[-1].hash == older if inclusive else base == older
        complete = reached or (older is None and base == root)
        commits.reverse()
        return LogSegment(base, tuple(self._read_events(commit) for commit in commits), complete)

    def read_first_since(self, older: str, head: str, max_commits: int) -> LogSegment:
        """Return the first commits after one commit, however many there are up to another.

        Args:
            older: the commit after which to begin.
            head: the commit to read back from.
            max_commits: how many commits are returned.

        Returns:
            The segment. It begins later, and is incomplete, where `older` is not within `keep`.
        """
        base, oldest = head, datetime.now(UTC) - self._keep
        commits: deque[Commit] = deque(maxlen=max_commits)  # the log is read backwards: what comes last stays
        if head not in (older, self._context.catalog.no_ancestor()):
            for commit in self._context.catalog.history(f"{self.branch}@{head}", operations=True, until=older):
                if commit.commit_time < oldest:
                    break
                commits.append(commit)
                base = commit.parent
        return LogSegment(base, tuple(self._read_events(commit) for commit in reversed(commits)), base == older)

    def find_fork(self, position: str, head: str) -> str | None:
        """Return the newest commit that a position's history and the branch have in common, within `keep`.

        Args:
            position: a commit that the branch had, before it was rewound.
            head: the branch's head.

        Returns:
            Its hash; None: there is none, or the catalog has forgotten the position.
        """
        oldest, kept = datetime.now(UTC) - self._keep, set[str]()
        for commit in self._context.catalog.history(f"{self.branch}@{head}", operations=False):
            if commit.commit_time < oldest:
                break
            kept |= {commit.hash, commit.parent}
        with suppress(ReferenceNotFound):
            for commit in self._context.catalog.history(f"{self.branch}@{position}", operations=False):
                if commit.hash in kept:
                    return commit.hash
                if commit.commit_time < oldest:
                    break
        return None

    def read_after(self, cursor: Cursor, head: str) -> Iterator[Event]:
        """Yield the events after a cursor, up to a commit, oldest first.

        Args:
            cursor: a commit, or one of a commit's events.
            head: the commit to end with.

        Raises:
            UsageError: the cursor is not within `keep`.
        """
        position, skipped = cursor.hash, 0
        if cursor.number is not None:
            history = self._context.catalog.history(f"{self.branch}@{cursor.hash}", operations=False)
            position, skipped = next((commit.parent for commit in history), position), cursor.number
        while position != head:
            segment = self.read_first_since(position, head, self._max_commits)
            if not segment.complete:
                raise UsageError(f"the log has no {cursor} any more, or never had", hint="begin at its head")
            for commit_events in segment.commits:
                is_cursors = commit_events.commit.hash == cursor.hash
                if is_cursors and skipped and commit_events.renumbered:
                    raise UsageError(f"the events of {cursor.hash} have other numbers by now", hint="begin before it")
                yield from commit_events.events[skipped:] if is_cursors else commit_events.events
                position = commit_events.commit.hash

    def read_tables(self, head: str) -> tuple[CurrentTable, ...]:
        """Return the tables at a commit of the branch, sorted by name."""
        if head == self._context.catalog.no_ancestor():
            return ()
        entries = self._context.catalog.entries(self.branch, head)
        tables = [
            CurrentTable(key_name(key), content_snapshot_id(content))
            for key, content in entries
            if content.kind == ICEBERG_TABLE
        ]
        return tuple(sorted(tables, key=lambda table: table.table))

    def _read_events(self, commit: Commit) -> CommitEvents:
        details = self._read_details(commit)
        renumbered = details.news is None and has_own_change_record(commit)
        return CommitEvents(commit, build_events(commit, details, self.region, self.branch), renumbered)

    def _read_details(self, commit: Commit) -> CommitDetails:
        if RUN_ID not in commit.properties or _has_no_events(commit):
            return CommitDetails()
        news = read_change_record(self._context, commit)
        parent_contents = self._read_contents(commit.parent, _unreported_keys(commit, news))
        if news is not None or has_change_record(commit):
            return CommitDetails(news, parent_contents)
        return self._read_legacy_details(commit, parent_contents)

    def _read_legacy_details(self, commit: Commit, parent_contents: dict[Key, Content]) -> CommitDetails:
        """Derive holds and releases of a commit without a change record, by comparing it with its parent."""
        held, parent_held = _parse_held(commit), self._read_held_at(commit.parent)
        if held is None or parent_held is None:
            return CommitDetails(parent_contents=parent_contents)
        contents = self._read_contents(commit.hash, [_key(name) for name in held.keys() ^ parent_held.keys()])
        return CommitDetails(
            parent_contents=parent_contents,
            held={
                name: TableHeld(held[name], content_snapshot_id(contents.get(_key(name))))
                for name in held.keys() - parent_held.keys()
            },
            released={name: content_snapshot_id(contents.get(_key(name))) for name in parent_held.keys() - held.keys()},
        )

    def _read_held_at(self, hash: str) -> dict[str, str] | None:
        if hash == self._context.catalog.no_ancestor():
            return {}
        commits = self._context.catalog.history(f"{self.branch}@{hash}", operations=False)
        commit = next(iter(commits), None)
        return _parse_held(commit) if commit is not None else None

    def _read_contents(self, hash: str, keys: Collection[Key]) -> dict[Key, Content]:
        if not keys or hash == self._context.catalog.no_ancestor():
            return {}
        return dict(self._context.catalog.contents(self.branch, hash, list(keys)))


def _has_no_events(commit: Commit) -> bool:
    """Return whether a commit neither changes anything nor has a change record of its own: mostly gc's."""
    return not commit.operations and has_change_record(commit) and not has_own_change_record(commit)


def _unreported_keys(commit: Commit, news: ChangeRecord | None) -> list[Key]:
    """Return the keys that a commit's change record doesn't cover: their contents in the parent are needed."""
    updated, dropped = (news.updated, news.dropped) if news else ({}, {})
    keys = []
    for operation in commit.operations or ():
        name = key_name(operation.key)
        is_put = isinstance(operation, Put) and operation.content.kind == ICEBERG_TABLE and name not in updated
        # In a commit with a change record, a deleted key that the record lacks was no table.
        is_drop = isinstance(operation, Delete) and news is None and name not in dropped
        if is_put or is_drop:
            keys.append(operation.key)
    return keys


def _key(name: str) -> Key:
    try:
        return parse_key(name)
    except UsageError:
        return (name,)


def _parse_held(commit: Commit) -> dict[str, str] | None:
    """Return the kinds of the tables that a commit holds, by key name; None where its property has no such list."""
    try:
        entries = parse_held_list(commit.properties.get(HELD, "[]")).entries
    except ValueError:
        return None
    return None if entries is None else {held_table.key: held_table.kind for held_table in entries}
