"""Pins of a restore: what it found in a replica or at home stays until `main` names it."""

from __future__ import annotations

import random
import time
from collections.abc import Collection
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta

from sterna.catalog.writer import CatalogWriter
from sterna.config.registry.model import SOURCE_BRANCH, is_inside
from sterna.errors import SternaError
from sterna.maintenance.gc.pin import require_no_gc_since
from sterna.maintenance.tables.orphan_files import POLLED_SECONDS
from sterna.maintenance.tables.records import is_swept, unfinished_sweeps
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.replica.tags import pin_tag

_PIN_DURATION = timedelta(days=1)  # longer than any restore takes to look for its files
# A pin's end is part of its name. Two restores of one commit at one time have a pin each: else the first deletes both.
_MAX_PIN_DELAY_SECONDS = 3600


class Pins(ExitStack):
    """Keeps commits from clean-ups and sweeps while their files are looked for; `main` does so afterwards.

    Args:
        now: the time; what a killed restore left is over a day later, or up to an hour after that.
        progress: receives why a restore waits.
    """

    def __init__(self, now: datetime, progress: Progress) -> None:
        super().__init__()
        delay = timedelta(seconds=random.randrange(_MAX_PIN_DELAY_SECONDS))  # noqa: S311 - no secret
        self._until, self._progress = now + _PIN_DURATION + delay, progress
        self._heads: list[tuple[RegionContext, Head]] = []

    def hold_home(self, context: RegionContext, commit: str, uris: Collection[str]) -> None:
        """Keep what a commit of `main` names from the sweeps of all regions that have any, and from clean-ups.

        A tag that is named after a region counts for that region's sweeps, and is deleted by its clean-up once it is
        over. Clean-ups keep what any tag shows. They matter where `main` went on with a region's copies.

        Args:
            context: any region.
            commit: its hash.
            uris: of what comes back, the metadata files.
        """
        catalog, regions = writer(context), [context.of_region(region) for region in context.registry.regions]
        swept = [region for region in regions if _may_be_swept(region)]
        cleaned = [region for region in regions if any(is_inside(uri, region.region.replica_root) for uri in uris)]
        for region in cleaned:
            self._add_head(region)
        for region in (region for region in regions if region in swept or region in cleaned):
            self._add_tag(catalog, region, SOURCE_BRANCH, commit)
        self._wait_for_sweeps(swept)

    def hold(self, context: RegionContext, commits: Collection[str]) -> None:
        """Keep commits of a region's replica branch.

        Args:
            context: that region.
            commits: their hashes.
        """
        if not commits:
            return
        catalog = writer(context)
        self._add_head(context)
        for commit in sorted(commits):
            self._add_tag(catalog, context, context.region.replica_branch, commit)
        self._wait_for_sweeps([context])  # a replica names files in place that are its own region's

    def _add_head(self, context: RegionContext) -> None:
        head = read_head(context.primary, context.region.replica_branch)
        if head.exists:  # else no clean-up has run there
            self._heads.append((context, head))

    def _add_tag(self, catalog: CatalogWriter, region: RegionContext, branch: str, commit: str) -> None:
        """Tag a branch's commit for a region's clean-ups and sweeps, until these pins end."""
        name = pin_tag(region.region.name, self._until, commit)
        catalog.create_tag(name, branch, commit)
        self.callback(_delete_tag, catalog, name, commit)

    def _wait_for_sweeps(self, regions: Collection[RegionContext]) -> None:
        """Wait until each sweep that may be at work goes by a poll of all references that has the tags."""
        if sweeps := [sweep for region in regions for sweep in _sweeps_at_work(region)]:
            self._progress(f"waiting {POLLED_SECONDS:.0f} seconds for {', '.join(sweeps)}: files that come back stay")
            time.sleep(POLLED_SECONDS)

    def require_intact(self) -> None:
        """See that no clean-up deleted files meanwhile that may not have seen a pin.

        Raises:
            Busy: one did.
        """
        for context, previous_head in self._heads:
            require_no_gc_since(context, previous_head)


def _may_be_swept(region: RegionContext) -> bool:
    """Return whether a sweep of a region may delete anything: one whose records can't be read may."""
    try:
        return is_swept(region)
    except SternaError:
        return True


def _sweeps_at_work(region: RegionContext) -> list[str]:
    try:
        return unfinished_sweeps(region)
    except SternaError:
        return [f"a sweep of {region.region.name}, whose records can't be read"]


def _delete_tag(catalog: CatalogWriter, name: str, commit: str) -> None:
    """Delete a pin's tag; where that fails the pin expires, and what was done stays done."""
    with suppress(SternaError):
        catalog.delete_tag(name, commit)
