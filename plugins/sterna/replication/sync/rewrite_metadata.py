"""Rewriting tables' localized metadata: in a new metadata version, so that existing files are neither used nor changed.

A metadata version is part of a localized file's path (`sterna.config.registry.fingerprint`), and so of each table's
entry on the replica branch: the entry preserves it, and later syncs keep to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterna.catalog.model import NAMESPACE, key_name
from sterna.config.registry.policy import Policy
from sterna.errors import UsageError
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.head import read_head
from sterna.replication.replica.region import RegionContext

_MAX_GENERATION = 999_999  # as many digits as a folder's name may have


def rewrite_options(context: RegionContext, tables: Sequence[str], generation: int = 0) -> SyncOptions:
    """Return the options of the sync that rewrites tables' localized metadata.

    Args:
        tables: key names or patterns, as in a policy; none: all.
        generation: the count of rewrites that their metadata version is to have; those that have it already are left
            as they are. 0: one more than the highest that one of them has.

    Raises:
        UsageError: there is no such metadata version.
        BranchChanged, CatalogError: the branch isn't sterna's, or can't be read.
    """
    if not 0 <= generation <= _MAX_GENERATION:
        raise UsageError(f"the count of rewrites is a number from 1 to {_MAX_GENERATION}")
    patterns = tuple(tables)
    return SyncOptions(tables=patterns, generation=generation or _highest_generation(context, patterns) + 1)


def _highest_generation(context: RegionContext, tables: tuple[str, ...]) -> int:
    branch, policy = context.region.replica_branch, Policy(tables=list(tables or ("**",)))
    head = read_head(context.primary, branch)
    entries = context.primary.entries(branch, head.hash) if head.exists else ()
    metadata_versions = (
        context.mapping.metadata_version(content.metadata_location or "")
        for key, content in entries
        if content.kind != NAMESPACE and policy.matches(key_name(key))
    )
    return max(
        (metadata_version.rewrite_count for metadata_version in metadata_versions if metadata_version), default=0
    )
