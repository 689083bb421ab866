"""The commits of both branches, as the index of delays counts them (`sterna.replication.replica.delay_tracker`)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice
from typing import TYPE_CHECKING

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Commit, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound
from sterna.replication.replica.delay_hours import IndexUnusable, milliseconds
from sterna.replication.replica.delay_tracker import ReplicaCommit, SourceCommit
from sterna.replication.replica.head import HELD, PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replication.replica.held import held_since
from sterna.replication.replica.held_list import parse_held_list, read_held_list
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.storage.objects import Objects


_NOT_NEAR = "the index of delays doesn't continue: its last commit isn't one of the branch's newest"


@dataclass(frozen=True)
class _SourceRun:
    """Commits of `main` that follow one another.

    Args:
        since: hash of the commit before them.
        head: hash of the last one.
        registry: digest of the registry that decided which tables count.
    """

    since: str
    head: str
    commits: tuple[SourceCommit, ...]
    registry: str

    def after(self, since: str) -> tuple[SourceCommit, ...] | None:
        """Return those after one; None where it isn't among them."""
        if since == self.since:
            return self.commits
        numbers = (number for number, commit in enumerate(self.commits, 1) if commit.hash == since)
        number = next(numbers, None)
        return None if number is None else self.commits[number:]


_read_runs: dict[str, _SourceRun] = {}  # by region: those that were read last


def replica_history(context: RegionContext, max_commits: int, until: str | None = None) -> Iterator[Commit]:
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


def parse_replica_commits(objects: Objects, commits: Iterable[Commit]) -> Iterator[ReplicaCommit]:
    """Yield what counts of commits of the replica branch; one that isn't sterna's is left out.

    None counts as of later than now: an hour that is to come would take up all that follows until then.
    """
    now = milliseconds(datetime.now(UTC))
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
            min(now, milliseconds(commit.commit_time)),
            watermark,
            commit.properties.get(PLANNED_HASH, watermark),
            frozenset(key_name(put.key) for put in commit.puts),
            lists[text],
        )


def source_commits(context: RegionContext, since: str, max_commits: int) -> list[SourceCommit]:
    """Return the commits of `main` after one, oldest first.

    Those that this process read before aren't read again: a gateway looks often, and a region may be far behind.

    Raises:
        IndexUnusable: that one isn't among the newest.
    """
    history, head = _source_history(context, since)
    region, digest = context.region.name, context.registry.digest()
    earlier = _read_runs.get(region)
    present = earlier.after(since) if earlier and earlier.registry == digest else None
    joint = since if earlier is None or present is None else earlier.head
    newer: list[SourceCommit] = []
    last = head
    while last not in (since, joint) and len(newer) < max_commits and (commit := next(history, None)):
        newer.append(_parse_source_commit(context, commit))
        last = commit.parent
    commits = [*(present or () if last == joint else ()), *reversed(newer)]
    if last not in (since, joint) or len(commits) > max_commits:
        raise IndexUnusable(_NOT_NEAR)
    _read_runs[region] = _SourceRun(since, head, tuple(commits), digest)
    return commits


def newest_source_commits(context: RegionContext, since: str, max_commits: int) -> tuple[str, list[SourceCommit]]:
    """Return the newest commits of `main`, oldest first, down to one at most.

    Returns:
        The hash of the commit before them, and these.
    """
    history, head = _source_history(context, since)
    newest = list(islice(history, max_commits))
    before = newest[-1].parent if newest else head
    return before, [_parse_source_commit(context, commit) for commit in reversed(newest)]


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
        raise IndexUnusable(_NOT_NEAR)


def _parse_source_commit(context: RegionContext, commit: Commit) -> SourceCommit:
    region = context.region.name
    tables = [key_name(put.key) for put in commit.puts if put.content.kind in (ICEBERG_TABLE, ICEBERG_VIEW)]
    kept = [table for table in tables if not context.registry.exclusion_reason(table, region)]
    return SourceCommit(commit.hash, milliseconds(commit.commit_time), tuple(kept))


def _held_since(objects: Objects, text: str) -> Mapping[str, int | None] | None:
    """Return since when each key of a commit's list is held; None where the list is lost."""
    try:
        held_list = read_held_list(objects, parse_held_list(text))
    except ValueError:
        return None
    if held_list.read_error or held_list.entries is None:
        return None
    times = {entry.key: held_since(entry) for entry in held_list.entries}
    return {key: None if time is None else milliseconds(time) for key, time in times.items()}
