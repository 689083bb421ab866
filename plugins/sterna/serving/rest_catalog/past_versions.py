"""The whole lakehouse as of a commit of `main`, or a time: what the region's replica held when it was at that commit.

A prefix names it, `main@<hash>` or `main@<time>`. Tables that stayed behind then are refused by name: what the replica
had of them is another commit's.
"""

from __future__ import annotations

from functools import lru_cache

from sterna.errors import BadUpdate, NoSuchMoment
from sterna.replication.replica.past_replica import PastReplica, PublishedVersion
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.replica_index import BranchContents

_MAX_CACHED_VERSIONS = 8  # of which all contents are in memory


class PastVersions:
    """Earlier versions of a region's replica; may be used by any number of threads.

    Args:
        context: the region; the primary is not used.
    """

    def __init__(self, context: RegionContext) -> None:
        self._context = context
        self._past = PastReplica(context)
        self._contents_at = lru_cache(_MAX_CACHED_VERSIONS)(self._read_contents)

    def read(self, version: str) -> BranchContents:
        """Return what the replica held.

        Args:
            version: as `PastReplica.find` takes it.

        Raises:
            BadUpdate: it is no version's name, or the time is still to come.
            NoSuchVersion: this region hasn't got it, or no longer.
            NotYetHere: `main` has it, and this region not yet.
            CatalogError, StoreError: something doesn't answer.
        """
        return self._contents_at(self._find(version))

    def main_hash(self, version: str) -> str:
        """Return the hash of the commit of `main` that a version is; a time leads to the same one from then on.

        Args:
            version: as in `read`, which raises the same.
        """
        return self._find(version).watermark

    def _find(self, version: str) -> PublishedVersion:
        try:
            return self._past.find(version)
        except NoSuchMoment as error:
            raise BadUpdate(error.message, hint=error.hint) from None

    def _read_contents(self, version: PublishedVersion) -> BranchContents:
        head = self._past.read_head(version)
        entries = self._context.catalog.entries(self._context.region.replica_branch, version.commit)
        return BranchContents(version.commit, dict(entries), head.held_by_key)
