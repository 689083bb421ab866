"""What a region's own copy of the catalog serves, against the primary: a moment behind, or cut off from it."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import islice

from sterna.catalog.nessie.http import Deadlines
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import Busy, CatalogUnreachable, DatabaseUnreachable, ReferenceNotFound
from sterna.postgres.term import find_term, last_message_time
from sterna.replication.replica.head import newest_commit
from sterna.replication.replica.region import Progress, RegionContext

# A status query should report an unreachable primary soon.
_PROBE_DEADLINES = Deadlines(connect=3.0, read=3.0, total=5.0, attempts=2)
MAX_SERVED_WAIT_SECONDS = 15.0
_POLL_SECONDS = 0.1
_MAX_COMMITS = 100  # commits that others may have put on the branch meanwhile


@dataclass(frozen=True)
class PrimaryOutage:
    """What a region can report while the primary does not answer.

    Args:
        primary: the region whose catalog takes commits.
        reason: what was tried, and what came of it.
        serving: hash of `main` that the replica is at.
        as_of: when that was committed (ISO 8601, UTC), "" when nothing is served yet.
        heard: time of the newest heartbeat of the primary that the copy has: later commits may be missing here; ""
            when there is none.
    """

    primary: str
    reason: str
    serving: str
    as_of: str
    heard: str

    @property
    def seconds_since_contact(self) -> float | None:
        """How long ago the primary was heard of."""
        return (datetime.now(UTC) - datetime.fromisoformat(self.heard)).total_seconds() if self.heard else None

    @property
    def line(self) -> str:
        """A summary in one line, for logs and commands."""
        seconds = self.seconds_since_contact
        last_contact = "never" if seconds is None else f"{self.heard} ({seconds:.0f} s ago)"
        serving = f"main@{self.serving[:12]} as of {self.as_of}" if self.serving else "nothing yet"
        return (
            f"cut off: primary {self.primary} does not answer; serving {serving}; last heard {last_contact}: "
            f"{self.reason}"
        )


def probe_catalog(context: RegionContext) -> None:
    """Contact the region's own catalog with a short time limit, for a command that somebody waits for.

    Raises:
        CatalogError: it does not answer within seconds; the message says why.
    """
    context.ports.probe_own(SOURCE_BRANCH, _PROBE_DEADLINES)


def probe_primary(context: RegionContext) -> str:
    """Return why the primary can't be read, or "" when it answers or is this region's own."""
    if context.ports.reads_primary:
        return ""
    try:
        with context.ports.open_primary(_PROBE_DEADLINES) as primary:
            primary.reference(SOURCE_BRANCH)
    except CatalogUnreachable as error:
        return str(error)
    return ""


def read_primary_outage(context: RegionContext, reason: str, watermark: str) -> PrimaryOutage:
    """Return what a disconnected region serves, and the primary's last heartbeat; reads only the region's own copy.

    Args:
        reason: why the primary can't be read.
        watermark: hash of `main` that the replica is at, or "".
    """
    name = context.ports.primary_region.name if context.registry.has_regional_catalogs else context.region.catalog.write
    last_contact = _last_contact(context)
    return PrimaryOutage(
        name, reason, watermark, _commit_time(context, watermark), last_contact.isoformat() if last_contact else ""
    )


def wait_until_served(context: RegionContext, replica_hash: str, progress: Progress) -> None:
    """Wait a while until the region's own copy of the catalog shows a commit of the replica branch.

    Steps that follow a sync, such as verify and the announcement of fresh tables, then see what it published.
    """
    deadline = time.monotonic() + MAX_SERVED_WAIT_SECONDS
    while not is_served(context, replica_hash):
        if time.monotonic() > deadline:
            progress(
                f"{context.region.name}'s own copy of the catalog does not serve {replica_hash[:12]} yet: see sterna "
                "catalog status"
            )
            return
        time.sleep(_POLL_SECONDS)


def is_served(context: RegionContext, replica_hash: str) -> bool:
    """Return whether the region's own copy of the catalog shows a commit of the replica branch by now.

    Raises:
        CatalogError: that copy can't be read.
    """
    if context.ports.reads_primary:
        return True
    try:
        history = context.catalog.history(context.region.replica_branch, operations=False)
        return any(commit.hash == replica_hash for commit in islice(history, _MAX_COMMITS))
    except ReferenceNotFound:
        return False  # the branch itself is new


def _commit_time(context: RegionContext, watermark: str) -> str:
    if not watermark:
        return ""
    commit = newest_commit(context.catalog, f"{SOURCE_BRANCH}@{watermark}")
    return commit.commit_time.isoformat() if commit else ""


def _last_contact(context: RegionContext) -> datetime | None:
    """Return the time of the newest contact with the primary.

    By a message on the connection while it is open, else by the newest commit that was replicated over it.
    """
    contact_times = []
    if context.registry.has_regional_catalogs:
        with suppress(DatabaseUnreachable):  # the commits show it, too
            contact_times.append(last_message_time(context.region, context.secrets))
    for branch in (SOURCE_BRANCH, *(region.replica_branch for region in context.registry.regions)):
        try:
            commit = newest_commit(context.catalog, branch)
        except ReferenceNotFound:
            continue
        contact_times.append(commit.commit_time if commit else None)
    return max((contact_time for contact_time in contact_times if contact_time), default=None)


def read_primary_term(context: RegionContext) -> str:
    """Return the term that the primary's catalog is read under; "" where the regions share one.

    Raises:
        Busy: another region became the primary since the connection was opened.
        CatalogError: no region's Postgres could be read.
    """
    if not context.registry.has_regional_catalogs:
        return ""
    term = find_term(context.registry.regions, context.secrets)
    if term.region != context.ports.primary_region.name:
        raise Busy(f"{term.region} became the primary meanwhile", hint="a later run compares everything again")
    return str(term)
