"""The trigger behind the asset of `main`.

An event for each new commit, and while tables are held by something that passes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from sterna.airflow.core import BaseEventTrigger, TriggerEvent, trigger_event
from sterna.airflow.metrics import count_watch_error
from sterna.errors import BranchChanged, CredentialError, ReferenceNotFound, StoreError
from sterna.replica.backoff import FIRST_PAUSE, Backoff
from sterna.replica.held import Held

if TYPE_CHECKING:
    from sterna.replica.region import RegionContext

log = logging.getLogger(__name__)
_LONGEST_PAUSE = 60.0
# A sync makes a list that is lost anew; the name of an error that is tried again.
_LIST_LOST = Held("", "ObjectMissing", "the list of held tables can't be read")


class NessieCommitTrigger(BaseEventTrigger):
    """Fire when the head of `main` is not the commit that the region's replica stands for, and then at each new commit.

    It fires again, after 30 seconds and then ever more seldom, while the replica's head holds tables for a reason that
    passes: nobody commits to `main` when a store comes back.

    It remembers nothing that matters: where it starts from is the watermark on the replica branch, and what is held
    stands there too. So a triggerer that dies before its event is stored loses none, and the price is at most one run
    with nothing to do.

    Args:
        region: name of the region whose catalog is polled.
        registry: path of the registry. Credentials are found by the ids in it, none is kept here.
        poll_interval: seconds between two looks.
    """

    def __init__(self, *, region: str, registry: str, poll_interval: float = 1.0, **kwargs: Any) -> None:
        super().__init__(**kwargs)  # type: ignore[no-untyped-call]
        self.region = region
        self.registry = registry
        self.poll_interval = poll_interval

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and the arguments that make this trigger again."""
        kwargs = {"region": self.region, "registry": self.registry, "poll_interval": self.poll_interval}
        return (f"{type(self).__module__}.{type(self).__qualname__}", kwargs)

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Yield an event for each new head.

        Never end and never raise: Airflow would start it anew at once, and show nobody.
        """
        seen: str | None = None
        failures = 0
        watch: RegionWatch | None = None
        backoff = Backoff()
        while True:
            try:
                # Blocking calls go to a thread: one loop carries all triggers.
                if watch is None:
                    watch = await asyncio.to_thread(RegionWatch, self.region, self.registry)
                if seen is None:
                    seen = await asyncio.to_thread(watch.watermark)
                head = await asyncio.to_thread(watch.head)
                backoff = backoff.after_look(await asyncio.to_thread(watch.held), time.monotonic())
            except Exception as error:  # noqa: BLE001 - whatever it is, the next look may succeed; it is logged and counted
                if watch is not None:
                    watch.close()
                watch = None  # the registry or a connection may have been corrected meanwhile
                failures += 1
                count_watch_error(self.region)
                self.log.warning(
                    "can't look at the head of main (failure %d in a row): %s: %s",
                    failures,
                    type(error).__name__,
                    error,
                )
                await asyncio.sleep(min(self.poll_interval * 2 ** min(failures, 16), _LONGEST_PAUSE))
                continue
            failures = 0
            now = time.monotonic()
            if head != seen:
                yield trigger_event({"region": self.region, "from": seen, "to": head})
                seen, backoff = head, backoff.after_run(now)
            elif now >= backoff.next:
                held = f"what holds {len(backoff.keys)} of the tables may have passed"
                reason = held if now >= backoff.due else "tables that waited to be shipped go on"
                yield trigger_event({"region": self.region, "from": seen, "to": head, "reason": reason})
                backoff = backoff.after_retry(now)
            await asyncio.sleep(self.poll_interval)


class RegionWatch:
    """A region's catalog, as far as the trigger looks at it; blocking.

    Args:
        region: the region's name.
        registry: the registry's path.
    """

    def __init__(self, region: str, registry: str) -> None:
        from sterna.airflow.secrets import airflow_secrets
        from sterna.replica.region import open_region

        self.context: RegionContext = open_region(registry, region, airflow_secrets)
        self._known: tuple[str, tuple[Held, ...]] = ("", ())
        self._look = 0.0

    def close(self) -> None:
        """Close what the region was opened with."""
        self.context.close()

    def head(self) -> str:
        """Return the head of `main` in the region's own copy."""
        from sterna.registry.model import SOURCE_BRANCH

        return self.context.catalog.reference(SOURCE_BRANCH).hash

    def watermark(self) -> str:
        """Return up to which commit of `main` the replica is."""
        from sterna.replica.head import read_head

        try:
            return read_head(self.context.catalog, self.context.region.replica_branch).watermark
        except BranchChanged:
            return ""  # the run that this starts says so, where somebody sees it

    def held(self) -> tuple[Held, ...]:
        """Return what the replica's head holds.

        Asks now and then, and with one small request as long as the head doesn't move.
        """
        from sterna.replica.head import read_head, with_held

        if time.monotonic() < self._look:
            return self._known[1]
        self._look = time.monotonic() + FIRST_PAUSE
        catalog, branch = self.context.catalog, self.context.region.replica_branch
        try:
            head = catalog.reference(branch).hash
            if head != self._known[0]:
                found = with_held(self.context.objects, read_head(catalog, branch))
                self._known = head, (_LIST_LOST,) if found.listed.lost else found.held
        except (BranchChanged, ReferenceNotFound):
            self._known = "", ()
        except (CredentialError, StoreError) as error:  # looked at again; commits of `main` are seen all the same
            log.warning("can't read what is held in %s: %s", self.context.region.name, error)
        return self._known[1]
