"""A region's views worked on one after another: what commands and tasks do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from sterna.config.sections.features import Features, FeatureView
from sterna.config.sections.model import Services
from sterna.errors import ChangesError, EngineError, FeaturesError, SternaError, StoreError, TableError, UsageError
from sterna.pipelines.changes.region import open_session
from sterna.pipelines.features.materialize import Materialization, materialize_view, select_views
from sterna.pipelines.features.status import needs_run
from sterna.pipelines.features.store import FeatureStore
from sterna.pipelines.features.verify import Verification, verify_view
from sterna.replication.replica.region import RegionContext

_POLL_SECONDS = 1.0
Report = Callable[[str], None]


@dataclass(frozen=True)
class FailedView:
    """A view that wasn't brought further.

    Args:
        view: its name.
        error: why.
    """

    view: str
    error: SternaError


def require_features(services: Services, region: str) -> Features:
    """Return the section `features` for a region that has a store.

    Raises:
        UsageError: the services file has none.
    """
    if services.features is None:
        raise UsageError("the services file has no section features", hint="name another one with --services")
    if region not in services.features.online:
        raise UsageError(f"the services file has no features.online.{region}: the region has no store of features")
    return services.features


@contextmanager
def open_feature_store(context: RegionContext, features: Features) -> Iterator[FeatureStore]:
    """Open a region's store.

    Raises:
        CredentialError: its credential is missing.
    """
    store = FeatureStore(features.online[context.region.name], context.secrets)
    try:
        yield store
    finally:
        store.close()


def materialize_all(
    context: RegionContext,
    features: Features,
    views: Sequence[str] = (),
    *,
    rebuild: bool = False,
    follow_for: float = 0.0,
    on_done: Callable[[Materialization], None] = lambda _: None,
    report: Report = lambda _: None,
) -> tuple[list[Materialization], list[FailedView]]:
    """Bring views to what the replica shows; with a time to linger, again whenever its head has moved.

    A view that fails keeps no other one.

    Args:
        context: the region.
        features: the section of the services file.
        views: their names; none: all.
        rebuild: fill them as a whole, once.
        follow_for: seconds to poll for further changes, while Spark is running.
        on_done: called for each view that changed.
        report: called for each view that failed.

    Returns:
        What became of each view last, and what failed at the last try.

    Raises:
        UsageError: there is no such view.
        NeedsClassicSpark: the region's Spark is a Spark Connect server.
        EngineError: Spark can't be started.
    """
    views_run = _ViewsRun(context, features, select_views(features, views, UsageError), on_done, report)
    deadline = time.monotonic() + follow_for
    with open_feature_store(context, features) as store, ExitStack() as opened:
        while True:
            head = context.catalog.reference(context.region.replica_branch).hash
            failed = views_run.run_pass(store, opened, head, rebuild=rebuild)
            rebuild = False
            if not _wait_for_change(context, head, deadline):
                return list(views_run.outcomes.values()), failed


class _ViewsRun:
    """Views, and what became of them; Spark is started for the first that has something to do."""

    def __init__(
        self,
        context: RegionContext,
        features: Features,
        views: Sequence[FeatureView],
        on_done: Callable[[Materialization], None],
        report: Report,
    ) -> None:
        self._context, self._features, self._views, self._on_done, self._report = (
            context,
            features,
            views,
            on_done,
            report,
        )
        self._spark: Any = None
        self.outcomes: dict[str, Materialization] = {}

    def run_pass(self, store: FeatureStore, opened: ExitStack, head: str, *, rebuild: bool) -> list[FailedView]:
        failed = []
        for view in self._views:
            try:
                outcome = self._materialize(store, opened, view, head, rebuild=rebuild)
            except (UsageError, FeaturesError, ChangesError, EngineError, TableError, StoreError) as error:
                failed.append(FailedView(view.name, error))
                self._report(f"{view.name}: {error}")
                continue
            if outcome.how != "same" or view.name not in self.outcomes:
                self.outcomes[view.name] = outcome
                self._on_done(outcome)
        return failed

    def _materialize(
        self, store: FeatureStore, opened: ExitStack, view: FeatureView, head: str, *, rebuild: bool
    ) -> Materialization:
        if not rebuild and not needs_run(self._context, self._features, store, view, head):
            return Materialization(view.name, "same", snapshot=store.state(view.name).snapshot)
        if self._spark is None:
            self._spark = opened.enter_context(open_session(self._context))
        return materialize_view(self._context, self._spark, store, self._features, view, rebuild=rebuild)


def verify_all(
    context: RegionContext, features: Features, views: Sequence[str], sample: int, report: Report
) -> list[Verification]:
    """Compare views with the replica; raises as `verify`."""
    verifications = []
    with open_feature_store(context, features) as store, open_session(context) as spark:
        for view in select_views(features, views, UsageError):
            verifications.append(verify_view(context, spark, store, features, view, sample))
            report(f"{view.name}: {verifications[-1].compared} rows compared")
    return verifications


def _wait_for_change(context: RegionContext, head: str, deadline: float) -> bool:
    """Wait until the replica's head isn't the one that was looked at; False: the time is over first."""
    while time.monotonic() < deadline:
        if context.catalog.reference(context.region.replica_branch).hash != head:
            return True
        time.sleep(min(_POLL_SECONDS, max(0.0, deadline - time.monotonic())))
    return False
