"""Where a table's files are, in the region's own stores: what clients without keys of their own may read and write.

Files below a replica root belong to a table by their origin. No client writes there, nor in folders of sterna's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sterna.catalog.model import Key, key_name
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.near_places import (
    accepted_folders,
    address_root,
    folder_uuid,
    near_folder,
    near_roots,
    region_places,
    table_near_places,
)
from sterna.config.registry.folders import is_state_uri
from sterna.config.registry.model import is_inside
from sterna.config.sections.model import Services
from sterna.errors import Forbidden, TableError
from sterna.serving.rest_catalog.client_files import write_roots
from sterna.serving.rest_catalog.new_locations import new_location_prefix
from sterna.serving.rest_catalog.overlay import with_own_places
from sterna.serving.rest_catalog.rules import ReservedPlaces

MANIFEST_ENDING = ".avro"
_UUID_FOLDER = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}/")


@dataclass(frozen=True)
class TableFolders:
    """The folders of one table, in the registry's spelling.

    Args:
        origins: of its files, as `main` names them: in whichever region.
        written: that clients of this region write to.
        scratch: where clients write manifests and lists, which `main` never names; "" for none.
        near: folders that have a folder for each table: a table whose own location is around one has no files in it.
        new_prefix: of a table that isn't there yet: a folder is its own that is named by this and a UUID.
    """

    origins: tuple[str, ...]
    written: tuple[str, ...] = ()
    scratch: str = ""
    near: tuple[str, ...] = ()
    new_prefix: str = ""

    def contains(self, origin: str) -> bool:
        """Return whether a file, or the names with a prefix, are the table's, by the origin."""
        return self._is_new(origin) or any(self._is_in(folder, origin) for folder in self.origins)

    def is_written(self, uri: str) -> bool:
        """Return whether clients of this region write such a file of the table."""
        return self._is_new(uri) or any(self._is_in(folder, uri) for folder in self.written)

    def overlaps(self, prefix: str) -> bool:
        """Return whether files of the table may have a prefix."""
        return any(folder.startswith(prefix) for folder in self.origins)

    def _is_new(self, uri: str) -> bool:
        if not self.new_prefix or not uri.startswith(self.new_prefix) or is_state_uri(uri):
            return False
        is_near = any(is_inside(uri, near) for near in self.near)
        return not is_near and _UUID_FOLDER.match(uri, len(self.new_prefix)) is not None

    def _is_in(self, folder: str, uri: str) -> bool:
        if not uri.startswith(f"{folder}/") or (is_state_uri(uri) and not is_state_uri(f"{folder}/")):
            return False
        return all(is_inside(folder, near) for near in self.near if is_inside(uri, near))


@dataclass(frozen=True)
class NearRoots:
    """The locations below which regions have, or had, a folder for each table: writers in `near`, addresses beside it.

    Args:
        own: this region's, the present one of its address first.
        foreign: other regions'.
        inboxes: prefixes of all regions' ingestion, in the registry's spelling: no file in them is a table's.
    """

    own: tuple[str, ...]
    foreign: tuple[str, ...] = ()
    inboxes: tuple[str, ...] = ()


def all_near_roots(mapping: RegionMapping, services: Services) -> NearRoots:
    """Return the locations of all regions.

    Args:
        mapping: of this region.
        services: the services file.
    """
    others = (region for region in mapping.registry.regions if region.name != mapping.region.name)
    foreign = (root for region in others for root in near_roots(RegionMapping(mapping.registry, region), services))
    inboxes = _spelled(mapping, services.inbox_prefixes)
    return NearRoots(near_roots(mapping, services), tuple(dict.fromkeys(foreign)), inboxes)


def table_folders(mapping: RegionMapping, roots: NearRoots, key: Key, metadata: Mapping[str, Any]) -> TableFolders:
    """Return the folders of a table.

    Clients write where the address has them write, or had them: they may have been started with an earlier location.
    A whole location is no table's to write to, whatever place `main` has for it.

    Args:
        mapping: of this region.
        roots: of all regions.
        key: the table's.
        metadata: as the replica branch has it.
    """
    name, every_root = key_name(key), (*roots.own, *roots.foreign)
    places, main = region_places(mapping, roots.own[0], metadata), with_own_places(metadata, mapping)
    near = [table_near_places(mapping, root, metadata).location for root in roots.own]
    written = _spelled(mapping, write_roots(main, places, near))
    prefixes = {location.prefix for location in mapping.registry.locations}
    uuid = folder_uuid(mapping, metadata, "table-uuid")
    regional = (
        *accepted_folders(mapping, every_root, metadata, name),
        *(f"{address_root(root)}/{uuid}" for root in every_root),
    )
    return TableFolders(
        _spelled(mapping, (*write_roots(main, None), *written, *regional)),
        tuple(folder for folder in written if folder not in prefixes),
        _scratch_folder(mapping, roots, metadata, main),
        _near_folders(mapping, every_root),
    )


def _scratch_folder(
    mapping: RegionMapping, roots: NearRoots, metadata: Mapping[str, Any], main: Mapping[str, Any]
) -> str:
    """Return the folder of clients' manifests, "" where a native writer of `main` may have put its own there."""
    scratch = table_near_places(mapping, roots.own[0], metadata).metadata_path
    if any(is_inside(scratch, root) for root in write_roots(main, None)):
        return ""
    return "".join(_spelled(mapping, [scratch]))


def new_table_folders(mapping: RegionMapping, roots: NearRoots, key: Key) -> TableFolders:
    """Return the folders of a table that isn't there yet, as a writer stages it.

    Args:
        mapping: of this region.
        roots: of all regions.
        key: the table's.
    """
    prefix = new_location_prefix(mapping, ReservedPlaces(roots.own, roots.inboxes), key)
    return TableFolders((), near=_near_folders(mapping, roots.own), new_prefix=prefix)


def _near_folders(mapping: RegionMapping, roots: Iterable[str]) -> tuple[str, ...]:
    """Return the folders of some locations that have a folder for each table."""
    return _spelled(mapping, map(near_folder, roots))


def _spelled(mapping: RegionMapping, folders: Iterable[str]) -> tuple[str, ...]:
    """Return folders in the spelling that the registry has for their locations, without those that are in none."""
    spelled: dict[str, None] = {}
    for folder in folders:
        try:
            place = mapping.locate(folder.rstrip("/"))
        except TableError:
            continue
        spelled[f"{place.location.prefix}/{place.path}".rstrip("/")] = None
    return tuple(spelled)


@dataclass(frozen=True)
class FolderAccess:
    """What one client may do in the region's stores for one table.

    Args:
        mapping: of this region.
        folders: of the table.
        hidden: those of tables that the client may not see.
        may_write: by its role.
        inboxes: prefixes of ingestion.
        is_restricted: some tables may be kept from the client, whichever there are now: of copies, it has those alone
            that are of the table's own folders.
    """

    mapping: RegionMapping
    folders: TableFolders
    hidden: tuple[TableFolders, ...] = ()
    may_write: bool = False
    inboxes: tuple[str, ...] = ()
    is_restricted: bool = False

    def require_readable(self, uri: str) -> None:
        """See that the client may read a file.

        Raises:
            Forbidden: it may not.
        """
        origin, is_copy = self._origin(uri)
        self._reject_others(uri, origin)
        # A copy's origin may be anywhere: files are added to tables from elsewhere, and tables have moved.
        if not self.folders.contains(origin) and (not is_copy or self.is_restricted):
            raise Forbidden("the file is in no folder of this table", file=uri)

    def require_listable(self, prefix: str) -> None:
        """See that the client may read the names of files.

        Args:
            prefix: how their URIs begin.

        Raises:
            Forbidden: it may not.
        """
        origin, _ = self._origin(prefix)
        if not self.folders.contains(origin):
            raise Forbidden("names are listed in a table's own folders alone", file=prefix)
        if any(folders.contains(origin) or folders.overlaps(origin) for folders in self.hidden):
            raise Forbidden("the folder has files of a table that the client may not see", file=prefix)
        if any(is_inside(origin, inbox) or inbox.startswith(origin) for inbox in self.inboxes):
            raise Forbidden("the folder has an inbox of ingestion", file=prefix)

    def require_writable(self, uri: str) -> None:
        """See that the client may write a file that isn't there yet.

        Raises:
            Forbidden: it may not.
        """
        if not self.may_write:
            raise Forbidden("the token's roles may not write", file=uri)
        if self.mapping.below_replica_root(uri) or is_state_uri(uri):
            raise Forbidden("no client writes below a replica root, or in sterna's own folders", file=uri)
        if not self.folders.is_written(uri):
            raise Forbidden("the file is in no folder that clients of this table write to", file=uri)
        self._reject_others(uri, uri)

    def require_deletable(self, uri: str) -> None:
        """See that the client may delete a file: manifests and lists of its own, which `main` never names.

        Raises:
            Forbidden: it may not.
        """
        self.require_writable(uri)
        scratch = self.folders.scratch
        if not scratch or not uri.startswith(f"{scratch}/") or not uri.endswith(MANIFEST_ENDING):
            raise Forbidden("files of a table are removed by maintenance alone", file=uri)

    def _reject_others(self, uri: str, origin: str) -> None:
        """Refuse a file of another table that the client may not see, or of none, wherever this one says it is.

        Raises:
            Forbidden: it is one.
        """
        if any(folders.contains(origin) for folders in self.hidden):
            raise Forbidden("the file is in a folder of a table that the client may not see", file=uri)
        if any(is_inside(origin, inbox) for inbox in self.inboxes):
            raise Forbidden("the file is in an inbox of ingestion, where no table's are", file=uri)

    def _origin(self, uri: str) -> tuple[str, bool]:
        """Return the origin of one of this region's files, and whether it is a copy: then of what may be here.

        It is in the registry's spelling, as all folders are.
        """
        if not self.mapping.below_replica_root(uri):
            if not self.mapping.is_local(uri.rstrip("/")):
                raise Forbidden("the file is in another region's store", file=uri)
            return uri, False
        if not uri.startswith(f"{self.mapping.region.replica_root}/"):
            raise Forbidden("the file is below another region's replica root", file=uri)
        try:
            self.mapping.require_resident(uri)
            place = self.mapping.locate(self.mapping.origin_uri(uri).rstrip("/"))
        except TableError as error:
            raise Forbidden(error.message, file=uri) from error
        origin = f"{place.location.prefix}/{place.path}".rstrip("/")
        return f"{origin}/" if uri.endswith("/") else origin, True
