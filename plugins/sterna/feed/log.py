"""Reading events from a replica branch's log, in the region's own copy of the catalog.

What is told here can be read here: the primary is never asked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Delete, Key, Put, key_name, parse_key
from sterna.errors import ReferenceNotFound, UsageError
from sterna.feed.cursor import Cursor
from sterna.feed.event import Event, Facts, events_of
from sterna.replica.head import HELD, RUN_ID
from sterna.replica.held_list import parse_list
from sterna.replica.news import News, Stay, has_own, read_news, snapshot_of, tells
from sterna.replica.region import RegionContext


@dataclass(frozen=True)
class Told:
    """One commit and its events."""

    commit: Commit
    events: tuple[Event, ...]


@dataclass(frozen=True)
class Stretch:
    """A part of the log without a gap.

    Args:
        base: the commit before it.
        told: its commits, oldest first.
        whole: whether `base` is the commit that was asked for.
    """

    base: str
    told: tuple[Told, ...]
    whole: bool


@dataclass(frozen=True)
class ShownTable:
    """A table as the replica branch shows it: its key name, and its current snapshot."""

    table: str
    snapshot: int | None


class EventLog:
    """A region's events, read from its branch; asks the catalog each time.

    Args:
        context: the region; its own catalog is asked, never the primary.
        keep: how far back events are told.
        most: commits that are looked through at once.
    """

    def __init__(self, context: RegionContext, keep: timedelta, most: int) -> None:
        self._context = context
        self._keep = keep
        self._most = most
        self.region = context.region.name
        self.branch = context.region.replica_branch

    def head(self) -> str:
        """Return the branch's head; the hash before the first commit where there is no branch yet."""
        try:
            return self._context.catalog.reference(self.branch).hash
        except ReferenceNotFound:
            return self._context.catalog.no_ancestor()

    def since(self, older: str | None, head: str, most: int | None = None, *, itself: bool = False) -> Stretch:
        """Return what was committed after one commit, up to another.

        Args:
            older: the commit after which to begin; None: as far back as is kept.
            head: the commit to end with.
            most: commits; default: as many as are looked through at once.
            itself: begin with `older`, even where it alone is older than what is kept.

        Returns:
            The part of the log. Where `older` is not met within what is kept, or among `most` commits, it begins later.
        """
        first = self._context.catalog.no_ancestor()
        if older == head and not itself:
            return Stretch(head, (), True)
        oldest = datetime.now(UTC) - self._keep
        found: list[Commit] = []
        base = head
        if head != first:
            until = None if itself else older
            for commit in self._context.catalog.history(f"{self.branch}@{head}", operations=True, until=until):
                is_last = itself and commit.hash == older
                if (commit.commit_time < oldest and not is_last) or len(found) >= (most or self._most):
                    break
                found.append(commit)
                base = commit.parent
                if is_last:
                    break
        met = bool(found) and found[-1].hash == older if itself else base == older
        whole = met or (older is None and base == first)
        found.reverse()
        return Stretch(base, tuple(self._told(commit) for commit in found), whole)

    def first_since(self, older: str, head: str, most: int) -> Stretch:
        """Return what was committed right after one commit, whatever lies between that and another.

        Args:
            older: the commit after which to begin.
            head: the commit to look back from.
            most: commits that are returned.

        Returns:
            The part of the log. Where `older` is not met within what is kept it begins later, and isn't whole.
        """
        base, oldest = head, datetime.now(UTC) - self._keep
        found: deque[Commit] = deque(maxlen=most)  # the log is read backwards: what comes last stays
        if head not in (older, self._context.catalog.no_ancestor()):
            for commit in self._context.catalog.history(f"{self.branch}@{head}", operations=True, until=older):
                if commit.commit_time < oldest:
                    break
                found.append(commit)
                base = commit.parent
        return Stretch(base, tuple(self._told(commit) for commit in reversed(found)), base == older)

    def after(self, cursor: Cursor, head: str) -> Iterator[Event]:
        """Yield the events after a place in the log, up to a commit, oldest first.

        Args:
            cursor: the place: a commit, or one of a commit's events.
            head: the commit to end with.

        Raises:
            UsageError: the place isn't in what is kept.
        """
        at, passed = cursor.hash, 0
        if cursor.number is not None:
            found = self._context.catalog.history(f"{self.branch}@{cursor.hash}", operations=False)
            at, passed = next((commit.parent for commit in found), at), cursor.number
        while at != head:
            stretch = self.first_since(at, head, self._most)
            if not stretch.whole:
                raise UsageError(f"the log has no {cursor} any more, or never had", hint="begin at its head")
            for told in stretch.told:
                yield from told.events[passed:] if told.commit.hash == cursor.hash else told.events
                at = told.commit.hash

    def tables(self, head: str) -> tuple[ShownTable, ...]:
        """Return the tables that a commit of the branch shows, by name."""
        if head == self._context.catalog.no_ancestor():
            return ()
        entries = self._context.catalog.entries(self.branch, head)
        shown = [
            ShownTable(key_name(key), snapshot_of(content)) for key, content in entries if content.kind == ICEBERG_TABLE
        ]
        return tuple(sorted(shown, key=lambda each: each.table))

    def _told(self, commit: Commit) -> Told:
        return Told(commit, events_of(commit, self._facts(commit), self.region, self.branch))

    def _facts(self, commit: Commit) -> Facts:
        if RUN_ID not in commit.properties or _is_quiet(commit):
            return Facts()
        news = read_news(self._context, commit)
        before = self._contents(commit.parent, _untold(commit, news))
        if news is not None or tells(commit):
            return Facts(news, before)
        return self._facts_of_old(commit, before)

    def _facts_of_old(self, commit: Commit, before: dict[Key, Content]) -> Facts:
        """Tell what began and ended to be held by comparing a commit of an older version with the one before it."""
        now, then = _held(commit), self._held_at(commit.parent)
        if now is None or then is None:
            return Facts(before=before)
        shown = self._contents(commit.hash, [_key(name) for name in now.keys() ^ then.keys()])
        return Facts(
            before=before,
            held={name: Stay(now[name], snapshot_of(shown.get(_key(name)))) for name in now.keys() - then.keys()},
            released={name: snapshot_of(shown.get(_key(name))) for name in then.keys() - now.keys()},
        )

    def _held_at(self, hash: str) -> dict[str, str] | None:
        if hash == self._context.catalog.no_ancestor():
            return {}
        commits = self._context.catalog.history(f"{self.branch}@{hash}", operations=False)
        commit = next(iter(commits), None)
        return _held(commit) if commit is not None else None

    def _contents(self, hash: str, keys: Collection[Key]) -> dict[Key, Content]:
        if not keys or hash == self._context.catalog.no_ancestor():
            return {}
        return dict(self._context.catalog.contents(self.branch, hash, list(keys)))


def _is_quiet(commit: Commit) -> bool:
    """Tell whether a commit changes nothing and says nothing new: a clean-up's, above all."""
    return not commit.operations and tells(commit) and not has_own(commit)


def _untold(commit: Commit, news: News | None) -> list[Key]:
    """Return the keys of a commit whose way the news don't tell: what the parent holds there has to be looked up."""
    updated, dropped = (news.updated, news.dropped) if news else ({}, {})
    found = []
    for operation in commit.operations or ():
        name = key_name(operation.key)
        is_put = isinstance(operation, Put) and operation.content.kind == ICEBERG_TABLE and name not in updated
        # Of a commit that tells news, what was deleted and isn't among them was no table.
        is_drop = isinstance(operation, Delete) and news is None and name not in dropped
        if is_put or is_drop:
            found.append(operation.key)
    return found


def _key(name: str) -> Key:
    try:
        return parse_key(name)
    except UsageError:
        return (name,)


def _held(commit: Commit) -> dict[str, str] | None:
    """Return the kinds of what a commit holds, by key name; None where its property has no list of them."""
    try:
        entries = parse_list(commit.properties.get(HELD, "[]")).entries
    except ValueError:
        return None
    return None if entries is None else {item.key: item.kind for item in entries}
