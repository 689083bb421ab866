"""Holding: a commit of the replica branch stays readable for longer than the clean-up keeps heads, by a tag.

A clean-up keeps what any reference shows, tags included. It takes those of ours away when they are over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import Reference
from sterna.errors import Busy, CatalogConflict, ReferenceNotFound, ReplicaBroken, SnapshotGone
from sterna.gc.heads import versions_at
from sterna.replica.head import COLLECTING, REGION, RUN_ID, Head, newest_commit, read_head
from sterna.replica.reach import TableVersion, Walk
from sterna.replica.region import RegionContext
from sterna.replica.tags import held_until, hold_tag
from sterna.replica.writing import writer


@dataclass(frozen=True)
class Hold:
    """A commit of the replica branch that is held.

    Args:
        tag: the tag's name.
        cursor: the commit.
        until: when it is over (ISO 8601, UTC).
        tables: tables and views below the replica root.
        in_place: those of them that come from a location of this region. Files of theirs may lie where writers own
            them, and whoever expires snapshots on `main` may delete those.
    """

    tag: str
    cursor: str
    until: str
    tables: int
    in_place: tuple[str, ...]


def hold(
    context: RegionContext,
    cursor: str,
    length: timedelta,
    progress: Callable[[str], None] = lambda line: None,
    *,
    now: datetime | None = None,
) -> Hold:
    """Keep a commit of the replica branch readable for a while.

    Args:
        context: the region.
        cursor: hash of the commit.
        length: for how long.
        progress: called with lines for people.
        now: the time; default: the clock's.

    Raises:
        SnapshotGone: the commit isn't known, or files of it are gone.
        Busy: a clean-up deleted files meanwhile; try again.
        CatalogError, StoreError: something doesn't answer; the tag may be there, and ends by itself.
    """
    until = (now or datetime.now(UTC)) + length
    before = read_head(context.primary, context.region.replica_branch)
    _refuse_unknown(context, cursor)
    tag = Reference(hold_tag(context.region.name, until, cursor), cursor, "TAG")
    writer(context).create_tag(tag.name, context.region.replica_branch, tag.hash)
    try:
        versions = versions_at(context, cursor)
        prove_reachable(context, versions, progress)
        _refuse_deleting_meanwhile(context, before)
    except (SnapshotGone, Busy):
        writer(context).delete_tag(tag.name, tag.hash)
        raise
    in_place = tuple(sorted(version.key for version in versions if _is_born_here(context, version)))
    return Hold(tag.name, cursor, until.isoformat(timespec="seconds"), len(versions), in_place)


def end_holds(context: RegionContext, now: datetime, progress: Callable[[str], None], seen: Mapping[str, str]) -> None:
    """Take away those of some references that are tags of this region's holds and are over."""
    for name, hash in seen.items():
        until = held_until(context.region.name, name)
        if until is not None and until <= now:
            with suppress(CatalogConflict):  # somebody moved it: it isn't ours any more
                writer(context).delete_tag(name, hash)
                progress(f"{name} is over")


def _refuse_unknown(context: RegionContext, cursor: str) -> None:
    try:
        commit = newest_commit(context.primary, f"{context.region.replica_branch}@{cursor}")
    except ReferenceNotFound:
        commit = None
    said = commit.properties if commit else {}
    if RUN_ID not in said or said.get(REGION) != context.region.name:
        raise SnapshotGone(f"{context.region.replica_branch} has no commit {cursor}", hint="see sterna status")


def prove_reachable(context: RegionContext, versions: Iterable[TableVersion], progress: Callable[[str], None]) -> None:
    """See that every file below the replica root that some versions reach is there."""
    reached: set[str] = set()
    try:
        Walk(context, reached.update, progress).over(versions)
    except ReplicaBroken as error:
        raise SnapshotGone(f"it can't be held any more: {error.message}", table=error.table, file=error.file) from error
    gone = [uri for uri, size in context.objects.sizes(reached).items() if size is None]
    if gone:
        raise SnapshotGone(f"it can't be held any more: {len(gone)} of its files are gone", file=min(gone))


def _refuse_deleting_meanwhile(context: RegionContext, before: Head) -> None:
    """Raise Busy where a clean-up may have looked before the tag was there, and deleted afterwards.

    One that looked before and puts its fence up after this can't be seen. It deletes nothing of a commit that it keeps
    anyway: hold those.
    """
    branch = context.region.replica_branch
    commits = list(context.primary.history(branch, operations=False, until=before.hash or None))
    if before.deleting or any(commit.properties.get(COLLECTING) for commit in commits):
        raise Busy("a clean-up deleted files meanwhile: whether it saw the hold isn't known", hint="try again")


def _is_born_here(context: RegionContext, version: TableVersion) -> bool:
    return context.mapping.is_local(context.mapping.source(version.metadata))
