"""The delays of commits of `main`, worked out of the commits of both branches: pure.

The delay of a commit and a table that it put is the time at which the region's catalog shows that version, minus the
commit's. What isn't shown yet is *open*: the versions of tables that are held or in transit, and what is younger than
the watermark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from sterna.replication.replica.delays import bucket_of

MAX_OPEN_ENTRIES: Final = 256
"""Of one table: of more, those of almost the same age become one."""


@dataclass(frozen=True)
class SourceCommit:
    """A commit of `main`.

    Args:
        at: when, in milliseconds since 1970.
        tables: names of the tables and views that it put, and that the region may have.
    """

    hash: str
    at: int
    tables: tuple[str, ...]


@dataclass(frozen=True)
class ReplicaCommit:
    """A commit of a replica branch.

    Args:
        at: when, in milliseconds since 1970.
        watermark: the commit of `main` that the branch is at since then.
        planned: the commit of `main` that it was planned for; another one than the watermark where only some tables
            were published.
        put: names of the tables that it put.
        held: the keys that stay behind, with the commit time (milliseconds) of the oldest commit that isn't shown of
            each, None where unknown. None: their list is lost.
    """

    hash: str
    at: int
    watermark: str
    planned: str
    put: frozenset[str]
    held: Mapping[str, int | None] | None


@dataclass(frozen=True)
class OpenCommits:
    """Commits of one table that aren't shown yet.

    Args:
        at: commit time of the oldest, in milliseconds since 1970.
        count: how many there are.
    """

    at: int
    count: int


@dataclass(frozen=True)
class Ahead:
    """A table that was published before the watermark reached its version.

    Args:
        hash: the commit of `main` whose version is shown.
        at: since when, in milliseconds since 1970.
    """

    hash: str
    at: int


@dataclass(frozen=True)
class DelayState:
    """Up to where delays are counted, and what is open there.

    Args:
        begun: since when delays are counted, in milliseconds since 1970.
        replica: hash of the newest commit of the replica branch that is counted.
        source: hash of `main` that the branch was at then.
        open: by table, the commits that aren't shown, the oldest first.
        ahead: by table, what was published before the watermark reached it, the oldest first.
    """

    begun: int
    replica: str
    source: str
    open: Mapping[str, tuple[OpenCommits, ...]] = field(default_factory=dict)
    ahead: Mapping[str, tuple[Ahead, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Delay:
    """Versions of a table that are shown.

    Args:
        shown: since when, in milliseconds since 1970.
        bucket: the bucket of their delay (`sterna.replication.replica.delays`).
        count: how many commits' versions they are.
    """

    table: str
    shown: int
    bucket: int
    count: int


def initial_state(first: ReplicaCommit) -> DelayState:
    """Return the state at the commit with which counting begins: what it holds is open, all before it is left out."""
    held = first.held or {}
    opened = {table: (OpenCommits(since, 1),) for table, since in held.items() if since is not None}
    return DelayState(first.at, first.hash, first.watermark, opened)


class DelayTracker:
    """Follows a replica branch, and yields each delay once its version is shown.

    Args:
        state: where it begins.
        commits: of `main`, those after the state's, oldest first.
    """

    def __init__(self, state: DelayState, commits: Sequence[SourceCommit]) -> None:
        self._begun, self._replica, self._source = state.begun, state.replica, state.source
        self._commits = commits
        self._positions = {state.source: 0} | {commit.hash: number for number, commit in enumerate(commits, 1)}
        self._reached = 0
        self._open = {table: list(entries) for table, entries in state.open.items()}
        self._ahead = dict(state.ahead)

    @property
    def state(self) -> DelayState:
        """The state after all commits that were applied."""
        opened = {table: _merge_similar(entries) for table, entries in self._open.items() if entries}
        return DelayState(self._begun, self._replica, self._source, opened, dict(self._ahead))

    def apply(self, commit: ReplicaCommit) -> Iterator[Delay]:
        """Yield the delays of all versions that a commit of the replica branch shows."""
        self._replica = commit.hash
        if commit.held is None:
            return  # which tables stay behind is unknown: a later commit shows it
        yield from self._reach(commit)
        if commit.planned != commit.watermark:
            for table in commit.put:
                yield from self._close(table, commit.at)
                self._ahead[table] = (*self._ahead.get(table, ()), Ahead(commit.planned, commit.at))
        for table in list(self._open):
            if table not in commit.held:
                yield from self._close(table, commit.at)
            elif (since := commit.held[table]) is not None:
                yield from self._close(table, commit.at, before=since)

    def open_at_head(self) -> dict[str, tuple[OpenCommits, ...]]:
        """Return what is open after all commits of `main`, those after the watermark among it."""
        opened = {table: list(entries) for table, entries in self._open.items()}
        for position, commit in enumerate(self._commits[self._reached :], self._reached + 1):
            for table in commit.tables:
                if self._shown_ahead(table, position) is None:
                    opened.setdefault(table, []).append(OpenCommits(commit.at, 1))
        return {table: tuple(entries) for table, entries in opened.items() if entries}

    def _reach(self, commit: ReplicaCommit) -> Iterator[Delay]:
        """Take the commits of `main` up to a watermark as open, or as shown where a table was ahead of it."""
        target = self._positions.get(commit.watermark, 0)
        for position in range(self._reached + 1, target + 1):
            source = self._commits[position - 1]
            for table in source.tables:
                if (shown := self._shown_ahead(table, position)) is not None:
                    yield Delay(table, shown, bucket_of((shown - source.at) / 1000), 1)
                else:
                    self._open.setdefault(table, []).append(OpenCommits(source.at, 1))
        if target > self._reached:
            self._reached, self._source = target, commit.watermark
            self._prune_ahead(target)

    def _prune_ahead(self, target: int) -> None:
        """Leave out what the watermark has reached."""
        left = {
            table: tuple(entry for entry in entries if self._ahead_position(entry) > target)
            for table, entries in self._ahead.items()
        }
        self._ahead = {table: entries for table, entries in left.items() if entries}

    def _shown_ahead(self, table: str, position: int) -> int | None:
        """Return since when the version of a commit is shown, before the watermark has reached it; None: it isn't."""
        entries = self._ahead.get(table, ())
        return next((entry.at for entry in entries if position <= self._ahead_position(entry)), None)

    def _ahead_position(self, ahead: Ahead) -> int:
        """Return a position on `main`; 0 where a failover took it from `main`: then nothing counts as shown ahead."""
        return self._positions.get(ahead.hash, 0)

    def _close(self, table: str, at: int, before: int | None = None) -> Iterator[Delay]:
        """Yield a table's open versions as shown, all or those of commits before a time."""
        left = []
        for entry in self._open.pop(table, ()):
            if before is not None and entry.at >= before:
                left.append(entry)
            else:
                yield Delay(table, at, bucket_of((at - entry.at) / 1000), entry.count)
        if left:
            self._open[table] = left


def _merge_similar(entries: Sequence[OpenCommits]) -> tuple[OpenCommits, ...]:
    """Return a table's open commits; where they are many, those of almost the same age as one, the oldest's.

    Their ages differ by a 64th of the newest commit's distance at most, and by less the older they get.
    """
    if len(entries) <= MAX_OPEN_ENTRIES:
        return tuple(entries)
    newest, merged = max(entry.at for entry in entries), dict[int, OpenCommits]()
    for entry in entries:
        age = bucket_of((newest - entry.at) / 1000)
        present = merged.get(age)
        merged[age] = entry if present is None else OpenCommits(min(present.at, entry.at), present.count + entry.count)
    return tuple(sorted(merged.values(), key=lambda entry: entry.at))
