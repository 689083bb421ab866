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
from sterna.pipelines.publish.model import TableState, transform_channel
from sterna.pipelines.publish.table_state import read_state
from sterna.pipelines.transforms.decide import Decision, decide
from sterna.replication.replica.region import RegionContext
from sterna.runtime.reconciler import Idle


@dataclass(frozen=True)
class TransformState:
    """The source and the target of a transform at one moment.

    Args:
        source: its state on the region's replica; None: it isn't replicated yet.
        metadata: the source's metadata.json there; "": none.
        target: its state on `main`.
    """

    source: TableState | None
    metadata: str
    target: TableState

    def applied_position(self, transform: Transform) -> str:
        """Return the target's position; "": none."""
        return self.target.position(transform_channel(transform.name))


def read_transform_state(context: RegionContext, transform: Transform) -> TransformState:
    """Return the current state of a transform's source and target.

    Raises:
        TableGone: the target doesn't exist, or neither does the source on `main`.
        CatalogError, StoreError: a dependency isn't available.
    """
    target = _target_metadata(context, transform)
    source, metadata = read_source(context, transform)
    return TransformState(source, metadata, read_state(context, transform.into, target))


def read_applied_position(context: RegionContext, transform: Transform) -> str:
    """Return the position of a transform's target; "": none.

    Raises:
        TableGone: the target doesn't exist.
        CatalogError, StoreError: a dependency isn't available.
    """
    state = read_state(context, transform.into, _target_metadata(context, transform))
    return state.position(transform_channel(transform.name))


def _target_metadata(context: RegionContext, transform: Transform) -> str:
    location = _metadata_location(context.primary, SOURCE_BRANCH, transform.into)
    if not location:
        raise TableGone(
            "there is no such table on main to write to", table=transform.into, hint="sterna transforms check"
        )
    return location


def read_source(context: RegionContext, transform: Transform) -> tuple[TableState | None, str]:
    """Return the state of a transform's source on the replica, and its metadata.json; None: not replicated yet.

    Raises:
        TableGone: it doesn't exist on `main` either.
        CatalogError, StoreError: a dependency isn't available.
    """
    metadata = _metadata_location(context.catalog, context.region.replica_branch, transform.source)
    if not metadata and not _metadata_location(context.primary, SOURCE_BRANCH, transform.source):
        raise TableGone("there is no such table on main to follow", table=transform.source)
    return (read_state(context, transform.source, metadata) if metadata else None), metadata


def next_step(context: RegionContext, transform: Transform, transform_state: TransformState) -> Decision:
    """Return what a transform does next.

    Raises:
        SternaError: as `sterna.pipelines.transforms.decide.decide`.
    """
    if transform_state.source is None:
        return Idle("this region's replica hasn't got the source yet")
    return decide(
        transform, transform_state.source, transform_state.target, partial(read_source_on_main, context, transform)
    )


def read_source_on_main(context: RegionContext, transform: Transform) -> TableState | None:
    """Return the state of a transform's source on `main`; None: it doesn't exist."""
    uri = _metadata_location(context.primary, SOURCE_BRANCH, transform.source)
    return read_state(context, transform.source, uri) if uri else None


def _metadata_location(catalog: CatalogReader, branch: str, table: str) -> str:
    try:
        return table_metadata_uri(catalog, branch, parse_key(table))
    except ReferenceNotFound:
        return ""  # a region that was never synced
