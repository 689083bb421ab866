"""Which tables of a replica branch have all of their verbatim copies here.

That is what the marker of a version says. A sync writes it once it has seen a copy of each file that the version needs.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sterna.catalog.model import NAMESPACE, Content, Key, key_name
from sterna.config.registry.model import SOURCE_BRANCH
from sterna.config.verbatim_copies import marker_uri
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
    """

    name: str
    kind: str
    uri: str
    target: str


def read_copied_tables(context: RegionContext, objects: Objects, *, all_tables: bool = False) -> list[CopiedTable]:
    """Return the tables and views of a region's replica branch some of whose verbatim copies may be missing.

    Those that continue from a replica since a promotion with tables have none, and are left out.

    Args:
        objects: the stores.
        all_tables: return those with a marker, too.

    Raises:
        StoreUnreachable, StoreDenied: the region's own store can't be used.
        CatalogError: the catalog can't be read.
    """
    catalog, branch, mapping = context.primary, context.region.replica_branch, context.mapping
    try:
        head = catalog.reference(branch).hash
    except ReferenceNotFound:
        return []  # nothing is published yet
    shown: dict[Key, Content] = {}
    for key, content in catalog.entries(branch, head) if head != catalog.no_ancestor() else ():
        if content.kind != NAMESPACE and mapping.metadata_version(content.metadata_location or "") is not None:
            shown[key] = content
    if not all_tables:
        complete = complete_targets(context, objects, [str(content.metadata_location) for content in shown.values()])
        shown = {key: content for key, content in shown.items() if content.metadata_location not in complete}
    moved = _moved_keys(context, shown.keys())
    tables = []
    for key, content in shown.items():
        target = str(content.metadata_location)
        with suppress(TableError):  # another registry made it
            if key not in moved:
                tables.append(CopiedTable(key_name(key), content.kind, mapping.metadata_origin(target), target))
    return tables


def complete_targets(context: RegionContext, objects: Objects, targets: Collection[str]) -> set[str]:
    """Return those of some localized metadata.json whose versions have all of their verbatim copies here.

    Args:
        objects: the stores.

    Raises:
        StoreUnreachable, StoreDenied: the region's own store can't be used.
    """
    markers = {target: marker for target in targets if (marker := marker_uri(context.mapping, target))}
    sizes = objects.sizes(set(markers.values())) if markers else {}
    return {target for target, marker in markers.items() if sizes[marker] is not None}


def _moved_keys(context: RegionContext, keys: Collection[Key]) -> set[Key]:
    """Return those of some keys that `main` names below a replica root, since a promotion with tables."""
    if not keys:
        return set()
    catalog, below = context.primary, context.mapping.below_replica_root
    contents = catalog.contents(SOURCE_BRANCH, catalog.reference(SOURCE_BRANCH).hash, keys)
    return {key for key, content in contents.items() if below(content.metadata_location or "")}
