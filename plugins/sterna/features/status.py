"""How far views are, by the store and the region's own copy of the catalog; asks no Spark."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from sterna.catalog.model import ICEBERG_TABLE, parse_key
from sterna.errors import FeaturesError, SternaError
from sterna.features.model import State, view_digest
from sterna.features.store import FeatureStore
from sterna.iceberg.metadata.history import current_line
from sterna.iceberg.metadata.model import TableMetadata
from sterna.iceberg.metadata.table import read_table_metadata
from sterna.replica.head import read_head
from sterna.replica.region import RegionContext
from sterna.services.features import Features, View


@dataclass(frozen=True)
class ViewStatus:
    """How far one view is.

    Args:
        view: its name.
        table: its table.
        serve: `complete` or `cache`.
        snapshot: the snapshot that the store stands for; None: none.
        current: the replica's; None: none.
        behind: seconds since the replica's first commit that the store lacks; 0 for none, None where nobody knows.
        ready: the store holds all rows, for certain.
        alarm: why somebody should look; "" for nothing.
    """

    view: str
    table: str
    serve: str
    snapshot: int | None
    current: int | None
    behind: float | None
    ready: bool
    alarm: str = ""


def status(
    context: RegionContext, features: Features, store: FeatureStore, now: datetime | None = None
) -> tuple[ViewStatus, ...]:
    """Return how far all views are.

    Args:
        context: the region.
        features: the section of the services file.
        store: the region's.
        now: the time; default: the clock's.

    Raises:
        CatalogError: the region's catalog doesn't answer.
        CredentialError: the store refuses the login.
    """
    head = read_head(context.catalog, context.region.replica_branch).hash
    return tuple(_of(context, features, store, view, head, now or datetime.now(UTC)) for view in features.views)


def _of(
    context: RegionContext, features: Features, store: FeatureStore, view: View, head: str, now: datetime
) -> ViewStatus:
    metadata: TableMetadata | None = None
    state, mark = State(), ""
    try:
        state, mark = store.state(view.name), store.mark()
        if refusal := context.registry.refusal(view.table, context.region.name):
            left = "" if state.refused else f"its table is refused here, and the store has its rows: {refusal}"
            return ViewStatus(view.name, view.table, view.serve, state.snapshot, None, None, False, left)
        metadata = _metadata(context, view, head)
        current = metadata.current_snapshot_id if metadata else None
        behind = _behind(metadata, state, now)
        ours = state.digest.partition("/")[0] == view_digest(view, features.entity_of(view))
        ready = bool(state.ready) and state.ready == mark and ours
        left = "" if state.snapshot is None else "the replica has no rows of its table, and the store has some"
        alarm = _alarm(view, behind, ready, ours) if current is not None else left
        return ViewStatus(view.name, view.table, view.serve, state.snapshot, current, behind, ready, alarm)
    except FeaturesError as error:
        return ViewStatus(view.name, view.table, view.serve, None, None, None, False, str(error))
    except SternaError as error:
        return ViewStatus(view.name, view.table, view.serve, state.snapshot, None, None, False, str(error))


def due(context: RegionContext, features: Features, store: FeatureStore, view: View, head: str) -> bool:
    """Say whether a run would have something to do for a view; asks no Spark.

    Args:
        context: the region.
        features: the section of the services file.
        store: the region's.
        view: the view.
        head: the head of the replica branch.

    Raises:
        FeaturesError, CatalogError, StoreError, TableError: something doesn't answer.
    """
    state = store.state(view.name)
    if context.registry.refusal(view.table, context.region.name) or state.refused or state.pending is not None:
        return True
    metadata = _metadata(context, view, head)
    if metadata is None or metadata.current_snapshot_id != state.snapshot:
        return True
    ours = state.digest.partition("/")[0] == view_digest(view, features.entity_of(view))
    return not ours or (view.serve == "complete" and state.ready != store.mark())


def _metadata(context: RegionContext, view: View, head: str) -> TableMetadata | None:
    key = parse_key(view.table)
    content = context.catalog.contents(context.region.replica_branch, head, [key]).get(key)
    if content is None or content.kind != ICEBERG_TABLE or not content.metadata_location:
        return None
    uri = content.metadata_location
    return read_table_metadata(context.objects.read(uri), uri, context.region.limits)


def _behind(metadata: TableMetadata | None, state: State, now: datetime) -> float | None:
    """Return the seconds since the first commit that the store lacks; all, where its snapshot is on no line."""
    if metadata is None or metadata.current_snapshot_id is None:
        return None
    line = current_line(metadata)
    newer = line[: line.index(state.snapshot)] if state.snapshot in line else line
    if not newer:
        return 0.0
    times = {each.snapshot_id: each.timestamp_ms for each in metadata.snapshots}
    return max(0.0, round(now.timestamp() - times[newer[-1]] / 1000, 3))


def _alarm(view: View, behind: float | None, ready: bool, ours: bool) -> str:
    if behind is not None and behind > view.late:
        return f"the store is {behind:.0f} s behind the replica: more than {view.late} s"
    if not ours:
        return "the store holds rows of other settings: the replica answers"
    if view.serve == "complete" and not ready:
        return "the store may lack rows: the replica answers for what isn't there"
    return ""
