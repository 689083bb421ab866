"""Who delivers events: it reads the replica branch's log from a cursor that it remembers, and may die anywhere.

And the receiver, who knows what has to come: nothing announced is unreadable, nothing is skipped, and each event has
the same bytes whenever it is told.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sterna.catalog.model import ICEBERG_TABLE, Commit, Content, Key, key_name, parse_key
from sterna.notifications.change_log.event import DROPPED, HELD, UPDATED, Event
from sterna.notifications.change_log.log import CommitEvents, EventLog
from sterna.replication.replica.region import RegionContext
from tests.simulation.actor import Actor
from tests.simulation.cleaning import KEEP
from tests.simulation.invariants import Invariants
from tests.simulation.reader import Reached, prove
from tests.simulation.store import Store, Violation
from tests.support.doubles.catalog import InMemoryCatalog

_MAX_COMMITS = 1_000  # commits that a cursor may be behind


@dataclass(frozen=True)
class Announced:
    """A snapshot of a table that was announced.

    Args:
        table: the table's name.
        snapshot: its id, None for a table without any.
        commit: the replica commit.
        at: when that was made.
        metadata: where the table's metadata.json lies then.
    """

    table: str
    snapshot: int | None
    commit: str
    at: datetime
    metadata: str


class Receiver:
    """Takes events, and compares them with the catalog and the stores themselves.

    Args:
        catalog: the catalog, without faults.
        store: the stores, without faults.
        branch: the replica branch.
        invariants: knows which files each version of a table reaches.
        since: what the branch was up to this head is told to nobody; "": everything is told.
    """

    def __init__(self, catalog: InMemoryCatalog, store: Store, branch: str, invariants: Invariants, since: str) -> None:
        self._catalog = catalog
        self._store = store
        self._branch = branch
        self._invariants = invariants
        self._texts: dict[str, bytes] = {}
        self._delivered: dict[str, set[tuple[str, str]]] = {}
        self._complete = since or catalog.no_ancestor()  # what was told is compared up to this commit
        self.repeated = 0
        self.announced: list[Announced] = []

    def take(self, event: Event) -> None:
        """Take one event.

        Raises:
            Violation: it comes too early, or with other bytes than before; or the table can't be read.
        """
        document = json.loads(event.text)
        commit = self._commits().get(document["data"]["replica_hash"])
        if commit is None:
            raise Violation(f"events: announced before its commit: {event.id} of {event.table}")
        self.repeated += event.id in self._texts
        if self._texts.setdefault(event.id, event.text) != event.text:
            raise Violation(f"events: other bytes than before: {event.id}: {event.text!r}, {self._texts[event.id]!r}")
        self._delivered.setdefault(commit.hash, set()).add((event.table, event.type))
        if event.type == UPDATED and commit.commit_time > self._store.now() - KEEP:
            self._see_readable(commit, event.table, document["data"]["new_snapshot_id"])

    def reached(self, uri: str) -> Reached:
        """Return what a table reaches by its metadata.json.

        Raises:
            Violation: no head of the branch ever showed it.
        """
        version = self._invariants.published_version(uri)
        if version is None:
            raise Violation(f"queries: answered from what never was published: {uri}")
        return version

    def _see_readable(self, commit: Commit, table: str, snapshot: int | None) -> None:
        content = self._catalog.contents(self._branch, commit.hash, [parse_key(table)]).get(parse_key(table))
        uri = (content.metadata_location or "") if content else ""
        reached = self._invariants.published_version(uri)
        if reached is None:
            raise Violation(f"events: announced and never published: {table} at {commit.hash}")
        if reached.current != snapshot:
            raise Violation(f"events: {table} is announced at {snapshot}, and is at {reached.current}")
        self.announced.append(Announced(table, snapshot, commit.hash, commit.commit_time, uri))
        # Its writers may remove files of this region that lie in place, once no table needs them.
        prove(self._store, {uri: size for uri, size in reached.files.items() if self._store.is_below_root(uri)})

    def check(self, cursor: str) -> None:
        """See that all up to a remembered cursor was told.

        Raises:
            Violation: something was skipped.
        """
        commits = self._commits()
        following, at = [], cursor
        while at != self._complete:
            if at not in commits:
                raise Violation(f"events: the cursor {cursor} is no commit of the branch")
            following.append(commits[at])
            at = commits[at].parent
        for commit in reversed(following):
            if missing := self._wanted(commit) - self._delivered.get(commit.hash, set()):
                raise Violation(f"events: skipped in {commit.hash}: {sorted(missing)}")
        self._complete = cursor

    def restart(self, cursor: str) -> None:
        """Everything up to a commit is read from the tables, instead of being told.

        Raises:
            Violation: there was no need: all that wasn't told is still kept; or it is no commit of the branch.
        """
        commits, at, older = self._commits(), cursor, False
        while at != self._complete:
            if at not in commits:
                raise Violation(f"events: announced before its commit: {cursor} is no commit of the branch")
            older = older or commits[at].commit_time <= self._store.now() - KEEP
            at = commits[at].parent
        if not older:
            raise Violation(f"events: a cursor is unknown that is kept: {self._complete}")
        self._complete = cursor

    def _wanted(self, commit: Commit) -> set[tuple[str, str]]:
        now, then = self._shown(commit.hash), self._shown(commit.parent)
        changed = {key for key, content in now.items() if key not in then or _differs(content, then[key])}
        expected = {(key_name(key), UPDATED) for key in changed} | {
            (key_name(key), DROPPED) for key in then.keys() - now.keys()
        }
        parent = self._commits().get(commit.parent)
        held, before = _held(commit), _held(parent) if parent else set()
        return expected | {(name, HELD) for name in (held or set()) - before} if before is not None else expected

    def _shown(self, hash: str) -> dict[Key, Content]:
        if hash == self._catalog.no_ancestor():
            return {}
        entries = self._catalog.entries(self._branch, hash)
        return {key: content for key, content in entries if content.kind == ICEBERG_TABLE}

    def _commits(self) -> dict[str, Commit]:
        names = {reference.name for reference in self._catalog.references()}
        commits = self._catalog.history(self._branch, operations=False) if self._branch in names else ()
        return {commit.hash: commit for commit in commits}


class Delivering(Actor):
    """Whoever delivers.

    Args:
        name, context, tell: as in `Actor`.
        receiver: gets the events.
        since: where it begins; "": before the first commit.
    """

    def __init__(
        self, name: str, context: RegionContext, tell: Callable[[str], None], receiver: Receiver, since: str
    ) -> None:
        super().__init__(name, context, tell)
        self.receiver = receiver
        self.cursor = since or context.catalog.no_ancestor()  # what it remembers, whoever dies

    def work(self) -> None:
        """Deliver what was committed after the cursor."""
        log = EventLog(self.context, KEEP, _MAX_COMMITS)
        stretch = log.read_since(self.cursor, log.head())
        if not stretch.complete:
            head = stretch.commits[-1].commit.hash if stretch.commits else stretch.base
            self.tell(f"the cursor is too old: begins anew at {head}")
            self.receiver.restart(head)
            self.cursor = head
            return
        for commit_events in stretch.commits:
            self.deliver(commit_events)

    def deliver(self, commit_events: CommitEvents) -> None:
        """Deliver one commit's events, and remember then that they were."""
        for event in commit_events.events:
            self.turn.call(f"deliver {event.type} {event.table}")  # the receiver may be away
            self.receiver.take(event)
            self.turn.die("after")  # its answer is lost
        self.cursor = commit_events.commit.hash


def _differs(one: Content, other: Content) -> bool:
    return (one.id, one.metadata_location) != (other.id, other.metadata_location)


def _held(commit: Commit) -> set[str] | None:
    """The names of what a commit holds; None where they stand elsewhere."""
    entries: Any = json.loads(commit.properties.get("sterna.held", "[]"))
    return {item["key"] for item in entries} if isinstance(entries, list) else None
