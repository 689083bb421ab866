"""What a region still holds of tables that the registry refuses, for `status`.

Looked for only where some are refused.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

from sterna.cleaning.model import Amount
from sterna.errors import CredentialError, ReplicaBroken, StoreError
from sterna.gc.heads import refused_versions
from sterna.replica.reach import TableVersion, Walk
from sterna.replica.region import RegionContext
from sterna.status.model import Refused, RegionStatus

_LOOKED_AT = 100_000  # commits


def with_sizes(context: RegionContext, status: RegionStatus) -> RegionStatus:
    """Return a region's status with the files that each refused key still has below the replica root.

    Where the store doesn't answer, or what is left can't be read, it stays unknown: a status is asked for when
    something is wrong.
    """
    if not status.refused or not status.replica_hash:
        return status
    history = context.primary.history(f"{context.region.replica_branch}@{status.replica_hash}", operations=True)
    versions: dict[str, set[TableVersion]] = {}
    for version in refused_versions(context, islice(history, _LOOKED_AT)):
        versions.setdefault(version.key, set()).add(version)
    return replace(
        status, refused=tuple(_with_size(context, item, versions.get(item.key, set())) for item in status.refused)
    )


def _with_size(context: RegionContext, item: Refused, versions: set[TableVersion]) -> Refused:
    try:
        found = _amount(context, versions)
    except (StoreError, ReplicaBroken, CredentialError):
        return item
    return replace(item, files=found.files, bytes=found.bytes)


def _amount(context: RegionContext, versions: set[TableVersion]) -> Amount:
    uris: set[str] = set()
    Walk(context, uris.update, gone_is_fine=True).over(versions)
    sizes = [size for size in context.objects.sizes(uris).values() if size is not None] if uris else []
    return Amount(len(sizes), sum(sizes))
