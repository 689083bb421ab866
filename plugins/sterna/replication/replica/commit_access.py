"""The right to commit: code that imports this writes to a catalog. Plans, `verify` and `status` may not import it."""

from __future__ import annotations

from sterna.catalog.writer import CatalogWriter
from sterna.replication.replica.region import RegionContext


def writer(context: RegionContext) -> CatalogWriter:
    """Return the catalog that takes commits, to commit to it."""
    return context.ports.writable_primary
