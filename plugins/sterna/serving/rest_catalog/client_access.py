"""What clients without keys of their own may do in the region's stores: by the table, and by what rules show them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Final
from urllib.parse import quote

from sterna.catalog.model import Key
from sterna.config.mapping import Mapping as RegionMapping
from sterna.config.registry.credential import fileio_properties
from sterna.config.sections.model import Services
from sterna.errors import NoSuchTable, TableError
from sterna.replication.replica.past_replica import PAST_PREFIX
from sterna.serving.rest_catalog.model import LoadedTable
from sterna.serving.rest_catalog.names import NAMESPACE_SEPARATOR
from sterna.serving.rest_catalog.reader import Readable, ReplicaCatalog
from sterna.serving.rest_catalog.table_folders import (
    FolderAccess,
    NearRoots,
    TableFolders,
    all_near_roots,
    new_table_folders,
    table_folders,
)

_MAX_KEPT_TABLES: Final = 50_000  # whose folders are in memory
_MAX_KEPT_SELECTIONS: Final = 1000  # sets of roles for which it is in memory what is hidden

_State = tuple[str, int, str]  # the replica branch's head, what this process has changed since, and the head of `main`


class ClientAccess:
    """The access of one region's clients; may be used by any number of threads.

    Args:
        catalog: the reading side of the region's address.
        roots: of all regions.
    """

    def __init__(self, catalog: ReplicaCatalog, roots: NearRoots) -> None:
        self.catalog = catalog
        self._roots = roots
        self._folders = lru_cache(_MAX_KEPT_TABLES)(self._read_folders)
        self._selected: dict[frozenset[str] | None, tuple[_State, tuple[tuple[Key, TableFolders], ...]]] = {}

    def of_table(self, readable: Readable, key: Key, may_write: bool, version: str | None = None) -> FolderAccess:
        """Return what a client may do for a table; for one that isn't there yet, as a writer stages it, in its folder.

        Args:
            readable: what the client may see.
            key: the table's.
            may_write: by the client's role.
            version: of `main` that the client reads, as `ReplicaCatalog.as_of` takes it; None: the newest. No other is
                written.

        Raises:
            NoSuchTable, NoSuchVersion: the client may see none.
            StoreError, TableError: the metadata of the table, or of one that is hidden from the client, can't be read.
        """
        catalog = self.catalog if version is None else self.catalog.as_of(version)
        may_write = may_write and version is None
        try:
            folders = self._folders(key, str(catalog.require_table(readable, key).metadata_location))
        except NoSuchTable:
            if not may_write or not readable.table(key):
                raise
            folders = new_table_folders(self.catalog.mapping, self._roots, key)
        return self._folder_access(readable, folders, may_write)

    def of_loaded(self, readable: Readable, key: Key, loaded: LoadedTable, may_write: bool) -> FolderAccess:
        """Return what a client may do for a table that was made just now, or is staged.

        Args:
            readable: what the client may see.
            key: the table's.
            loaded: as it is here now.
            may_write: by the client's role.

        Raises:
            StoreError, TableError: the metadata of the table, or of one that is hidden from the client, can't be read.
        """
        if loaded.metadata_location:
            folders = self._folders(key, loaded.metadata_location)
        else:
            folders = table_folders(self.catalog.mapping, self._roots, key, loaded.metadata)
        return self._folder_access(readable, folders, may_write)

    def path(self, key: Key, version: str | None = None) -> str:
        """Return the path of a table's routes, without a slash before it.

        Args:
            key: the table's.
            version: as in `of_table`.
        """
        prefix = self.catalog.mapping.region.name if version is None else f"{PAST_PREFIX}{quote(version, safe='')}"
        namespace, name = (
            quote(text, safe="", errors="surrogatepass") for text in (NAMESPACE_SEPARATOR.join(key[:-1]), key[-1])
        )
        return f"v1/{prefix}/namespaces/{namespace}/tables/{name}"

    def store_properties(self) -> dict[str, str]:
        """Return the properties of the region's own store as Iceberg's FileIO names them, without keys."""
        settings = self.catalog.settings
        location = self.catalog.mapping.locate(settings.location).location
        return {**fileio_properties(location, None), **settings.defaults}

    def _read_folders(self, key: Key, metadata_uri: str) -> TableFolders:
        # The content of a metadata.json is a function of its URI.
        metadata = self.catalog.read_metadata(metadata_uri)
        return table_folders(self.catalog.mapping, self._roots, key, metadata)

    def other_tables(self, key: Key) -> tuple[TableFolders, ...]:
        """Return the folders of all tables but one, as this region has them, and as `main` has them here.

        Args:
            key: the one's.

        Raises:
            StoreError, TableError: the metadata of one can't be read.
        """
        return tuple(folders for other, folders in self._select_folders(None, lambda _key: True) if other != key)

    def _folder_access(self, readable: Readable, folders: TableFolders, may_write: bool) -> FolderAccess:
        is_restricted = not readable.access.shows_all(readable.roles)
        hidden = self._hidden_folders(readable) if is_restricted else ()
        return FolderAccess(self.catalog.mapping, folders, hidden, may_write, self._roots.inboxes, is_restricted)

    def _hidden_folders(self, readable: Readable) -> tuple[TableFolders, ...]:
        """Return the folders of tables that a client may not see, those that were born here and are served nowhere
        among them.
        """
        selected = self._select_folders(frozenset(readable.roles), lambda key: not readable.table(key))
        return tuple(folders for _, folders in selected)

    def _select_folders(
        self, kept_key: frozenset[str] | None, is_selected: Callable[[Key], bool]
    ) -> tuple[tuple[Key, TableFolders], ...]:
        """Return the folders of some tables, with their keys; what was selected is kept until something changes.

        Of `main` those count whose metadata is in this region: others write nothing here, or the branch has them.
        """
        index, mapping = self.catalog.index, self.catalog.mapping
        generation = index.recent.generation  # before the branch is read, so that no later change is missed
        branch, main = index.read(), self.catalog.main_index.read()
        state = branch.hash, generation, main.hash
        kept = self._selected.get(kept_key)
        if kept is not None and kept[0] == state:
            return kept[1]
        uris = {(key, branch.contents[key].metadata_location): None for key in branch.tables}
        on_main = ((key, main.contents[key].metadata_location) for key in main.tables)
        uris |= {(key, uri): None for key, uri in on_main if uri and _is_local(mapping, uri)}
        folders = tuple((key, self._folders(key, uri)) for key, uri in uris if uri and is_selected(key))
        if len(self._selected) >= _MAX_KEPT_SELECTIONS:
            self._selected.clear()
        self._selected[kept_key] = state, folders
        return folders


def _is_local(mapping: RegionMapping, uri: str) -> bool:
    try:
        return mapping.is_local(uri)
    except TableError:  # in no location of the registry
        return False


def open_client_access(catalog: ReplicaCatalog, services: Services) -> ClientAccess:
    """Return the access of the clients of a region's address; nothing is read yet.

    Args:
        catalog: the reading side.
        services: the services file.
    """
    return ClientAccess(catalog, all_near_roots(catalog.mapping, services))
