"""Reading a table's metadata files for a plan, within the region's limits and its memory budget."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from sterna.config.limits import Limits
from sterna.errors import ObjectMissing, SizeDiffers, SourceGone, SternaError, TableError
from sterna.replication.replica.error_context import format_referrer
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.iceberg.manifests.manifest_list import ManifestFile
    from sterna.iceberg.metadata.table import TableMetadata
    from sterna.storage.objects import Objects

_T = TypeVar("_T")


def read_metadata(context: RegionContext, uri: str) -> TableMetadata:
    """Read a table's metadata.json at its source.

    Raises:
        TableError: it is gone, broken, unsupported, or must not be read.
        StoreUnreachable, StoreDenied: its store doesn't answer.
    """
    from sterna.iceberg.json_text import estimate_memory, read_document
    from sterna.iceberg.metadata.table import parse_table_metadata

    limits, data = context.region.limits, _read_one(context, uri)
    memory = estimate_memory(data, uri, limits)
    while True:
        with context.objects.reserve_memory(uri, memory):
            document = read_document(data, uri, limits)
            if document.memory_bytes <= memory:
                return parse_table_metadata(document)
            # The estimate was too small: a gzip footer may claim any size.
            memory = document.memory_bytes
            del document


def read_replica_metadata(context: RegionContext, uri: str, *, required: bool = True) -> TableMetadata | None:
    """Read a metadata.json of the replica.

    None when there is none (""), or it is lost and so proves nothing; where it isn't `required`, also when it is
    broken.

    Raises:
        TableError: it is broken, though it is needed.
        StoreUnreachable, StoreDenied: its store doesn't answer.
    """
    if not uri:
        return None
    try:
        return read_metadata(context, uri)
    except TableError as error:
        if required and not isinstance(error, SourceGone):
            raise
        return None


def read_view_uuid(context: RegionContext, uri: str) -> str:
    """Return the UUID in a view's metadata.json.

    Raises:
        TableError: it is gone, broken, unsupported, or must not be read.
        StoreUnreachable, StoreDenied: its store doesn't answer.
    """
    from sterna.iceberg.metadata.view import read_view_metadata

    return read_view_metadata(_read_one(context, uri), uri, context.region.limits).uuid


def _read_one(context: RegionContext, uri: str) -> bytes:
    require_resident(context, uri)
    return next(data for _, data in read_files(context, {uri: -1}))


def require_resident(context: RegionContext, uri: str) -> None:
    """Require that a file may be in this region before it is read: what is read of other regions is kept here.

    Raises:
        NotResident: a residency rule keeps it out.
    """
    if context.mapping.excluded_places and not context.mapping.is_local(uri):
        context.mapping.require_resident(uri)


def read_files(
    context: RegionContext, sizes: dict[str, int], objects: Objects | None = None
) -> Iterator[tuple[str, bytes]]:
    """Read files that must be there, as many at once as the memory budget allows.

    Args:
        sizes: their URIs, with the listed size of each; -1 where there is none.
        objects: the stores that they are read from; None: the region's.

    Raises:
        SizeDiffers: a file is larger than its listed size.
        SourceGone: a file is gone.
    """
    from sterna.storage.client import TooLarge

    for uri in sizes:
        require_resident(context, uri)
    for uri, data in (objects or context.objects).read_bounded(sizes):
        if isinstance(data, ObjectMissing):
            raise _source_gone(context, uri) from data
        if isinstance(data, TooLarge):
            raise SizeDiffers(f"the file has {data.size} bytes, its list says {sizes[uri]}", file=uri)
        if isinstance(data, SternaError):
            raise data
        yield uri, data


def parse_avro(context: RegionContext, uri: str, data: bytes, parse: Callable[[bytes, str, Limits], _T]) -> _T:
    """Parse an Avro file once the memory budget allows the result."""
    from sterna.iceberg.avro.container import estimate_memory

    limits = context.region.limits
    with context.objects.reserve_memory(uri, estimate_memory(data, uri, limits)):
        return parse(data, uri, limits)


def read_lists(
    context: RegionContext, uris: Sequence[str], referrers: dict[str, str] | None = None
) -> Iterable[ManifestFile]:
    """Yield the entries of manifest lists; adds the list of each to `referrers`."""
    from sterna.iceberg.manifests.manifest_list import read_manifest_list

    for uri, data in read_files(context, dict.fromkeys(uris, -1)):
        manifests = parse_avro(context, uri, data, read_manifest_list)
        if referrers is not None:
            referrer = format_referrer("the manifest list", uri)
            for manifest in manifests:
                referrers.setdefault(manifest.path, referrer)
        yield from manifests


def _source_gone(context: RegionContext, uri: str) -> SourceGone:
    hint = "restore it, or expire the snapshots that need it; was retention shorter than the lag?"
    return SourceGone("a metadata file is gone", file=uri, hint=hint)
