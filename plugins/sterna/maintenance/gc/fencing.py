"""The fence that keeps syncs and deletions apart: the replica branch's head, which every sync is planned for and
compares-and-swaps.

A clean-up commits twice around each of its deletions, and changes nothing but a property. So a sync that was planned
before the first commit can't be published: its head was replaced. One that would be planned between them waits: the
head has a marker. One that is planned after the second checks every file after the last deletion. What was published
before the first commit is part of that commit, and is read before anything is deleted. So in no order of the two does
a sync publish a file that it found and a clean-up then deleted. Files that are written beside the replica, or lost
there, don't change that: a plan trusts a bulk run's record of what it copied only as long as no such commit came since
(`sterna.replication.replica.head.files_replaced_since`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from sterna.catalog.commit_once import NO_CHANGES, commit_once
from sterna.catalog.model import Commit
from sterna.errors import CatalogConflict
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.head import GC_EXPIRY_SECONDS, GC_MARKER, RUN_ID, read_head
from sterna.replication.replica.region import RegionContext

# Well below the time after which syncs take the clean-up for dead: requests may be slow.
_DELETING_SECONDS = GC_EXPIRY_SECONDS / 12
_LAST_REQUEST_SECONDS = GC_EXPIRY_SECONDS / 3


@dataclass
class Fence:
    """A clean-up's right to delete, for half a minute.

    Args:
        hash: the replica branch's head, which is the clean-up's own commit.
        wall_time: when it was set, by the wall clock.
        monotonic_time: when it was set, by the monotonic clock.
    """

    hash: str = ""
    wall_time: float = field(default_factory=time.time)
    monotonic_time: float = field(default_factory=time.monotonic)

    @property
    def has_time(self) -> bool:
        """Whether another part may be begun."""
        return self.age() < _DELETING_SECONDS

    def may_send(self) -> bool:
        """Return whether another request may be sent."""
        return self.age() < _LAST_REQUEST_SECONDS

    def age(self) -> float:
        """Return how many seconds ago the fence was set."""
        # By either clock: the monotonic one may stop while a machine sleeps.
        return max(time.time() - self.wall_time, time.monotonic() - self.monotonic_time)


@contextmanager
def fence(context: RegionContext, parent: Commit, pass_id: str) -> Iterator[Fence]:
    """Keep syncs from being published, and from being planned, for as long as the block runs.

    Args:
        parent: the replica branch's head as the caller read it. Before the caller deletes a file, it makes sure that
            the file isn't reachable from there; best behind the fence, where the branch doesn't move.
        pass_id: names the clean-up.

    Yields:
        The fence; afterwards its hash is the new head of the branch.

    Raises:
        CatalogConflict: the branch has moved.
        CatalogError: the catalog doesn't answer; a fence that can't be removed expires by itself.
    """
    properties = dict(parent.properties)
    new_fence = Fence()
    new_fence.hash = commit_fence(context, parent.hash, pass_id, {**properties, RUN_ID: pass_id, GC_MARKER: pass_id})
    if context.primary.reference(context.region.replica_branch).hash != new_fence.hash:
        raise CatalogConflict(f"{context.region.replica_branch} moved on as the clean-up began to delete")
    try:
        yield new_fence
    finally:
        properties.pop(GC_MARKER, None)
        new_fence.hash = commit_fence(context, new_fence.hash, pass_id, {**properties, RUN_ID: pass_id})


def commit_fence(context: RegionContext, expected_hash: str, pass_id: str, properties: dict[str, str]) -> str:
    """Set or remove a fence by a commit to the replica branch; return the new head.

    Args:
        expected_hash: the head to commit on.
        properties: of the commit; with `GC_MARKER` it sets the fence.
    """
    branch = context.region.replica_branch
    raising = properties.get(GC_MARKER, "")
    message = f"sterna: {pass_id} {'deletes what nothing reaches' if raising else 'is done'}"
    try:
        return commit_once(
            writer(context), branch, expected_hash, NO_CHANGES, message, properties, identified_by=(RUN_ID, GC_MARKER)
        )
    except CatalogConflict:
        if raising:
            raise
        # A sync took this clean-up for dead and committed: the fence is removed already.
        return read_head(context.primary, branch).hash
