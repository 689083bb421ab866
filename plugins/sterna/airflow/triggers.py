"""The trigger behind the asset of `main`.

An event for each new commit, and while tables are held by something that passes.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from sterna.airflow.internals import BaseEventTrigger, TriggerEvent, trigger_event
from sterna.airflow.metrics import count_watch_error
from sterna.errors import BranchChanged, CredentialError, ReferenceNotFound, StoreError
from sterna.replication.replica.held import Held
from sterna.replication.replica.retry import INITIAL_DELAY_SECONDS, Backoff
from sterna.runtime.retry_delay import RetryDelay

if TYPE_CHECKING:
    from sterna.replication.replica.region import RegionContext

log = logging.getLogger(__name__)
_MAX_BACKOFF_SECONDS = 60.0
# A sync rewrites a list that is lost; the name of an error that is tried again.
_HELD_LIST_MISSING = Held("", "ObjectMissing", "the list of held tables can't be read")


class NessieCommitTrigger(BaseEventTrigger):
    """Fire when the head of `main` is not the commit that the region's replica is at, and then at each new commit.

    It fires again, after 30 seconds and then at growing intervals, while the replica's head has tables held for a
    transient reason: there is no commit to `main` when a store is available again.

    It keeps no state: it starts from the watermark on the replica branch, which also has the held tables. So a
    triggerer that dies before its event is stored loses none, and the price is at most one run with nothing to do.

    Args:
        region: name of the region whose catalog is polled.
        registry: path of the registry. Credentials are found by the ids in it, none is kept here.
        poll_interval: seconds between two polls.
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

        Never end and never raise: Airflow would restart it at once, without a trace.
        """
        last_head: str | None = None
        failures = 0
        poller: RegionPoller | None = None
        backoff = Backoff()
        while True:
            try:
                # Blocking calls run in a thread: all triggers share one loop.
                if poller is None:
                    poller = await asyncio.to_thread(RegionPoller, self.region, self.registry)
                if last_head is None:
                    last_head = await asyncio.to_thread(poller.watermark)
                head = await asyncio.to_thread(poller.head)
                backoff = backoff.after_poll(await asyncio.to_thread(poller.held), time.monotonic())
            except Exception as error:  # noqa: BLE001 - logged and counted; the next poll may succeed
                if poller is not None:
                    poller.close()
                poller = None  # the registry or a connection may have been corrected meanwhile
                failures += 1
                count_watch_error(self.region)
                self.log.warning(
                    "can't read the head of main (failure %d in a row): %s: %s",
                    failures,
                    type(error).__name__,
                    error,
                )
                await asyncio.sleep(RetryDelay(2 * self.poll_interval, _MAX_BACKOFF_SECONDS).longest(failures))
                continue
            failures = 0
            now = time.monotonic()
            if head != last_head:
                yield trigger_event({"region": self.region, "from": last_head, "to": head})
                last_head, backoff = head, backoff.after_run(now)
            elif now >= backoff.next_attempt_at:
                held_reason = f"what holds {len(backoff.keys)} of the tables may have passed"
                reason = held_reason if now >= backoff.retry_at else "tables that waited for compaction are due"
                yield trigger_event({"region": self.region, "from": last_head, "to": head, "reason": reason})
                backoff = backoff.after_retry(now)
            await asyncio.sleep(self.poll_interval)


class RegionPoller:
    """A region's catalog, as far as the trigger reads it; blocking.

    Args:
        region: the region's name.
        registry: the registry's path.
    """

    def __init__(self, region: str, registry: str) -> None:
        from sterna.airflow.secrets import airflow_secrets
        from sterna.replication.replica.region import open_region

        self.context: RegionContext = open_region(registry, region, airflow_secrets)
        self._cached_held: tuple[str, tuple[Held, ...]] = ("", ())
        self._next_held_poll = 0.0

    def close(self) -> None:
        """Close what the region was opened with."""
        self.context.close()

    def head(self) -> str:
        """Return the head of `main` in the region's own copy."""
        from sterna.config.registry.model import SOURCE_BRANCH

        return self.context.catalog.reference(SOURCE_BRANCH).hash

    def watermark(self) -> str:
        """Return up to which commit of `main` the replica is."""
        from sterna.replication.replica.head import read_head

        try:
            return read_head(self.context.catalog, self.context.region.replica_branch).watermark
        except BranchChanged:
            return ""  # the run that this starts reports it

    def held(self) -> tuple[Held, ...]:
        """Return what the replica's head holds.

        Polls with one small request as long as the head doesn't move.
        """
        from sterna.replication.replica.head import load_held_list, read_head

        if time.monotonic() < self._next_held_poll:
            return self._cached_held[1]
        self._next_held_poll = time.monotonic() + INITIAL_DELAY_SECONDS
        catalog, branch = self.context.catalog, self.context.region.replica_branch
        try:
            head = catalog.reference(branch).hash
            if head != self._cached_held[0]:
                replica_head = load_held_list(self.context.objects, read_head(catalog, branch))
                self._cached_held = (
                    head,
                    (_HELD_LIST_MISSING,) if replica_head.held_list.read_error else replica_head.held,
                )
        except (BranchChanged, ReferenceNotFound):
            self._cached_held = "", ()
        except (CredentialError, StoreError) as error:  # retried; commits of `main` are seen all the same
            log.warning("can't read what is held in %s: %s", self.context.region.name, error)
        return self._cached_held[1]
