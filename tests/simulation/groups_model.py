"""The state of the model of table groups: `main`, a replica branch, and the catalog that has both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace


@dataclass(frozen=True)
class Version:
    """A table on `main`: its content id, a number that no other version has, and its content files."""

    id: int
    number: int
    files: tuple[str, ...]


@dataclass(frozen=True)
class MainCommit:
    """A commit of `main`, with all tables at it."""

    hash: str
    time: int
    changed: frozenset[str]
    tables: Mapping[str, Version]


@dataclass(frozen=True)
class Registry:
    """A registry: its number stands for its fingerprint and digest; the excluded keys for residency."""

    number: int = 0
    excluded: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Shown:
    """A table on the replica branch, localized by one registry, with the sizes that its metadata names."""

    version: Version
    registry: int
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Entry:
    """A key that does not show what `main` has at W.

    Args:
        since: time of the oldest commit of `main` that the replica does not show for the key.
        good: hash of the commit of `main` that it does show.
        group: a label that all keys of its group have, "" for one that moves alone.
        left: how many files the bulk run has to copy; 0: the next small sync takes it.
    """

    since: int
    good: str
    group: str = ""
    left: int = 0


@dataclass(frozen=True)
class ChangeRecord:
    """What a replica commit announces: its number, the version that each changed key showed before, what is free."""

    number: int = 0
    previous: Mapping[str, int | None] = field(default_factory=dict)
    released: frozenset[str] = frozenset()


@dataclass(frozen=True)
class ReplicaCommit:
    """A commit of the replica branch.

    Args:
        watermark: hash of `main`.
        registry: the number of the registry by which all keys were compared.
        run_id: names the publication, and no other.
        collecting: id of the clean-up that deletes files from here on, or "".
        rewrote: files were overwritten before it.
    """

    hash: str
    parent: str
    time: int
    watermark: str
    registry: int
    run_id: str
    tables: Mapping[str, Shown]
    entries: Mapping[str, Entry]
    record: ChangeRecord = ChangeRecord()
    collecting: str = ""
    rewrote: bool = False


class Catalog:
    """`main` and one replica branch, which a failover takes back together."""

    def __init__(self) -> None:
        self.main = [MainCommit("main-0", 0, frozenset(), {})]
        self.replica = [ReplicaCommit("eu-0", "", 0, "main-0", 0, "seed", {}, {})]
        self.term = 0
        self._journal: list[list[MainCommit] | list[ReplicaCommit]] = []
        self._hashes = 0

    @property
    def head(self) -> ReplicaCommit:
        """The head of the replica branch."""
        return self.replica[-1]

    def new_hash(self, branch: str) -> str:
        self._hashes += 1
        return f"{branch}-{self._hashes}"

    def commit_main(self, time: int, changes: Mapping[str, Version | None]) -> None:
        tables = {**self.main[-1].tables, **changes}
        kept = {key: version for key, version in tables.items() if version is not None}
        self.main.append(MainCommit(self.new_hash("main"), time, frozenset(changes), kept))
        self._journal.append(self.main)

    def commit(self, expected: str, term: int, commit: ReplicaCommit) -> bool:
        """Compare and swap; the primary of another term takes nothing."""
        if (self.head.hash, self.term) != (expected, term):
            return False
        self.replica.append(replace(commit, hash=self.new_hash("eu"), parent=expected))
        self._journal.append(self.replica)
        return True

    def fail_over(self, lost: int) -> None:
        """Let another region become the primary, which has not got the newest commits of all branches."""
        for _ in range(min(lost, len(self._journal))):
            self._journal.pop().pop()
        self.term += 1

    def count_lost(self, most: int, kept: int) -> int:
        """Return how many commits, at most so many, a failover may lose without losing the first replica commits."""
        spare = len(self.replica) - kept
        for lost, branch in enumerate(reversed(self._journal[-most:] if most else [])):
            spare -= branch is self.replica
            if spare < 0:
                return lost
        return most

    def since_deletion(self) -> int:
        """Return how many commits there are of all branches since a clean-up began to delete, that one included."""
        replica = list(reversed(self.replica))
        began = next((index for index, commit in enumerate(replica) if commit.collecting), -1)
        branches = [index for index, branch in enumerate(reversed(self._journal)) if branch is self.replica]
        return branches[began] + 1 if 0 <= began < len(branches) else 0

    def between(self, base: str, head: str) -> tuple[ReplicaCommit, ...] | None:
        """Return the commits after one up to another; None where it is no ancestor."""
        hashes = [commit.hash for commit in self.replica]
        if base not in hashes or head not in hashes or hashes.index(head) < hashes.index(base):
            return None
        return tuple(self.replica[hashes.index(base) + 1 : hashes.index(head) + 1])

    def since(self, base: str) -> tuple[ReplicaCommit, ...] | None:
        """Return the commits after one; None where it is no ancestor of the head."""
        hashes = [commit.hash for commit in self.replica]
        return tuple(self.replica[hashes.index(base) + 1 :]) if base in hashes else None
