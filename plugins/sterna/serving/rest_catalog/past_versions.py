"""The whole lakehouse as of a commit of `main`, or a time: what the region's replica held when it was at that commit.

A prefix names it, `main@<hash>` or `main@<time>`. Tables that stayed behind then are refused by name: what the replica
had of them is another commit's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from itertools import islice

from sterna.catalog.model import Commit, parse_time
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import BadUpdate, NoSuchVersion, NotYetHere, ReferenceNotFound, printable
from sterna.replication.replica.head import (
    DIGEST,
    RUN_ID,
    SOURCE_HASH,
    load_held_list,
    newest_commit,
    parse_head,
)
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.replica_history import ReplicaHistory
from sterna.serving.rest_catalog.replica_index import BranchContents

PAST_PREFIX = f"{SOURCE_BRANCH}@"
"""How a prefix begins that names a version."""
_HASH = re.compile(r"[0-9a-f]{64}")
_DATE_AND_OFFSET = re.compile(r"[\d-]{8,10}[ +]")
_MAX_COMMITS = 100_000  # commits of a branch that are looked through
_MAX_CLOCK_SKEW = timedelta(hours=6)  # of two catalogs, one of which took over
_MAX_CACHED_VERSIONS = 8  # of which all contents are in memory
_MAX_SHOWN_CHARS = 60


@dataclass(frozen=True)
class _Published:
    """A commit of the replica branch by which it had all of a commit of `main`.

    Args:
        commit: its hash.
        commit_time: its time.
        watermark: the hash on `main`.
    """

    commit: str
    commit_time: datetime
    watermark: str


class PastVersions:
    """Earlier versions of a region's replica; may be used by any number of threads.

    Args:
        context: the region; the primary is not used.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._history = ReplicaHistory(context, _published, operations=False, max_commits=_MAX_COMMITS)
        self._contents_at = lru_cache(_MAX_CACHED_VERSIONS)(self._read_contents)

    def read(self, version: str) -> BranchContents:
        """Return what the replica held.

        Args:
            version: the hash of a commit of `main`, or a time.

        Raises:
            BadUpdate: it is neither, or the time is still to come.
            NoSuchVersion: this region hasn't got it, or no longer.
            NotYetHere: `main` has it, and this region not yet.
            CatalogError, StoreError: something doesn't answer.
        """
        return self._contents_at(self._find(version).commit)

    def main_hash(self, version: str) -> str:
        """Return the hash of the commit of `main` that a version is; a time leads to the same one from then on.

        Args:
            version: as in `read`, which raises the same.
        """
        return self._find(version).watermark

    def _find(self, version: str) -> _Published:
        branch = self._context.region.replica_branch
        try:
            head = self._context.catalog.reference(branch).hash
        except ReferenceNotFound as error:
            raise NoSuchVersion("this region has published nothing yet") from error
        return self._of_hash(head, version) if _HASH.fullmatch(version) else self._of_time(head, _parse_moment(version))

    def _of_hash(self, head: str, main_hash: str) -> _Published:
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

    def _of_time(self, head: str, moment: datetime) -> _Published:
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

    def _read_contents(self, commit_hash: str) -> BranchContents:
        catalog, branch = self._context.catalog, self._context.region.replica_branch
        commit = newest_commit(catalog, f"{branch}@{commit_hash}")
        if commit is None:
            raise NoSuchVersion("this region's replica was empty then")
        head = load_held_list(self._context.objects, parse_head(commit))
        if head.held_list.read_error:
            raise NoSuchVersion(f"which tables were held then can't be read any more: {head.held_list.read_error}")
        return BranchContents(commit_hash, dict(catalog.entries(branch, commit_hash)), head.held_by_key)


def _published(commit: Commit) -> _Published | None:
    """Return what a commit of the replica branch published; None: not all of one commit of `main`.

    A sync of chosen tables, or of a part of a backlog, leaves no digest.
    """
    properties = commit.properties
    if not (properties.get(RUN_ID) and properties.get(DIGEST) and properties.get(SOURCE_HASH)):
        return None
    return _Published(commit.hash, commit.commit_time, properties[SOURCE_HASH])


def _parse_moment(text: str) -> datetime:
    try:
        if _DATE_AND_OFFSET.match(text):  # a date and an offset alone would be read as a time of the day
            raise ValueError
        moment = parse_time(text.replace(" ", "+"))  # a plus that wasn't escaped in a query is a space
    except (ValueError, OverflowError):
        shown = printable(text, _MAX_SHOWN_CHARS)
        raise BadUpdate(
            f"'{shown}' is neither the hash of a commit of {SOURCE_BRANCH} nor a time such as 2026-01-31T12:00:00Z"
        ) from None
    if moment > datetime.now(UTC):
        raise BadUpdate("that time is still to come")
    return moment
