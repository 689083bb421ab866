"""The status of views, from the store and the region's own copy of the catalog; without Spark."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from sterna.catalog.model import parse_key
from sterna.catalog.tables import table_metadata_uri
from sterna.config.sections.features import Features, FeatureView
from sterna.errors import ExitCode, SternaError
from sterna.iceberg.metadata.history import current_ancestors
from sterna.iceberg.metadata.model import TableMetadata
from sterna.iceberg.metadata.table import read_table_metadata
from sterna.pipelines.features.model import State, view_digest
from sterna.pipelines.features.store import FeatureStore
from sterna.replication.replica.head import read_head
from sterna.replication.replica.region import RegionContext
from sterna.runtime.status import Condition, ConditionType, ReconcilerStatus, blocked, blocked_by, is_overdue


def read_status(
    context: RegionContext, features: Features, store: FeatureStore, now: datetime | None = None
) -> tuple[ReconcilerStatus, ...]:
    """Return the status of all views.

    A position is the store's snapshot. A lag is the number of seconds since the replica's first commit that the store
    lacks. The details have the replica's snapshot, and whether the store holds all rows for certain.

    Args:
        features: the section of the services file.
        now: the time; default: the clock's.

    Raises:
        CatalogError: the region's catalog doesn't answer.
        CredentialError: the store refuses the login.
    """
    head = read_head(context.catalog, context.region.replica_branch).hash
    return tuple(
        _view_status(context, features, store, view, head, now or datetime.now(UTC)) for view in features.views
    )


def _view_status(
    context: RegionContext, features: Features, store: FeatureStore, view: FeatureView, head: str, now: datetime
) -> ReconcilerStatus:
    details = {"table": view.table, "serve": view.serve, "current": None, "ready": False}
    status = ReconcilerStatus("feature view", view.name, f"{view.table}, {view.serve}", lag_unit="s", details=details)
    try:
        state, server_id = store.state(view.name), store.server_id()
        status = replace(status, position="" if state.snapshot is None else str(state.snapshot))
        if refusal := context.registry.exclusion_reason(view.table, context.region.name):
            leftover = f"its table is refused here, and the store has its rows: {refusal}"
            ready_condition = Condition(ConditionType.READY, "Refused", refusal)
            return replace(status, conditions=(ready_condition if state.exclusion else blocked("Refused", leftover),))
        metadata = _read_metadata(context, view, head)
        current = metadata.current_snapshot_id if metadata else None
        lag = _seconds_behind(metadata, state, now)
        same_settings = state.digest.partition("/")[0] == view_digest(view, features.entity_of(view))
        ready = bool(state.complete_server) and state.complete_server == server_id and same_settings
        status = replace(status, lag=lag, details={**details, "current": current, "ready": ready})
        return replace(status, conditions=(_condition(view, state, current, lag, ready, same_settings),))
    except SternaError as error:
        return replace(status, conditions=(blocked_by(error, str(error), exit_code=ExitCode.HELD),))


def needs_run(context: RegionContext, features: Features, store: FeatureStore, view: FeatureView, head: str) -> bool:
    """Return whether a run would have work for a view; without Spark.

    Args:
        features: the section of the services file.
        head: the head of the replica branch.

    Raises:
        FeaturesError, CatalogError, StoreError, TableError: something doesn't answer.
    """
    state = store.state(view.name)
    if (
        context.registry.exclusion_reason(view.table, context.region.name)
        or state.exclusion
        or state.pending is not None
    ):
        return True
    metadata = _read_metadata(context, view, head)
    if metadata is None or metadata.current_snapshot_id != state.snapshot:
        return True
    same_settings = state.digest.partition("/")[0] == view_digest(view, features.entity_of(view))
    return not same_settings or (view.serve == "complete" and state.complete_server != store.server_id())


def _read_metadata(context: RegionContext, view: FeatureView, head: str) -> TableMetadata | None:
    uri = table_metadata_uri(context.catalog, context.region.replica_branch, parse_key(view.table), head)
    return read_table_metadata(context.objects.read(uri), uri, context.region.limits) if uri else None


def _seconds_behind(metadata: TableMetadata | None, state: State, now: datetime) -> float | None:
    """Return the seconds since the first commit that the store lacks; all, where its snapshot is on no line."""
    if metadata is None or metadata.current_snapshot_id is None:
        return None
    lineage = current_ancestors(metadata)
    newer = lineage[: lineage.index(state.snapshot)] if state.snapshot in lineage else lineage
    if not newer:
        return 0.0
    times = {snapshot.snapshot_id: snapshot.timestamp_ms for snapshot in metadata.snapshots}
    return max(0.0, round(now.timestamp() - times[newer[-1]] / 1000, 3))


def _condition(
    view: FeatureView, state: State, current: int | None, lag: float | None, ready: bool, same_settings: bool
) -> Condition:
    if current is None:
        if state.snapshot is not None:
            return blocked("Leftover", "the replica has no rows of its table, and the store has some")
        return Condition(ConditionType.READY, "Empty", "its table has no rows yet")
    if lag is not None and is_overdue(lag, view.max_staleness):
        return blocked("Stale", f"the store is {lag:.0f} s behind the replica: more than {view.max_staleness} s")
    if not same_settings:
        return blocked("OtherSettings", "the store holds rows of other settings: the replica answers")
    if view.serve == "complete" and not ready:
        return blocked("Incomplete", "the store may lack rows: the replica answers for what isn't there")
    message = "all rows are in the store" if view.serve == "complete" else "rows are cached"
    return Condition(ConditionType.PROGRESSING if lag else ConditionType.READY, "Served", message)
