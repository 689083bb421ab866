"""What a region's own copy of the catalog serves, against the primary: a moment behind, or cut off from it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from sterna.edges.nessie.http import Deadlines
from sterna.edges.postgres.epoch import find_epoch, last_heard
from sterna.errors import Busy, CatalogUnreachable, DatabaseUnreachable, ReferenceNotFound
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.head import newest_commit
from sterna.replica.region import Progress, RegionContext

# Whoever asks how things stand wants to know soon that the primary is dark.
_PATIENCE = Deadlines(connect=3.0, read=3.0, total=5.0, attempts=2)
SERVED_SECONDS = 15.0
_POLL_SECONDS = 0.1
_LOOKED_AT = 100  # commits that others may have put on the branch meanwhile


@dataclass(frozen=True)
class CutOff:
    """What a region knows while the primary does not answer it.

    Args:
        primary: the region whose catalog takes commits.
        reason: what was tried, and what came of it.
        serving: hash of `main` that the replica stands for.
        as_of: when that was committed (ISO 8601, UTC), "" when nothing is served yet.
        heard: the newest sign of the primary that the copy has: what was committed after that may be missing here; ""
            when there is none.
    """

    primary: str
    reason: str
    serving: str
    as_of: str
    heard: str

    @property
    def silent_seconds(self) -> float | None:
        """How long ago the primary was heard of."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.heard)).total_seconds() if self.heard else None

    @property
    def line(self) -> str:
        """What people are told, in one line."""
        silent = self.silent_seconds
        heard = "never" if silent is None else f"{self.heard} ({silent:.0f} s ago)"
        serving = f"main@{self.serving[:12]} as of {self.as_of}" if self.serving else "nothing yet"
        return f"cut off: primary {self.primary} does not answer; serving {serving}; last heard {heard}: {self.reason}"


def primary_silence(context: RegionContext) -> str:
    """Return why the primary can't be asked, or "" when it answers or is this region's own."""
    if context.ports.reads_primary:
        return ""
    try:
        with context.ports.open_primary(_PATIENCE) as primary:
            primary.reference(SOURCE_BRANCH)
    except CatalogUnreachable as error:
        return str(error)
    return ""


def cut_off(context: RegionContext, reason: str, watermark: str) -> CutOff:
    """Return what a region that is cut off serves, and when it heard of the primary; asks its own copy alone.

    Args:
        context: the region.
        reason: why the primary can't be asked.
        watermark: hash of `main` that the replica stands for, or "".
    """
    name = context.ports.primary_region.name if context.registry.has_copies else context.region.catalog.write
    heard = _heard(context)
    return CutOff(name, reason, watermark, _committed(context, watermark), heard.isoformat() if heard else "")


def wait_until_served(context: RegionContext, replica_hash: str, progress: Progress) -> None:
    """Wait a while until the region's own copy of the catalog shows a commit of the replica branch.

    So that whoever comes after a sync, verify or the announcement of fresh tables, finds what it published.
    """
    deadline = time.monotonic() + SERVED_SECONDS
    while not context.ports.reads_primary and not _serves(context, replica_hash):
        if time.monotonic() > deadline:
            progress(
                f"{context.region.name}'s own copy of the catalog does not serve {replica_hash[:12]} yet: see sterna "
                "catalog status"
            )
            return
        time.sleep(_POLL_SECONDS)


def _serves(context: RegionContext, replica_hash: str) -> bool:
    try:
        history = context.catalog.history(context.region.replica_branch, operations=False)
        return any(commit.hash == replica_hash for commit in islice(history, _LOOKED_AT))
    except ReferenceNotFound:
        return False  # the branch itself is new


def _committed(context: RegionContext, watermark: str) -> str:
    if not watermark:
        return ""
    commit = newest_commit(context.catalog, f"{SOURCE_BRANCH}@{watermark}")
    return commit.commit_time.isoformat() if commit else ""


def _heard(context: RegionContext) -> datetime | None:
    """Return the newest sign of the primary.

    A message on the connection while it stands, else the newest commit that came over it.
    """
    signs = []
    if context.registry.has_copies:
        with suppress(DatabaseUnreachable):  # the commits tell, too
            signs.append(last_heard(context.region, context.secrets))
    for branch in (SOURCE_BRANCH, *(region.replica_branch for region in context.registry.regions)):
        try:
            commit = newest_commit(context.catalog, branch)
        except ReferenceNotFound:
            continue
        signs.append(commit.commit_time if commit else None)
    return max((sign for sign in signs if sign), default=None)


def epoch_of(context: RegionContext) -> str:
    """Return the epoch that the primary's catalog is read under; "" where the regions share one.

    Raises:
        Busy: another region became the primary since the connection was opened.
        CatalogError: no region's Postgres says.
    """
    if not context.registry.has_copies:
        return ""
    epoch = find_epoch(context.registry.regions, context.secrets)
    if epoch.region != context.ports.primary_region.name:
        raise Busy(f"{epoch.region} became the primary meanwhile", hint="a later run looks at everything again")
    return str(epoch)
