"""The header of manifests and manifest lists: which format version they have."""

from __future__ import annotations

from sterna.errors import Unsupported
from sterna.iceberg.avro.container import Container, open_container
from sterna.iceberg.files import NEWEST_FORMAT
from sterna.limits import Limits


def open_iceberg(data: bytes, uri: str, what: str, limits: Limits) -> Container:
    """Parse the header of a manifest or a manifest list.

    Args:
        data: the whole file.
        uri: its name, for errors.
        what: what kind of file it is, for errors.
        limits: of the region.

    Raises:
        OverLimit, BrokenMetadata: as `open_container`.
        Unsupported: as `open_container`, and a format version that is not localized.
    """
    counted = "manifests" if what == "manifest list" else "records"
    container = open_container(data, uri, limits, counted=counted)
    version = container.metadata.get("format-version", b"1")
    if not version.isdigit():
        raise container.broken("the header's format-version is not a number")
    if int(version[:9]) > NEWEST_FORMAT:
        raise Unsupported(f"{what} of format version {int(version[:9])}", file=uri)
    return container
