"""A region that replicates `main` elsewhere, as upkeep sees it: it follows, is silent, is left out, and comes back."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from random import Random

from sterna.catalog.model import Put, namespace_content
from sterna.replication.replica.head import REGION, RUN_ID, SOURCE_HASH
from tests.simulation.main import Main
from tests.support.doubles.catalog import InMemoryCatalog

NAME = "ap"
_BRANCH = f"main_replica_{NAME}"


class Far:
    """The region. Of its replica branch the watermark alone counts here: its files lie in its own stores.

    Args:
        rng: decides everything.
        catalog: the catalog, without faults.
        main: what stood on `main` at each commit.
        tell: called with a line for the trace.

    Attributes:
        watermark: the number of the commit of `main` that it stands for; -1 while it has none.
        left_out: an operator has named it in `gone`.
        patience: for how long upkeep waits for it without an alarm.
    """

    def __init__(self, rng: Random, catalog: InMemoryCatalog, main: Main, tell: Callable[[str], None]) -> None:
        self._rng = rng
        self._catalog = catalog
        self._main = main
        self._tell = tell
        self._silent = False
        self.watermark = -1
        self.left_out = rng.random() < 0.5
        self.patience = rng.choice((timedelta(hours=2), timedelta(days=7)))

    def go_on(self) -> None:
        """Follow, or fall silent; once silent, come back or be left out."""
        if not self._silent:
            if self._rng.random() < 0.3:
                self._tell(f"{NAME} is silent")
                self._silent = True
            else:
                self.sync()
            return
        chance = self._rng.random()
        if chance < 0.2:
            self.sync()
        elif chance < 0.4:
            self.leave_out()

    def leave_out(self) -> None:
        """An operator waits for it no longer."""
        self._tell(f"{NAME} is left out by name")
        self.left_out = True

    def sync(self) -> None:
        """It comes back, or goes on; from then on it is waited for again."""
        position = len(self._main.heads) - 1
        if not position:
            return
        if position != self.watermark:
            names = {reference.name for reference in self._catalog.references()}
            reference = self._catalog.reference(_BRANCH) if _BRANCH in names else self._catalog.create_branch(_BRANCH)
            properties = {RUN_ID: f"{NAME}-{position}", SOURCE_HASH: self._main.heads[position], REGION: NAME}
            marker = (f"at-{position}",)
            put = Put(marker, namespace_content(marker))
            self._catalog.commit(_BRANCH, reference.hash, [put], f"main@{position}", properties)
        self._tell(f"{NAME} stands for main@{position}")
        self.watermark, self.left_out, self._silent = position, False, False
