"""Which tables of a replica branch have all of their verbatim copies here."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from sterna.catalog.model import NAMESPACE, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.verbatim_copies import verbatim_uri
from sterna.errors import ReferenceNotFound, TableError
from sterna.replication.replica.region import RegionContext

if TYPE_CHECKING:
    from sterna.storage.objects import Objects


@dataclass(frozen=True)
class CopiedTable:
    """A table or view as a replica branch shows it.

    Args:
        name: key name.
        kind: content type.
        uri: its metadata.json on `main`.
        target: the localized one.
        is_complete: whether all of its verbatim copies are here; None where no copy shows that, since the metadata.json
            is this region's own.
    """

    name: str
    kind: str
    uri: str
    target: str
    is_complete: bool | None = None


def read_copied_tables(context: RegionContext, objects: Objects) -> list[CopiedTable]:
    """Return the tables and views of a region's replica branch, and whether their verbatim copies are here.

    Those that continue from a replica since a promotion with tables have none, and are left out.

    Args:
        objects: the stores.

    Raises:
        StoreUnreachable, StoreDenied: the region's own store can't be used.
        CatalogError: the catalog can't be read.
    """
    catalog, branch, mapping = context.primary, context.region.replica_branch, context.mapping
    try:
        head = catalog.reference(branch).hash
    except ReferenceNotFound:
        return []  # nothing is published yet
    shown: dict[Key, CopiedTable] = {}
    for key, content in catalog.entries(branch, head) if head != catalog.no_ancestor() else ():
        target = content.metadata_location or ""
        if content.kind != NAMESPACE and mapping.metadata_version(target) is not None:
            with suppress(TableError):  # another registry made it
                shown[key] = CopiedTable(key_name(key), content.kind, mapping.metadata_origin(target), target)
    copies = {key: copy for key, table in shown.items() if (copy := verbatim_uri(mapping, table.uri))}
    sizes = objects.sizes(set(copies.values())) if copies else {}
    absent = {key for key, copy in copies.items() if sizes[copy] is None}
    moved = _moved_keys(context, absent)
    return [
        replace(table, is_complete=key not in absent if key in copies else None)
        for key, table in shown.items()
        if key not in moved
    ]


def _moved_keys(context: RegionContext, keys: Collection[Key]) -> set[Key]:
    """Return those of some keys that `main` names below a replica root, since a promotion with tables."""
    if not keys:
        return set()
    catalog, below = context.primary, context.mapping.below_replica_root
    contents = catalog.contents(SOURCE_BRANCH, catalog.reference(SOURCE_BRANCH).hash, keys)
    return {key for key, content in contents.items() if below(content.metadata_location or "")}
