"""Pins of a restore: what it found in a replica stays until `main` names it."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import ExitStack, suppress
from datetime import datetime, timedelta

from sterna.catalog.writer import CatalogWriter
from sterna.errors import SternaError
from sterna.maintenance.gc.pin import require_no_gc_since
from sterna.replication.replica.commit_access import writer
from sterna.replication.replica.head import Head, read_head
from sterna.replication.replica.region import RegionContext
from sterna.replication.replica.tags import pin_tag

_PIN_DURATION = timedelta(days=1)  # longer than any restore takes to look for its files


class Pins(ExitStack):
    """Keeps commits of replica branches from clean-ups while their files are looked for; `main` does so afterwards.

    Args:
        now: the time; what a killed restore left is over a day later.
    """

    def __init__(self, now: datetime) -> None:
        super().__init__()
        self._until = now + _PIN_DURATION
        self._heads: list[tuple[RegionContext, Head]] = []

    def hold(self, context: RegionContext, commits: Collection[str]) -> None:
        """Keep commits of a region's replica branch.

        Args:
            context: that region.
            commits: their hashes.
        """
        branch, catalog = context.region.replica_branch, writer(context)
        if commits:
            self._heads.append((context, read_head(context.primary, branch)))
        for commit in sorted(commits):
            name = pin_tag(context.region.name, self._until, commit)
            catalog.create_tag(name, branch, commit)
            self.callback(_delete_tag, catalog, name, commit)

    def require_intact(self) -> None:
        """See that no clean-up deleted files meanwhile that may not have seen a pin.

        Raises:
            Busy: one did.
        """
        for context, previous_head in self._heads:
            require_no_gc_since(context, previous_head)


def _delete_tag(catalog: CatalogWriter, name: str, commit: str) -> None:
    """Delete a pin's tag; where that fails the pin expires, and what was done stays done."""
    with suppress(SternaError):
        catalog.delete_tag(name, commit)
