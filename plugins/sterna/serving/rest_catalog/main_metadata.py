"""A table's or view's metadata.json on `main`: read whole, and written under a fresh name by this address.

The address's own files of a table are in a folder of its own, which no client's key may write or delete, and which
is outside of every location that is served. None of them is ever deleted here.
"""

from __future__ import annotations

import json
import re
import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import ICEBERG_TABLE, ICEBERG_VIEW, Content
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.near_places import address_root
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.errors import BadUpdate, ObjectMissing, SourceGone
from sterna.replication.replica.region import RegionContext
from sterna.serving.rest_catalog.byte_cache import ByteCache, ServedBody
from sterna.serving.rest_catalog.home_files import read_home_file

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

_PREVIOUS_VERSIONS_MAX = "write.metadata.previous-versions-max"
_DEFAULT_PREVIOUS_VERSIONS = 100
_VERSION = re.compile(r"v?(\d{1,9})(?=[-.])")
_NO_SNAPSHOT = -1


def read_metadata(context: RegionContext, uri: str, cache: ByteCache | None = None) -> dict[str, Any]:
    """Return the whole JSON object of a metadata.json, fields that sterna doesn't know included.

    Args:
        cache: keeps its bytes: such a file never changes.

    Raises:
        BrokenMetadata, OverLimit: it is no such file, or too large.
        SourceGone: it is gone.
        HomeUnavailable: another region's store can't be used, and this one has no copy.
        StoreUnreachable, StoreDenied: this region's own store can't be used.
    """
    from sterna.iceberg.json_text import read_document

    def parse(data: bytes) -> dict[str, Any]:
        document = read_document(data, uri, context.region.limits)
        metadata = dict(document.values(document.root()))
        if cache is not None and kept is None:  # only what is whole: a copy may be broken where the file is not
            cache.put((SOURCE_BRANCH, uri), ServedBody(data))
        return metadata

    kept = cache.get((SOURCE_BRANCH, uri)) if cache is not None else None
    try:
        return read_home_file(context.objects, uri, parse) if kept is None else parse(kept.content)
    except ObjectMissing as error:
        raise SourceGone("a metadata file is gone", file=uri) from error


def uri_on_main(mapping: RegionMapping, uri: str) -> str:
    """Return the name that `main` has for a metadata.json, which clients know by the name that this address shows.

    Raises:
        BadUpdate: it is a file of a replica that corresponds to none on `main`.
        UnregisteredUri: it is below a replica root, but under no registered id.
    """
    if not mapping.below_replica_root(uri):
        return uri
    version, origin = mapping.metadata_version(uri), mapping.metadata_origin(uri)
    if version is None or mapping.below_replica_root(origin):
        raise BadUpdate("the file of a replica corresponds to none on `main`", file=uri)
    return origin


def address_folder(near_root: str, metadata: Mapping[str, Any], field: str = "table-uuid") -> str:
    """Return the folder of the address's own files of a table or view.

    Args:
        near_root: the region's own location.
        field: which one has its UUID.

    Raises:
        BadUpdate: its UUID is none, and would be a folder's name.
    """
    try:
        folder = uuid.UUID(str(metadata.get(field)))
    except ValueError:
        raise BadUpdate(f"the metadata's {field} is no UUID") from None
    return f"{address_root(near_root)}/{folder}"


def write_metadata(objects: Objects, folder: str, metadata: Mapping[str, Any], previous_uri: str = "") -> str:
    """Write a metadata.json under a fresh name, and return its URI.

    Args:
        folder: as `address_folder` returned it.
        previous_uri: the one before it, whose number it continues; "" for none.

    Raises:
        BadUpdate: a number in it is infinite, which no reader takes.
        StoreUnreachable, StoreDenied: the region's store can't be used.
    """
    match = _VERSION.match(previous_uri.rpartition("/")[2])
    version = int(match[1]) + 1 if match else 1 if previous_uri else 0
    uri = f"{folder}/metadata/{version:05d}-{uuid.uuid4()}.metadata.json"
    try:
        # Escaped, so that a text with half a surrogate pair is carried as it is.
        data = json.dumps(metadata, separators=(",", ":"), allow_nan=False).encode()
    except ValueError:  # 1e999 is JSON, and read as infinity, which is none
        raise BadUpdate("a number that is larger than readers of the metadata know") from None
    objects.write_new(uri, data, assume_absent=True)
    return uri


def with_log_entry(metadata: Mapping[str, Any], previous: Mapping[str, Any], previous_uri: str) -> dict[str, Any]:
    """Return a table's metadata whose log ends with the metadata.json before it, and is as long as the table allows.

    Args:
        previous: the metadata before it.
        previous_uri: where that is.
    """
    entry = {"timestamp-ms": previous.get("last-updated-ms", 0), "metadata-file": previous_uri}
    log = [*(metadata.get("metadata-log") or ()), entry]
    return {**metadata, "metadata-log": log[-_previous_versions(metadata) :]}


def _previous_versions(metadata: Mapping[str, Any]) -> int:
    try:
        return max(1, int((metadata.get("properties") or {}).get(_PREVIOUS_VERSIONS_MAX, _DEFAULT_PREVIOUS_VERSIONS)))
    except (TypeError, ValueError):
        return _DEFAULT_PREVIOUS_VERSIONS


def table_content(metadata: Mapping[str, Any], uri: str) -> Content:
    """Return the catalog's entry for a table's metadata, without id."""
    snapshot_id = metadata.get("current-snapshot-id")
    return Content.of(
        {
            "type": ICEBERG_TABLE,
            "metadataLocation": uri,
            "snapshotId": _NO_SNAPSHOT if snapshot_id is None else snapshot_id,
            "schemaId": metadata.get("current-schema-id", 0),
            "specId": metadata.get("default-spec-id", 0),
            "sortOrderId": metadata.get("default-sort-order-id", 0),
        }
    )


def view_content(metadata: Mapping[str, Any], uri: str) -> Content:
    """Return the catalog's entry for a view's metadata, without id."""
    current = metadata.get("current-version-id", 1)
    versions: dict[Any, Mapping[str, Any]] = {
        entry.get("version-id"): entry for entry in metadata.get("versions") or ()
    }
    return Content.of(
        {
            "type": ICEBERG_VIEW,
            "metadataLocation": uri,
            "versionId": current,
            "schemaId": versions.get(current, {}).get("schema-id", 0),
        }
    )
