"""The state of a transform's source and target, read without Spark: it is started only if there is work."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sterna.catalog.model import parse_key
from sterna.catalog.reader import CatalogReader
from sterna.catalog.tables import table_metadata_uri
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.sections.transforms import Transform
from sterna.errors import ReferenceNotFound, TableGone
from sterna.pipelines.publish.model import TableState, flow_channel
from sterna.pipelines.publish.table_state import read_state
from sterna.pipelines.transforms.decide import Decision, decide
from sterna.replication.replica.region import RegionContext
from sterna.runtime.reconciler import Idle


@dataclass(frozen=True)
class FlowState:
    """The source and the target of a transform at one moment.

    Args:
        source: its state on the region's replica; None: it isn't replicated yet.
        metadata: the source's metadata.json there; "": none.
        target: its state on `main`.
    """

    source: TableState | None
    metadata: str
    target: TableState

    def applied_position(self, flow: Transform) -> str:
        """Return the target's position; "": none."""
        return self.target.properties.get(flow_channel(flow.name).position_property, "")


def read_flow_state(context: RegionContext, flow: Transform) -> FlowState:
    """Return the current state of a transform's source and target.

    Raises:
        TableGone: the target doesn't exist, or neither does the source on `main`.
        CatalogError, StoreError: a dependency isn't available.
    """
    target = _target_metadata(context, flow)
    source, metadata = read_source(context, flow)
    return FlowState(source, metadata, read_state(context, flow.into, target))


def read_applied_position(context: RegionContext, flow: Transform) -> str:
    """Return the position of a transform's target; "": none.

    Raises:
        TableGone: the target doesn't exist.
        CatalogError, StoreError: a dependency isn't available.
    """
    state = read_state(context, flow.into, _target_metadata(context, flow))
    return state.properties.get(flow_channel(flow.name).position_property, "")


def _target_metadata(context: RegionContext, flow: Transform) -> str:
    location = _metadata_location(context.primary, SOURCE_BRANCH, flow.into)
    if not location:
        raise TableGone("there is no such table on main to write to", table=flow.into, hint="sterna transforms check")
    return location


def read_source(context: RegionContext, flow: Transform) -> tuple[TableState | None, str]:
    """Return the state of a transform's source on the replica, and its metadata.json; None: not replicated yet.

    Raises:
        TableGone: it doesn't exist on `main` either.
        CatalogError, StoreError: a dependency isn't available.
    """
    metadata = _metadata_location(context.catalog, context.region.replica_branch, flow.source)
    if not metadata and not _metadata_location(context.primary, SOURCE_BRANCH, flow.source):
        raise TableGone("there is no such table on main to follow", table=flow.source)
    return (read_state(context, flow.source, metadata) if metadata else None), metadata


def next_step(context: RegionContext, flow: Transform, flow_state: FlowState) -> Decision:
    """Return what a transform does next.

    Raises:
        SternaError: as `sterna.pipelines.transforms.decide.decide`.
    """
    if flow_state.source is None:
        return Idle("this region's replica hasn't got the source yet")
    return decide(flow, flow_state.source, flow_state.target, partial(read_source_on_main, context, flow))


def read_source_on_main(context: RegionContext, flow: Transform) -> TableState | None:
    """Return the state of a transform's source on `main`; None: it doesn't exist."""
    uri = _metadata_location(context.primary, SOURCE_BRANCH, flow.source)
    return read_state(context, flow.source, uri) if uri else None


def _metadata_location(catalog: CatalogReader, branch: str, table: str) -> str:
    try:
        return table_metadata_uri(catalog, branch, parse_key(table))
    except ReferenceNotFound:
        return ""  # a region that was never synced
