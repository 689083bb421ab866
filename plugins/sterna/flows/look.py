"""A look at both sides of a flow, without Spark: what is to be done is known before anything is started."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from sterna.catalog.model import ICEBERG_TABLE, parse_key
from sterna.catalog.reader import CatalogReader
from sterna.errors import ReferenceNotFound, TableGone
from sterna.flows.decide import Decision, Idle, decide
from sterna.registry.model import SOURCE_BRANCH
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow
from sterna.wap.model import TableState, flow_channel
from sterna.wap.state import read_state


@dataclass(frozen=True)
class Sides:
    """Both sides of a flow at one moment.

    Args:
        source: what its region's replica says of the source; None: it hasn't got it yet.
        metadata: the source's metadata.json there, "" for none.
        target: what `main` says of the target.
    """

    source: TableState | None
    metadata: str
    target: TableState


def look(context: RegionContext, flow: Flow) -> Sides:
    """Return both sides of a flow as they are now.

    Args:
        context: the region.
        flow: the flow.

    Raises:
        TableGone: there is no target, or no source even on `main`.
        CatalogError, StoreError: something doesn't answer.
    """
    target = _target(context, flow)
    source, metadata = source_of(context, flow)
    return Sides(source, metadata, read_state(context, flow.into, target))


def mark_of(context: RegionContext, flow: Flow) -> str:
    """Return the mark on a flow's target, "" for none.

    Raises:
        TableGone: there is no target.
        CatalogError, StoreError: something doesn't answer.
    """
    state = read_state(context, flow.into, _target(context, flow))
    return state.properties.get(flow_channel(flow.name).mark, "")


def _target(context: RegionContext, flow: Flow) -> str:
    found = _metadata(context.primary, SOURCE_BRANCH, flow.into)
    if not found:
        raise TableGone("there is no such table on main to write to", table=flow.into, hint="sterna flow check")
    return found


def source_of(context: RegionContext, flow: Flow) -> tuple[TableState | None, str]:
    """Return what the region's replica says of a flow's source, and its metadata.json; None where it hasn't got it yet.

    Raises:
        TableGone: there is no such table even on `main`.
        CatalogError, StoreError: something doesn't answer.
    """
    metadata = _metadata(context.catalog, context.region.replica_branch, flow.source)
    if not metadata and not _metadata(context.primary, SOURCE_BRANCH, flow.source):
        raise TableGone("there is no such table on main to follow", table=flow.source)
    return (read_state(context, flow.source, metadata) if metadata else None), metadata


def next_step(context: RegionContext, flow: Flow, sides: Sides) -> Decision:
    """Return what a flow does next.

    Raises:
        SternaError: as `sterna.flows.decide.decide`.
    """
    if sides.source is None:
        return Idle("this region's replica hasn't got the source yet")
    return decide(flow, sides.source, sides.target, partial(source_on_main, context, flow))


def source_on_main(context: RegionContext, flow: Flow) -> TableState | None:
    """Return what `main` says of a flow's source; None: it isn't there."""
    uri = _metadata(context.primary, SOURCE_BRANCH, flow.source)
    return read_state(context, flow.source, uri) if uri else None


def _metadata(catalog: CatalogReader, branch: str, table: str) -> str:
    key = parse_key(table)
    try:
        found = catalog.contents(branch, catalog.reference(branch).hash, [key]).get(key)
    except ReferenceNotFound:
        return ""  # a region that was never synced
    return (found.metadata_location or "") if found is not None and found.kind == ICEBERG_TABLE else ""
