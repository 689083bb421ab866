"""What a region's replica held when it was at a commit of `main`, or at a time: by its own earlier commits.

A table that stayed behind then is none of that version's: its state is another commit's.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import islice

from sterna.catalog.model import Commit
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import NoSuchVersion, NotYetHere, ReferenceNotFound, StaysBehind
from sterna.replication.replica.head import (
    DIGEST,
    RUN_ID,
    SOURCE_HASH,
    Head,
    load_held_list,
    newest_commit,
    parse_head,
)
from sterna.replication.replica.point_in_time import parse_moment
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.replica_history import ReplicaHistory

PAST_PREFIX = f"{SOURCE_BRANCH}@"
"""How a text begins that names a version."""
_MAX_COMMITS = 100_000  # commits of a branch that are looked through
_MAX_CLOCK_SKEW = timedelta(hours=6)  # of two catalogs, one of which took over


@dataclass(frozen=True)
class PublishedVersion:
    """A commit of the replica branch by which it had all of a commit of `main`.

    Args:
        commit: its hash.
        commit_time: its time.
        watermark: the hash on `main`.
    """

    commit: str
    commit_time: datetime
    watermark: str


class PastReplica:
    """Earlier versions of a region's replica; may be used by any number of threads.

    Args:
        context: the region; the primary is not used.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._history = ReplicaHistory(context, _published, operations=False, max_commits=_MAX_COMMITS)

    def find(self, version: str) -> PublishedVersion:
        """Return the commit of the replica branch that is all of a version of `main`.

        Args:
            version: the hash of a commit of `main`, a time with a zone, or how long ago.

        Raises:
            NoSuchMoment: it is none of these, or the time is still to come.
            NoSuchVersion: this region hasn't got it, or no longer.
            NotYetHere: `main` has it, and this region not yet.
            CatalogError: the catalog doesn't answer.
        """
        moment = parse_moment(version, datetime.now(UTC))
        branch = self._context.region.replica_branch
        try:
            head = self._context.catalog.reference(branch).hash
        except ReferenceNotFound as error:
            raise NoSuchVersion("this region has published nothing yet") from error
        return self._of_hash(head, moment) if isinstance(moment, str) else self._of_time(head, moment)

    def _of_hash(self, head: str, main_hash: str) -> PublishedVersion:
        """Return the newest commit that is all of a commit of `main`: what was held at first may be in it."""
        commit_time = self._main_commit_time(main_hash)
        if commit_time is None:
            raise NoSuchVersion(f"{SOURCE_BRANCH} has no commit {main_hash[:12]}, as far as this region can see")
        oldest = commit_time - _MAX_CLOCK_SKEW
        entries = self._history.read(
            head, lambda entry: entry is not None and (entry.watermark == main_hash or entry.commit_time < oldest)
        )
        if entries and (last := entries[-1]) is not None and last.watermark == main_hash:
            return last
        before = self._of_time(head, commit_time)
        raise NoSuchVersion(
            f"this region's replica was never at {main_hash[:12]} of {SOURCE_BRANCH}: it takes several commits at once "
            f"where they come fast; the newest before it is {before.watermark}"
        )

    def _of_time(self, head: str, moment: datetime) -> PublishedVersion:
        """Return the newest commit that is all of a commit of `main` of a time, or before it."""
        entries = self._history.read(head, lambda entry: entry is not None and entry.commit_time <= moment)
        published = [entry for entry in entries if entry is not None]
        index = sum(entry.commit_time > moment for entry in published)
        # What was published after that time may be of a commit before it.
        while index > 0 and self._is_at_or_before(published[index - 1].watermark, moment):
            index -= 1
        if index == len(published):
            raise NoSuchVersion("this region had published nothing of that time, or it is too long ago")
        if index == 0:
            self._require_nothing_newer(published[0].watermark, moment)
        return published[index]

    def _is_at_or_before(self, main_hash: str, moment: datetime) -> bool:
        commit_time = self._main_commit_time(main_hash)
        return commit_time is not None and commit_time <= moment

    def _main_commit_time(self, main_hash: str) -> datetime | None:
        """Return when a commit of `main` was made; None: this region's catalog hasn't got it."""
        try:
            commit = newest_commit(self._context.catalog, f"{SOURCE_BRANCH}@{main_hash}")
        except ReferenceNotFound:
            return None
        return commit.commit_time if commit is not None else None

    def _require_nothing_newer(self, main_hash: str, moment: datetime) -> None:
        """See that `main` has no newer commit of a time than this region's newest version.

        Raises:
            NotYetHere: it has one.
        """
        catalog = self._context.catalog
        head = catalog.reference(SOURCE_BRANCH).hash
        newer = catalog.history(f"{SOURCE_BRANCH}@{head}", operations=False, until=main_hash)
        if any(commit.commit_time <= moment for commit in islice(newer, _MAX_COMMITS)):
            raise NotYetHere(f"{SOURCE_BRANCH} has a commit of that time which this region hasn't got yet")

    def read_head(self, version: PublishedVersion) -> Head:
        """Return the replica's head as it was, with the keys that stayed behind.

        Raises:
            NoSuchVersion: these can't be read any more, or the branch was empty.
            CatalogError, StoreError: something doesn't answer.
        """
        commit = newest_commit(self._context.catalog, f"{self._context.region.replica_branch}@{version.commit}")
        if commit is None:
            raise NoSuchVersion("this region's replica was empty then")
        head = load_held_list(self._context.objects, parse_head(commit))
        if head.held_list.read_error:
            raise NoSuchVersion(f"which tables were held then can't be read any more: {head.held_list.read_error}")
        return head


def require_not_behind(head: Head, names: Iterable[str]) -> None:
    """Refuse tables that were held or in transit: what the replica had of them is another commit's.

    Args:
        head: the replica's head as it was.
        names: key names of the tables.

    Raises:
        StaysBehind: one was.
    """
    for name in names:
        if held := head.held_by_key.get(name):
            raise StaysBehind(
                f"table {name} was {held.state} here at that commit: {held.kind}", table=name, hint="another moment"
            )


def _published(commit: Commit) -> PublishedVersion | None:
    """Return what a commit of the replica branch published; None: not all of one commit of `main`.

    A sync of chosen tables, or of a part of a backlog, leaves no digest.
    """
    properties = commit.properties
    if not (properties.get(RUN_ID) and properties.get(DIGEST) and properties.get(SOURCE_HASH)):
        return None
    return PublishedVersion(commit.hash, commit.commit_time, properties[SOURCE_HASH])
