"""What a client may not do through a region's address, whatever its commit is otherwise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from sterna.catalog.model import Key, key_name
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.near_places import WRITE_PATHS, Places, address_root, near_folder
from sterna.config.registry.folders import is_state_uri
from sterna.config.registry.model import canonical_prefix, is_inside
from sterna.errors import BadUpdate, Forbidden, NotResident, TableError
from sterna.replication.replica.region import RegionContext

PROTECTED_PREFIX = "sterna."
"""How properties begin that sterna keeps in a table: where a batch, a flow or a change log has come to."""
_REPLACE = "replace"
_FILE_COUNTS = ("added-data-files", "deleted-data-files", "added-delete-files", "removed-delete-files")


@dataclass(frozen=True)
class Rights:
    """What a client may do beyond reading and writing.

    Args:
        expire: remove snapshots, as maintenance does.
        compact: rewrite files of tables that were born in another region.
    """

    expire: bool = False
    compact: bool = False


@dataclass(frozen=True)
class ReservedPlaces:
    """Where in its region no table may be made, and none has its files written.

    Args:
        near_roots: the region's own locations, the present one first: folders of the address and its clients are there.
        inboxes: prefixes of ingestion, in which no file is a table's.
        replica_roots: of the registry: a table around one could have a replica's files removed as orphans.
    """

    near_roots: Sequence[str]
    inboxes: Sequence[str] = ()
    replica_roots: Sequence[str] = ()

    def contain(self, uri: str) -> bool:
        """Return whether a folder may be no table's: it is in one of these places, or around one."""
        folder = canonical_prefix(uri)
        folders = (*map(near_folder, self.near_roots), *map(address_root, self.near_roots))
        kept = map(canonical_prefix, (*folders, *self.inboxes, *self.replica_roots))
        return any(is_inside(folder, one) or is_inside(one, folder) for one in kept) or is_state_uri(f"{uri}/")


def reject_forbidden_updates(updates: Sequence[Mapping[str, Any]], rights: Rights, places: Places | None) -> None:
    """Refuse what only maintenance may do.

    Branches and tags may be dropped, as by any writer of `main`: their snapshots stay until maintenance removes them.

    Args:
        updates: the client's.
        rights: the client's.
        places: of a table that was born elsewhere; None: it was born in this region.

    Raises:
        Forbidden: an update removes snapshots, or compacts, from away, files of another region.
    """
    for update in updates:
        action = update.get("action")
        if not rights.expire and action == "remove-snapshots":
            raise Forbidden("snapshots are removed by maintenance alone", hint="sterna maintenance expire")
        if not rights.compact and places is not None and action == "add-snapshot" and _compacts(update):
            raise Forbidden(
                "the table is compacted in the region that it was born in", hint="sterna maintenance compact"
            )


def _compacts(update: Mapping[str, Any]) -> bool:
    """Return whether a snapshot replaces files by others with the same rows; one that rewrites manifests doesn't."""
    snapshot = update.get("snapshot")
    summary = snapshot.get("summary") if isinstance(snapshot, dict) else None
    if not isinstance(summary, dict) or summary.get("operation") != _REPLACE:
        return False
    return any(str(summary.get(name, "0")) != "0" for name in _FILE_COUNTS)


def reject_protected_properties(
    properties: Mapping[str, Any], removals: Iterable[Any], current: Mapping[str, Any]
) -> None:
    """Refuse a change of what sterna keeps in a table's, view's or namespace's properties.

    Args:
        properties: what is to be set; one with the value that it has is no change.
        removals: the names of what is to be removed.
        current: the present ones.

    Raises:
        Forbidden: one of sterna's own would be set, changed or removed.
    """
    changed = [name for name, value in properties.items() if current.get(name) != value]
    protected = next((name for name in (*changed, *removals) if _is_protected(name)), None)
    if protected is not None:
        raise Forbidden(f"the property {protected} is sterna's own")


def reject_protected_updates(updates: Sequence[Mapping[str, Any]], current: Mapping[str, Any]) -> None:
    """Refuse updates as `reject_protected_properties` does; in a snapshot's summary too, where maintenance keeps its.

    Raises:
        Forbidden: one of sterna's own properties would be set, changed or removed.
    """
    for update in updates:
        properties, removals, snapshot = (update.get(name) for name in ("updates", "removals", "snapshot"))
        reject_protected_properties(
            properties if isinstance(properties, dict) else {}, removals if isinstance(removals, list) else (), current
        )
        summary = snapshot.get("summary") if isinstance(snapshot, dict) else None
        reject_protected_properties(summary if isinstance(summary, dict) else {}, (), {})


def _is_protected(name: object) -> bool:
    return isinstance(name, str) and name.startswith(PROTECTED_PREFIX)


def reject_moved_table(mapping: RegionMapping, uri: str, metadata: Mapping[str, Any]) -> None:
    """Refuse a commit to a table that has continued from a replica since a promotion with tables.

    Its files lie below that replica root, and `gc` keeps there what is reached from metadata.json below the same root.
    The address writes nothing below a replica root.

    Args:
        uri: the table's metadata.json on `main`.
        metadata: its content.

    Raises:
        Forbidden: its metadata.json or its location is below a replica root.
    """
    location = metadata.get("location")
    if any(mapping.below_replica_root(text) for text in (uri, location) if isinstance(text, str)):
        raise Forbidden(
            "the table has continued from a region's replica since a promotion with tables",
            file=uri,
            hint="commit to it on main, in the region whose replica root its location is below",
        )


def reject_replica_uris(mapping: RegionMapping, document: object) -> None:
    """Refuse what would put a URI of a replica on `main`.

    Args:
        document: JSON that is about to be committed.

    Raises:
        BadUpdate: a text in it is a URI below a replica root.
    """
    uri = next((text for text in _texts(document) if mapping.below_replica_root(text)), None)
    if uri is not None:
        raise BadUpdate("a URI of a replica is none of the table's own", file=uri)


def _texts(document: object) -> Iterator[str]:
    if isinstance(document, str):
        yield document
    elif isinstance(document, dict):
        for value in document.values():
            yield from _texts(value)
    elif isinstance(document, (list, tuple)):
        for value in document:
            yield from _texts(value)


def is_replicated(context: RegionContext, key: Key) -> bool:
    """Return whether policies and residency let this region have a table or view."""
    return not context.registry.exclusion_reason(key_name(key), context.region.name)


def require_replicated(context: RegionContext, key: Key) -> None:
    """See that a policy lets this region have a table or view.

    Raises:
        Forbidden: it would have no replica here.
    """
    if reason := context.registry.exclusion_reason(key_name(key), context.region.name):
        raise Forbidden(f"it may not be in {context.region.name}: {reason}", table=key_name(key))


def reject_wider_replication(context: RegionContext, source: Key, destination: Key) -> None:
    """Refuse a new name under which a table or view would come to a region that a policy keeps it from.

    Raises:
        Forbidden: the new name has a replica in a region where the old one has none.
    """
    for region in context.registry.region_names:
        reason = context.registry.exclusion_reason(key_name(source), region)
        if reason and not context.registry.exclusion_reason(key_name(destination), region):
            raise Forbidden(
                f"under the name {key_name(destination)} it would be in {region}: {reason}", table=key_name(source)
            )


def require_readable_everywhere(context: RegionContext, key: Key, uris: Iterable[str]) -> None:
    """See that each region that has a table may have what is written to some places.

    Else a commit from here would hold the table there.

    Args:
        uris: folders that this region's clients write to.

    Raises:
        Forbidden: a residency rule keeps one of them from a region that has the table.
        BadUpdate: it is no place that a table may have.
    """
    registry, name = context.registry, key_name(key)
    places = list(uris)
    for region in registry.regions:
        if registry.exclusion_reason(name, region.name):
            continue
        mapping = RegionMapping(registry, region)
        try:
            for uri in places:
                mapping.locate(uri)
                mapping.require_resident(uri)
        except NotResident as error:
            raise Forbidden(error.message, table=name, file=error.file) from error
        except TableError as error:
            raise BadUpdate(error.message, table=name, file=error.file) from error


def require_own_location(context: RegionContext, reserved: ReservedPlaces, location: object) -> str:
    """Return the location of a table or view that is to be made, without a slash at its end.

    Args:
        reserved: places of the region.
        location: as the client sent it.

    Raises:
        BadUpdate: it isn't in this region, or is a place that the address keeps for itself, or an inbox.
    """
    if not isinstance(location, str):
        raise BadUpdate("the location is no text")
    uri = location.rstrip("/")
    try:
        context.mapping.locate(uri)
    except TableError as error:
        raise BadUpdate(f"a table can't be there: {error.message}", file=uri) from error
    if not is_own_location(context.mapping, reserved, uri):
        raise BadUpdate("a table that is made here has its location in this region's own", file=uri)
    return uri


def is_own_location(mapping: RegionMapping, reserved: ReservedPlaces, uri: str) -> bool:
    """Return whether a table or view may be made at a place, as this region's own.

    Args:
        mapping: of this region.
        reserved: places of the region.
    """
    try:
        is_local = mapping.is_local(uri) and not mapping.below_replica_root(uri)
    except TableError:
        return False  # it is in no location of the registry
    return is_local and not reserved.contain(uri)


def require_own_write_paths(
    context: RegionContext,
    reserved: ReservedPlaces,
    key: Key,
    location: str,
    properties: Mapping[str, Any],
    current: Mapping[str, Any] = MappingProxyType({}),
) -> None:
    """See that a client has a table's files written into the table's own folder, or to where a table may be made.

    Args:
        reserved: places of the region.
        location: the table's.
        properties: what is to be set; one with the value that it has is no change.
        current: the present ones.

    Raises:
        BadUpdate: a folder isn't in this region, or is a place that the address keeps for itself, or an inbox.
        Forbidden: a residency rule keeps a folder from a region that has the table.
    """
    for name in WRITE_PATHS:
        path = properties.get(name)
        if name not in properties or path == current.get(name):
            continue
        is_inner = isinstance(path, str) and is_inside(path, location.rstrip("/")) and ".." not in path.split("/")
        if is_inner and not reserved.contain(str(path)):
            continue
        require_readable_everywhere(context, key, [require_own_location(context, reserved, path)])
