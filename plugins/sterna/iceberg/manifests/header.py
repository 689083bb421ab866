"""The header of manifests and manifest lists: which format version they have."""

from __future__ import annotations

from sterna.config.limits import Limits
from sterna.errors import Unsupported
from sterna.iceberg.avro.container import Container, open_container
from sterna.iceberg.files import MAX_FORMAT_VERSION


def open_manifest_container(data: bytes, uri: str, file_kind: str, limits: Limits) -> Container:
    """Parse the header of a manifest or a manifest list.

    Args:
        data: the file's bytes.
        uri: its name, for errors.
        file_kind: what kind of file it is, for errors.

    Raises:
        OverLimit, BrokenMetadata: as `open_container`.
        Unsupported: as `open_container`, and a format version that is not localized.
    """
    record_limit = "manifests" if file_kind == "manifest list" else "records"
    container = open_container(data, uri, limits, record_limit=record_limit)
    version = container.metadata.get("format-version", b"1")
    if not version.isdigit():
        raise container.broken("the header's format-version is not a number")
    if int(version[:9]) > MAX_FORMAT_VERSION:
        raise Unsupported(f"{file_kind} of format version {int(version[:9])}", file=uri)
    return container
