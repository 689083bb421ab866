"""A region's views worked on one after another: what commands and tasks do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

from sterna.changes.region import open_session
from sterna.errors import ChangesError, EngineError, FeaturesError, SternaError, StoreError, TableError, UsageError
from sterna.features.materialize import Materialized, each_view, materialize
from sterna.features.status import due
from sterna.features.store import FeatureStore
from sterna.features.verify import Verified, verify
from sterna.replica.region import RegionContext
from sterna.services.features import Features, View
from sterna.services.model import Services

_LOOK_SECONDS = 1.0
Say = Callable[[str], None]


@dataclass(frozen=True)
class Failed:
    """A view that wasn't brought further.

    Args:
        view: its name.
        error: why.
    """

    view: str
    error: SternaError


def features_of(services: Services, region: str) -> Features:
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
def opened_store(context: RegionContext, features: Features) -> Iterator[FeatureStore]:
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
    linger: float = 0.0,
    done: Callable[[Materialized], None] = lambda _: None,
    say: Say = lambda _: None,
) -> tuple[list[Materialized], list[Failed]]:
    """Bring views to what the replica shows; with a time to linger, again whenever its head has moved.

    A view that fails keeps no other one.

    Args:
        context: the region.
        features: the section of the services file.
        views: their names; none: all.
        rebuild: fill them as a whole, once.
        linger: seconds for which it looks for more, with Spark warm.
        done: told of each view that changed.
        say: told of each that failed.

    Returns:
        What became of each view last, and what failed at the last try.

    Raises:
        UsageError: there is no such view.
        NeedsClassicSpark: the region's Spark is a Spark Connect server.
        EngineError: Spark can't be started.
    """
    work = _Work(context, features, each_view(features, views, UsageError), done, say)
    end = time.monotonic() + linger
    with opened_store(context, features) as store, ExitStack() as opened:
        while True:
            head = context.catalog.reference(context.region.replica_branch).hash
            failed = work.go_through(store, opened, head, rebuild=rebuild)
            rebuild = False
            if not _news(context, head, end):
                return list(work.made.values()), failed


class _Work:
    """Views, and what became of them; Spark is started for the first that has something to do."""

    def __init__(
        self,
        context: RegionContext,
        features: Features,
        views: Sequence[View],
        done: Callable[[Materialized], None],
        say: Say,
    ) -> None:
        self._context, self._features, self._views, self._done, self._say = context, features, views, done, say
        self._spark: Any = None
        self.made: dict[str, Materialized] = {}

    def go_through(self, store: FeatureStore, opened: ExitStack, head: str, *, rebuild: bool) -> list[Failed]:
        failed = []
        for view in self._views:
            try:
                found = self._brought(store, opened, view, head, rebuild=rebuild)
            except (UsageError, FeaturesError, ChangesError, EngineError, TableError, StoreError) as error:
                failed.append(Failed(view.name, error))
                self._say(f"{view.name}: {error}")
                continue
            if found.how != "same" or view.name not in self.made:
                self.made[view.name] = found
                self._done(found)
        return failed

    def _brought(self, store: FeatureStore, opened: ExitStack, view: View, head: str, *, rebuild: bool) -> Materialized:
        if not rebuild and not due(self._context, self._features, store, view, head):
            return Materialized(view.name, "same", snapshot=store.state(view.name).snapshot)
        if self._spark is None:
            self._spark = opened.enter_context(open_session(self._context))
        return materialize(self._context, self._spark, store, self._features, view, rebuild=rebuild)


def verify_all(
    context: RegionContext, features: Features, views: Sequence[str], sample: int, say: Say
) -> list[Verified]:
    """Compare views with the replica; raises as `verify`."""
    found = []
    with opened_store(context, features) as store, open_session(context) as spark:
        for view in each_view(features, views, UsageError):
            found.append(verify(context, spark, store, features, view, sample))
            say(f"{view.name}: {found[-1].compared} rows compared")
    return found


def _news(context: RegionContext, head: str, end: float) -> bool:
    """Wait until the replica's head isn't the one that was looked at; False: the time is over first."""
    while time.monotonic() < end:
        if context.catalog.reference(context.region.replica_branch).hash != head:
            return True
        time.sleep(min(_LOOK_SECONDS, max(0.0, end - time.monotonic())))
    return False
