"""Reading a table's metadata files for a plan: within the region's limits, and with room for them in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

from sterna.errors import ObjectMissing, SizeDiffers, SourceGone, SternaError, TableError
from sterna.limits import Limits
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects
    from sterna.iceberg.metadata.table import TableMetadata

_T = TypeVar("_T")


def read_metadata(context: RegionContext, uri: str) -> TableMetadata:
    """Read a table's metadata.json from where it stands.

    Raises:
        TableError: it is gone, broken, unsupported, or must not be read.
        StoreUnreachable, StoreDenied: its store doesn't answer.
    """
    from sterna.iceberg.json_text import estimated_memory, read_document
    from sterna.iceberg.metadata.table import parse_table_metadata

    limits, data = context.region.limits, _read_one(context, uri)
    memory = estimated_memory(data, uri, limits)
    while True:
        with context.objects.room_for(uri, memory):
            document = read_document(data, uri, limits)
            if document.memory <= memory:
                return parse_table_metadata(document)
            # It said of itself that it were smaller.
            memory = document.memory
            del document


def metadata_here(context: RegionContext, at: str, *, needed: bool = True) -> TableMetadata | None:
    """Return what a metadata.json of the replica says.

    None when there is none (""), or it is lost and so proves nothing; where it isn't `needed`, also when it is broken.

    Raises:
        TableError: it is broken, though it is needed.
        StoreUnreachable, StoreDenied: its store doesn't answer.
    """
    if not at:
        return None
    try:
        return read_metadata(context, at)
    except TableError as error:
        if needed and not isinstance(error, SourceGone):
            raise
        return None


def view_uuid(context: RegionContext, uri: str) -> str:
    """Return the UUID that a view's metadata.json says.

    Raises:
        TableError: it is gone, broken, unsupported, or must not be read.
        StoreUnreachable, StoreDenied: its store doesn't answer.
    """
    from sterna.iceberg.metadata.view import read_view_metadata

    return read_view_metadata(_read_one(context, uri), uri, context.region.limits).uuid


def _read_one(context: RegionContext, uri: str) -> bytes:
    refuse_crossing(context, uri)
    return next(data for _, data in read_files(context, {uri: -1}))


def refuse_crossing(context: RegionContext, uri: str) -> None:
    """See that a file may be in this region before it is read: what is read of other regions is kept here.

    Raises:
        NotResident: a residency rule keeps it out.
    """
    if context.mapping.kept_out and not context.mapping.is_local(uri):
        context.mapping.refuse_kept_out(uri)


def read_files(
    context: RegionContext, sizes: dict[str, int], objects: Objects | None = None
) -> Iterator[tuple[str, bytes]]:
    """Read files that must be there, as many at once as there is room for.

    Args:
        context: the region.
        sizes: their URIs, with the size that is told of each; -1 where nobody tells.
        objects: the stores that they are read from; None: the region's.
    """
    from sterna.edges.stores.open_store import TooLarge

    for uri in sizes:
        refuse_crossing(context, uri)
    for uri, data in (objects or context.objects).read_within(sizes):
        if isinstance(data, ObjectMissing):
            raise _gone(context, uri) from data
        if isinstance(data, TooLarge):
            raise SizeDiffers(f"the file has {data.size} bytes, its list says {sizes[uri]}", file=uri)
        if isinstance(data, SternaError):
            raise data
        yield uri, data


def parsed(context: RegionContext, uri: str, data: bytes, parse: Callable[[bytes, str, Limits], _T]) -> _T:
    """Parse an Avro file when there is room for what it becomes in memory."""
    from sterna.iceberg.avro.container import estimated_memory

    limits = context.region.limits
    with context.objects.room_for(uri, estimated_memory(data, uri, limits)):
        return parse(data, uri, limits)


def _gone(context: RegionContext, uri: str) -> SourceGone:
    hint = "restore it, or expire the snapshots that need it; was retention shorter than the lag?"
    return SourceGone("a metadata file is gone", file=uri, hint=hint)
