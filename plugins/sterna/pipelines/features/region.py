"""A region's views: each is a consumer of the replica. What commands and tasks do with them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from threading import Event
from typing import Any

from sterna.concurrency.cached_read import CachedRead
from sterna.config.sections.features import Features, FeatureView
from sterna.config.sections.model import Services
from sterna.errors import UsageError
from sterna.pipelines.changes.region import open_session
from sterna.pipelines.features.materialize import (
    Materialization,
    describe_materialization,
    materialize_view,
    select_views,
)
from sterna.pipelines.features.status import needs_run
from sterna.pipelines.features.store import FeatureStore
from sterna.pipelines.features.verify import Verification, verify_view
from sterna.replication.replica.region import RegionContext
from sterna.runtime.reconciler import Idle, Reconciler
from sterna.runtime.runner import Runner, RunSummary

_POLL_SECONDS = 0.9  # less than the runner's: all views of a pass have one poll
_NOTHING_TO_DO = "nothing to do"
Report = Callable[[str], None]


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
    report: Report = lambda _: None,
    stopping: Event | None = None,
) -> RunSummary[Materialization]:
    """Materialize views at the replica's head; with a time to follow for, again whenever it has moved.

    Args:
        features: the section of the services file.
        views: their names; none: all.
        rebuild: fill them as a whole, once.
        follow_for: seconds to poll for further changes.
        report: called with a line for each view that changed or failed.
        stopping: ends the run after the step under way, once it is set.

    Raises:
        UsageError: there is no such view.
    """
    selected = select_views(features, views, UsageError)
    with open_feature_store(context, features) as store, ExitStack() as opened:
        shared = _SharedReads(context, store, opened)
        reconcilers = [ViewReconciler(context, features, view, store, shared, rebuild) for view in selected]
        return Runner(reconcilers, report, stopping=stopping).run(follow_for)


class _SharedReads:
    """What the views of a run share: one poll, and Spark, started for the first that has something to do."""

    def __init__(self, context: RegionContext, store: FeatureStore, opened: ExitStack) -> None:
        self._context, self._store, self._opened = context, store, opened
        self._spark: Any = None
        self.poll = CachedRead(self._poll, _POLL_SECONDS)

    def _poll(self) -> Observation:
        head = self._context.catalog.reference(self._context.region.replica_branch).hash
        return Observation(head, self._store.server_id())

    def spark(self) -> Any:
        if self._spark is None:
            self._spark = self._opened.enter_context(open_session(self._context))
        return self._spark


@dataclass(frozen=True)
class Observation:
    """What a decision on a view's next step needs.

    Args:
        head: of the replica.
        server_id: of the store: one that was restarted has lost its rows.
    """

    head: str
    server_id: str


@dataclass
class ViewReconciler(Reconciler[Observation, Observation, Materialization]):
    """Brings one view's rows in the store to those of the replica.

    Args:
        context: the region.
        features: the section of the services file.
        view: the view.
        store: the region's.
        shared: the reads that the views of a run share.
        rebuild: its first step fills it as a whole.
    """

    context: RegionContext
    features: Features
    view: FeatureView
    store: FeatureStore
    shared: _SharedReads
    rebuild: bool
    _applied: Observation | None = None

    def __post_init__(self) -> None:
        self.name = self.view.name

    def observe(self, previous: Observation | None = None) -> Observation:
        """Return the replica's head and the store's server, read once for all views of a run.

        Raises:
            CatalogError, FeaturesError: the region's catalog or its store doesn't answer.
        """
        return self.shared.poll()

    def decide(self, state: Observation) -> Observation | Idle:
        """Return the state that is to be applied; a view that has it needs no step.

        Raises:
            FeaturesError, CatalogError, StoreError, TableError: something doesn't answer.
        """
        if state == self._applied:
            return Idle(_NOTHING_TO_DO)
        if not self.rebuild and not needs_run(self.context, self.features, self.store, self.view, state.head):
            self._applied = state
            return Idle(_NOTHING_TO_DO)
        return state

    def apply(self, state: Observation, work: Observation) -> Materialization:
        """Fill the view; see `sterna.pipelines.features.materialize.materialize_view`.

        Raises:
            SternaError: as there.
        """
        materialized = materialize_view(
            self.context, self.shared.spark(), self.store, self.features, self.view, rebuild=self.rebuild
        )
        self.rebuild, self._applied = False, work
        return materialized

    def summarize(self, result: Materialization) -> str:
        """Return what became of the view."""
        return describe_materialization(result)


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
