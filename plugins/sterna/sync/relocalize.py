"""Writing tables' localized metadata anew: in a generation of its own, so that what is there is not used, nor changed.

A generation is part of where a localized file stands (`sterna.registry.edition`), and so of each table's entry on the
replica branch: that remembers it, and later syncs keep to it.
"""

from __future__ import annotations

from collections.abc import Sequence

from sterna.catalog.model import NAMESPACE, key_name
from sterna.errors import UsageError
from sterna.registry.policy import Policy
from sterna.replica.head import read_head
from sterna.replica.region import RegionContext
from sterna.sync.options import SyncOptions

_MOST = 999_999  # as many digits as a folder's name may have


def relocalizing(context: RegionContext, tables: Sequence[str], generation: int = 0) -> SyncOptions:
    """Return what to ask of the sync that writes tables' localized metadata anew.

    Args:
        context: the region.
        tables: key names or patterns, as in a policy; none: all.
        generation: the one that they are to have; those that have it already are left as they are. 0: the next one
            after the highest that one of them has.

    Raises:
        UsageError: the generation is none.
        BranchChanged, CatalogError: the branch isn't sterna's, or can't be read.
    """
    if not 0 <= generation <= _MOST:
        raise UsageError(f"a generation is a number from 1 to {_MOST}")
    chosen = tuple(tables)
    return SyncOptions(tables=chosen, generation=generation or _highest(context, chosen) + 1)


def _highest(context: RegionContext, tables: tuple[str, ...]) -> int:
    branch, asked = context.region.replica_branch, Policy(tables=list(tables or ("**",)))
    head = read_head(context.primary, branch)
    entries = context.primary.entries(branch, head.hash) if head.exists else ()
    editions = (
        context.mapping.edition(content.metadata_location or "")
        for key, content in entries
        if content.kind != NAMESPACE and asked.matches(key_name(key))
    )
    return max((edition.generation for edition in editions if edition), default=0)
