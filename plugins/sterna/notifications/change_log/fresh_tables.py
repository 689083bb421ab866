"""Tables that changed in a region, read from the replica branch's log: a killed task loses none."""

from __future__ import annotations

from dataclasses import dataclass

from sterna.catalog.model import ICEBERG_TABLE, Content, Key, key_name
from sterna.replication.replica.head import PLANNED_HASH, read_head
from sterna.replication.replica.region import RegionContext

_MAX_COMMITS = 10_000  # beyond that all tables are announced


@dataclass(frozen=True)
class FreshTable:
    """A table with new content on a replica branch.

    Args:
        key: key name.
        replica_hash: the commit of the replica branch.
        source_hash: the replicated commit of `main`.
        snapshot_id: the current snapshot, None if there is none.
        metadata_location: the URI of the metadata.json in this region.
    """

    key: str
    replica_hash: str
    source_hash: str
    snapshot_id: int | None
    metadata_location: str


@dataclass(frozen=True)
class Announcement:
    """The tables to announce, and the head up to which they are complete: the next call's `last_hash`."""

    head: str
    tables: tuple[FreshTable, ...]


def read_fresh_tables(context: RegionContext, last_hash: str | None) -> Announcement:
    """Return the tables that changed on the replica branch since a head, each once, as it stands now.

    Args:
        last_hash: the head that was announced last; None, or one that the branch no longer has: all its tables are
            fresh.
    """
    catalog, branch = context.catalog, context.region.replica_branch
    head = read_head(catalog, branch)
    if head.commit_time is None or head.hash == last_hash:
        return Announcement(head.hash, ())
    fresh: dict[Key, FreshTable] = {}
    reached = False
    for count, commit in enumerate(catalog.history(f"{branch}@{head.hash}", operations=True, until=last_hash)):
        source_hash = commit.properties.get(PLANNED_HASH, "")
        for put in commit.puts:
            if put.key not in fresh:
                fresh[put.key] = _fresh_table(put.key, put.content, commit.hash, source_hash)
        reached = commit.parent == last_hash
        if count >= _MAX_COMMITS:
            break
    current = (
        dict(catalog.entries(branch, head.hash)) if not reached else catalog.contents(branch, head.hash, list(fresh))
    )
    source = head.watermark
    tables = [
        fresh[key] if key in fresh else _fresh_table(key, content, head.hash, source)
        for key, content in current.items()
        if content.kind == ICEBERG_TABLE
    ]
    return Announcement(head.hash, tuple(sorted(tables, key=lambda table: table.key)))


def _fresh_table(key: Key, content: Content, replica_hash: str, source_hash: str) -> FreshTable:
    return FreshTable(key_name(key), replica_hash, source_hash, content.snapshot_id, content.metadata_location or "")
