"""What a region still holds of tables that the registry refuses, for `status`.

Looked for only where some are refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from sterna.errors import CredentialError, ReplicaBroken, StoreError
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.gc.retained_heads import refused_versions
from sterna.operations.status.model import ExcludedTable, RegionStatus
from sterna.replication.replica.reachability import ReachabilityWalk, TableVersion
from sterna.replication.replica.region import RegionContext

_MAX_COMMITS = 100_000  # commits


def with_excluded_sizes(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the files that each refused key still has below the replica root.

    Where the store doesn't answer, or what is left can't be read, it stays unknown: a status is asked for when
    something is wrong.
    """
    if not status.refused or not status.replica_hash:
        return status
    history = context.primary.history(f"{context.region.replica_branch}@{status.replica_hash}", operations=True)
    versions: dict[str, set[TableVersion]] = {}
    for version in refused_versions(context, islice(history, _MAX_COMMITS)):
        versions.setdefault(version.key, set()).add(version)
    return replace(
        status, refused=tuple(_with_size(context, table, versions.get(table.key, set())) for table in status.refused)
    )


def _with_size(context: RegionContext, table: ExcludedTable, versions: set[TableVersion]) -> ExcludedTable:
    try:
        amount = _stored_amount(context, versions)
    except (StoreError, ReplicaBroken, CredentialError):
        return table
    return replace(table, files=amount.files, bytes=amount.bytes)


def _stored_amount(context: RegionContext, versions: set[TableVersion]) -> Amount:
    uris: set[str] = set()
    ReachabilityWalk(context, uris.update, ignore_missing=True).visit(versions)
    sizes = [size for size in context.objects.sizes(uris).values() if size is not None] if uris else []
    return Amount(len(sizes), sum(sizes))
