"""A small sync after each change, in the background: one at a time, and one more where others asked meanwhile.

What is large is left to the region's DAG or follower, and two syncs are kept apart by compare-and-swap, as always.

What this process has changed is shown until a sync has ended that saw it, and the region's own copy of the catalog
shows what that sync published. A sync that failed, or was left to others, is tried again until then: others may have
changed the same table meanwhile, and clients here would never see it. A key that is held by a fault of its own is
planned again once `main` or the replica branch has another commit: nothing else changes what a plan finds.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from sterna.catalog.model import parse_key
from sterna.concurrency.background import run_in_background
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import ReferenceNotFound, SternaError
from sterna.replication.execution.spark_executor import engine_or_spark
from sterna.replication.replica.catalog_copy import is_served
from sterna.replication.replica.held import WAITS
from sterna.replication.replica.model import Report
from sterna.replication.replica.region import RegionContext
from sterna.replication.sync import stages
from sterna.replication.sync.follow import SMALL_SYNC, FollowerLimits
from sterna.replication.sync.run import execute_plan
from sterna.runtime.retry_delay import RetryDelay
from sterna.serving.rest_catalog.recent_changes import RecentChanges

log = logging.getLogger(__name__)
_MAX_PLANS = 100  # a plan that was overtaken is made again
RETRY_DELAY = RetryDelay(2.0, 120.0)
"""Between two tries of a sync, while changes of this process aren't shown by the replica branch."""


class BackgroundSync:
    """Syncs of a region by this process.

    Args:
        region: returns the region, with connections of its own.
        recent: what this process has changed: shown until a sync is done.
        limits: the largest sync that is done here.
        renew: called after a failure: has `region` look up again which catalog takes commits.
        retry_delay: before a sync is tried again; None: only the next request does that.
    """

    def __init__(
        self,
        region: Callable[[], RegionContext],
        recent: RecentChanges,
        limits: FollowerLimits = FollowerLimits(),  # noqa: B008
        renew: Callable[[], None] = lambda: None,
        retry_delay: RetryDelay | None = None,
    ) -> None:
        self._region = region
        self._recent = recent
        self._limits = limits
        self._renew = renew
        self._retry_delay = retry_delay
        self._changed = threading.Condition()
        self._requested = self._done = 0
        self._running = False
        self._settled_heads: tuple[str, str] | None = None  # at which another plan would find the same again
        self.failure: SternaError | None = None
        """Why the last sync failed; None where it didn't."""

    def request(self) -> int:
        """Have a sync begin soon that sees what is on `main` now, and return its number for `wait`."""
        with self._changed:
            self._requested += 1
            if not self._running:
                run_in_background(self._run, "sterna-catalog-sync")
                self._running = True  # only once the thread has begun; it waits for this lock
            self._changed.notify_all()  # it may wait before it tries again
            return self._requested

    def wait(self, number: int, seconds: float) -> bool:
        """Wait until a requested sync has ended, well or not; return whether it has."""
        with self._changed:
            return self._changed.wait_for(lambda: self._done >= number, timeout=seconds)

    def _run(self) -> None:
        tries = 0
        while True:
            with self._changed:
                number = self._requested
            failure = self._try_sync(is_retry=number == self._done)
            with self._changed:
                self._done, self.failure = number, failure
                self._changed.notify_all()
                tries = tries + 1 if self._requested == number else 0
                if tries and not self._wait_to_retry(number, tries):
                    self._running = False
                    return

    def _wait_to_retry(self, number: int, tries: int) -> bool:
        """Wait before the same sync is tried again, or another one is requested; return False where neither is.

        Args:
            number: of the newest request.
            tries: how many times it was tried.
        """
        if self._retry_delay is None or self._recent.is_empty:
            return False
        self._changed.wait_for(lambda: self._requested != number, timeout=self._retry_delay.draw(tries))
        return True

    def _try_sync(self, *, is_retry: bool) -> SternaError | None:
        """Sync, and return why that failed; None where it didn't.

        Args:
            is_retry: nothing was requested since the last one.
        """
        started = time.monotonic()
        failure: SternaError | None = None
        try:
            self._sync(is_retry=is_retry)
        except SternaError as error:
            failure = error
            log.warning("a sync after a commit failed: %s: %s", type(error).__name__, error)
            self._renew()
        except Exception:
            log.exception("a sync after a commit failed unexpectedly")
        log.debug("a sync after a commit took %.2f s", time.monotonic() - started)
        return failure

    def _sync(self, *, is_retry: bool) -> None:
        count = self._recent.count
        try:
            context = self._region()
            if not is_retry or self._settled_heads is None or self._settled_heads != _heads(context):
                self._settled_heads = None
                self._sync_since(context, count)
        finally:
            self._recent.discard_published(count)

    def _sync_since(self, context: RegionContext, count: int) -> None:
        for _ in range(_MAX_PLANS):
            report = self._sync_once(context)
            if report is None:
                return  # left to others: what was changed here is shown until they have published it
            if not report.more and report.outcome != "superseded":
                if report.replica_hash and not is_served(context, report.replica_hash):
                    return  # readers here would see what was before
                held = (*report.held, *report.transit)
                self._recent.discard_until(count, {parse_key(held_key.key) for held_key in held})
                # Else a fault may be over by itself, as of a store that did not answer, or copies may come to an end.
                if all(held_key.is_lasting or held_key.kind == WAITS for held_key in held):
                    self._settled_heads = (report.source_hash, report.replica_hash)
                return

    def _sync_once(self, context: RegionContext) -> Report | None:
        planned = stages.plan(context, SMALL_SYNC, log.debug, self._limits.exceeded_by)
        if planned.deferred:
            log.info("a sync after a commit is left to the region's own: %s", planned.deferred)
            return None
        if planned.report is not None:
            return planned.report
        with engine_or_spark(context, log.debug, None) as engine:
            return execute_plan(context, planned, SMALL_SYNC, log.debug, engine)


def _heads(context: RegionContext) -> tuple[str, str]:
    """Return the heads of `main` and of the replica branch."""
    catalog = context.primary
    try:
        replica_hash = catalog.reference(context.region.replica_branch).hash
    except ReferenceNotFound:
        replica_hash = catalog.no_ancestor()
    return catalog.reference(SOURCE_BRANCH).hash, replica_hash
