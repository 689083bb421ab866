"""Which versions stay because `main` dropped their tables not long ago: the policy's `keep_dropped`."""

from __future__ import annotations

from datetime import datetime, timedelta

from sterna.catalog.model import NAMESPACE, Commit, Key, key_name
from sterna.config.registry.model import Registry
from sterna.replication.replica.reachability import TableVersion
from sterna.replication.replica.region import RegionContext


def read_dropped_versions(context: RegionContext, head: str, now: datetime) -> set[TableVersion]:
    """Return the versions that tables had when they were dropped, as far as they are to be kept for `sterna restore`.

    Their files may be copies, or lie where the region's writers put them.

    Args:
        context: the region whose replica branch is read.
        head: hash of the replica branch's head.
        now: the time, from which a policy counts back.

    Raises:
        CatalogError: the catalog doesn't answer.
    """
    longest = max((policy.keep_dropped_seconds or 0 for policy in context.registry.policies), default=0)
    versions: set[TableVersion] = set()
    branch = context.region.replica_branch
    for commit in context.primary.history(f"{branch}@{head}", operations=True) if longest else ():
        if commit.commit_time < now - timedelta(seconds=longest):
            break
        if keys := _dropped_keys(context.registry, context.region.name, commit, now):
            versions.update(_versions_before(context, commit, keys))
    return versions


def _dropped_keys(registry: Registry, region: str, commit: Commit, now: datetime) -> list[Key]:
    """Return the keys that a commit dropped, and whose policy keeps their files until now."""
    keys = []
    for key in commit.deleted_keys:
        seconds = registry.policy(key_name(key)).keep_dropped_seconds or 0
        is_kept = commit.commit_time >= now - timedelta(seconds=seconds) if seconds else False
        if is_kept and not registry.exclusion_reason(key_name(key), region):
            keys.append(key)
    return keys


def _versions_before(context: RegionContext, commit: Commit, keys: list[Key]) -> list[TableVersion]:
    """Return what some keys had before a commit; one that it only renamed is no dropped one."""
    renamed = {put.content.id for put in commit.puts}
    contents = context.primary.contents(context.region.replica_branch, commit.parent, keys)
    return [
        TableVersion(key_name(key), content.kind, content.metadata_location or "", content.snapshot_id)
        for key, content in contents.items()
        if content.kind != NAMESPACE and content.id not in renamed
    ]
