"""Pins: a tag keeps a commit of the replica branch readable for longer than the clean-up keeps heads.

A clean-up keeps what any reference shows, tags included. It deletes pins that have expired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from sterna.catalog.model import Reference
from sterna.errors import Busy, CatalogConflict, ReferenceNotFound, ReplicaBroken, SnapshotGone
from sterna.maintenance.gc.retained_heads import versions_at
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.head import (
    GC_MARKER,
    REGION,
    RUN_ID,
    Head,
    load_held_list,
    newest_commit,
    parse_head,
    read_head,
)
from sterna.replication.replica.reachability import ReachabilityWalk, TableVersion
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.tags import pin_tag, pinned_until


@dataclass(frozen=True)
class Pin:
    """A commit of the replica branch that is kept readable.

    Args:
        tag: the tag's name.
        cursor: the commit.
        until: when it expires (ISO 8601, UTC).
        tables: tables and views below the replica root.
        in_place: those of them that name files of this region's writers: an expiry of snapshots on `main` may delete
            them.
        main: hash of the commit of `main` that it is of.
        behind: tables that were held or in transit then: what is pinned of them is an older commit's.
    """

    tag: str
    cursor: str
    until: str
    tables: int
    in_place: tuple[str, ...]
    main: str = ""
    behind: tuple[str, ...] = ()


def pin(
    context: RegionContext,
    cursor: str,
    duration: timedelta,
    progress: Callable[[str], None] = lambda line: None,
    *,
    now: datetime | None = None,
) -> Pin:
    """Keep a commit of the replica branch readable for a while.

    Args:
        cursor: hash of the commit.
        now: the time; default: the clock's.

    Raises:
        SnapshotGone: there is no such commit, or files of it are missing.
        Busy: a clean-up deleted files meanwhile; try again.
        CatalogError, StoreError: something doesn't answer; the tag may exist, and expires by itself.
    """
    until = (now or datetime.now(UTC)) + duration
    previous_head = read_head(context.primary, context.region.replica_branch)
    pinned_head = _require_replica_commit(context, cursor)
    tag = Reference(pin_tag(context.region.name, until, cursor), cursor, "TAG")
    writer(context).create_tag(tag.name, context.region.replica_branch, tag.hash)
    try:
        versions = versions_at(context, cursor)
        in_place = require_reachable(context, versions, progress)
        require_no_gc_since(context, previous_head)
    except (SnapshotGone, Busy):
        writer(context).delete_tag(tag.name, tag.hash)
        raise
    behind = tuple(sorted(load_held_list(context.objects, pinned_head).held_by_key))
    return Pin(
        tag.name,
        cursor,
        until.isoformat(timespec="seconds"),
        len(versions),
        tuple(sorted(in_place)),
        pinned_head.watermark,
        behind,
    )


def delete_expired_pins(
    context: RegionContext, now: datetime, progress: Callable[[str], None], references: Mapping[str, str]
) -> None:
    """Delete those of some references that are expired pins of this region."""
    for name, hash in references.items():
        until = pinned_until(context.region.name, name)
        if until is not None and until <= now:
            with suppress(CatalogConflict):  # another client moved it: it isn't a pin any more
                writer(context).delete_tag(name, hash)
                progress(f"{name} is over")


def _require_replica_commit(context: RegionContext, cursor: str) -> Head:
    try:
        commit = newest_commit(context.primary, f"{context.region.replica_branch}@{cursor}")
    except ReferenceNotFound:
        commit = None
    properties = commit.properties if commit else {}
    if commit is None or RUN_ID not in properties or properties.get(REGION) != context.region.name:
        raise SnapshotGone(f"{context.region.replica_branch} has no commit {cursor}", hint="see sterna status")
    return parse_head(commit)


def require_reachable(
    context: RegionContext, versions: Iterable[TableVersion], progress: Callable[[str], None]
) -> set[str]:
    """Require every file below the replica root that some versions reach.

    Returns:
        The key names of tables that name files elsewhere in this region: those of its writers.

    Raises:
        SnapshotGone: a file is missing, or metadata can't be read.
    """
    reached: set[str] = set()
    walk = ReachabilityWalk(context, reached.update, progress)
    try:
        walk.visit(versions)
    except ReplicaBroken as error:
        raise SnapshotGone(
            f"it can't be pinned any more: {error.message}", table=error.table, file=error.file
        ) from error
    missing = [uri for uri, size in context.objects.sizes(reached).items() if size is None]
    if missing:
        raise SnapshotGone(f"it can't be pinned any more: {len(missing)} of its files are gone", file=min(missing))
    return walk.outside


def require_no_gc_since(context: RegionContext, previous_head: Head) -> None:
    """Require that no clean-up may have read the references before a tag existed, and deleted files afterwards.

    One that sets its fence after this check reads the references behind it, before it deletes.

    Args:
        previous_head: the replica branch's head before the tag was made.

    Raises:
        Busy: one may have.
    """
    branch = context.region.replica_branch
    commits = list(context.primary.history(branch, operations=False, until=previous_head.hash or None))
    if previous_head.is_gc_running or any(commit.properties.get(GC_MARKER) for commit in commits):
        raise Busy("a clean-up deleted files meanwhile: whether it saw the pin isn't known", hint="try again")
