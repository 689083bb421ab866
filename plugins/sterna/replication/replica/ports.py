"""What a region's context is connected to: its catalog, the catalog that takes commits, and the stores."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from sterna.catalog.nessie.catalog import NessieCatalog, open_nessie
from sterna.catalog.nessie.http import Deadlines
from sterna.catalog.reader import CatalogReader
from sterna.catalog.writer import CatalogWriter
from sterna.config.mapping import Mapping
from sterna.config.registry.model import Region, Registry
from sterna.config.secrets import Secrets

if TYPE_CHECKING:
    from sterna.storage.objects import Objects


class Ports:
    """A region's connections: those that are given, and what the registry names, opened at first use.

    Args:
        registry, region, secrets: as in `RegionContext`.
        catalog: where this region reads.
        primary: where commits go.
        objects: the stores of all locations.
        mapping: the region's mapping of URIs.
    """

    def __init__(
        self,
        registry: Registry,
        region: Region,
        secrets: Secrets,
        *,
        catalog: CatalogWriter | None = None,
        primary: CatalogWriter | None = None,
        objects: Objects | None = None,
        mapping: Mapping | None = None,
    ) -> None:
        self._registry = registry
        self._region = region
        self._secrets = secrets
        self._catalog = catalog
        self._primary = primary
        self._objects = objects
        self._mapping = mapping
        self.cached_primary: Region | None = None
        """The cached result of `primary_region`; None before the first call, and after `close`."""
        self._opened: list[NessieCatalog] = []

    @cached_property
    def mapping(self) -> Mapping:
        """The region's mapping of URIs."""
        return self._mapping or Mapping(self._registry, self._region)

    @property
    def catalog(self) -> CatalogReader:
        """Where this region reads."""
        return self._own_catalog

    @property
    def _own_catalog(self) -> CatalogWriter:
        if self._catalog is None:
            self._catalog = self._track(self._open_own())
        return self._catalog

    def _open_own(self, deadlines: Deadlines | None = None) -> NessieCatalog:
        address = self._region.catalog
        return open_nessie(address.read, address.credential_id, self._secrets, deadlines=deadlines)

    def probe_own(self, reference: str, deadlines: Deadlines) -> None:
        """Read a reference of the region's own catalog by a separate connection, unless one is open already.

        Raises:
            CatalogError: it can't be read within these deadlines.
        """
        if self._catalog is None:
            with self._open_own(deadlines) as catalog:
                catalog.reference(reference)

    @property
    def primary_region(self) -> Region:
        """Whose catalog takes commits: where each region has a copy, that of the newest term; else this one."""
        if not self._registry.has_regional_catalogs:
            return self._region
        if self.cached_primary is None:
            from sterna.postgres.term import find_primary

            self.cached_primary = find_primary(self._registry.regions, self._secrets)
        return self.cached_primary

    @property
    def reads_primary(self) -> bool:
        """Whether this region reads the very catalog that takes commits."""
        return self.primary_region.catalog.write == self._region.catalog.read

    @property
    def primary(self) -> CatalogReader:
        """The catalog that takes commits, for looking: the same in the small."""
        return self.writable_primary

    @property
    def writable_primary(self) -> CatalogWriter:
        """The catalog that takes commits; for `sterna.replication.replica.commit_access` alone."""
        if self._primary is None:
            self._primary = self._own_catalog if self.reads_primary else self._track(self.open_primary())
        return self._primary

    def open_primary(self, deadlines: Deadlines | None = None) -> NessieCatalog:
        """Open a separate connection to the catalog that takes commits; its errors name the region."""
        address = self.primary_region.catalog
        name = (
            f"the primary's Nessie, region {self.primary_region.name},"
            if self._registry.has_regional_catalogs
            else "Nessie"
        )
        return open_nessie(address.write, address.credential_id, self._secrets, deadlines=deadlines, name=name)

    @property
    def objects(self) -> Objects:
        """The stores of all locations, each opened with its own credential."""
        if self._objects is None:
            from sterna.storage.objects import Objects

            self._objects = Objects(self.mapping, self._secrets)
        return self._objects

    def with_objects(self, objects: Objects) -> Ports:
        """Return the same connections with other stores; closing them closes nothing."""
        return self._copy_with(self._own_catalog, self.writable_primary, objects)

    def without_primary(self) -> Ports:
        """Return the same connections with the region's own catalog in place of the primary."""
        return self._copy_with(self._own_catalog, self._own_catalog, self._objects)

    def of_region(self, region: Region) -> Ports:
        """Return another region's stores and mapping over the same catalogs; closing them closes no catalog."""
        ports = Ports(self._registry, region, self._secrets, catalog=self._own_catalog, primary=self.writable_primary)
        ports.cached_primary = self.cached_primary
        return ports

    def with_new_connections(self, objects: Objects | None = None) -> Ports:
        """Return the same with what was opened here to be opened once more; what was given stays.

        Args:
            objects: the stores of all locations; None: the same.
        """
        catalog, primary = (None if used in self._opened else used for used in (self._catalog, self._primary))
        ports = self._copy_with(catalog, primary, self._objects if objects is None else objects)
        ports.cached_primary = None
        return ports

    def close(self) -> None:
        """Close the connections that were opened here, and forget which region is the primary."""
        for catalog in self._opened:
            catalog.close()
            self._catalog = None if self._catalog is catalog else self._catalog
            self._primary = None if self._primary is catalog else self._primary
        self._opened.clear()
        self.cached_primary = None

    def _track(self, catalog: NessieCatalog) -> NessieCatalog:
        self._opened.append(catalog)
        return catalog

    def _copy_with(
        self, catalog: CatalogWriter | None, primary: CatalogWriter | None, objects: Objects | None
    ) -> Ports:
        ports = Ports(
            self._registry,
            self._region,
            self._secrets,
            catalog=catalog,
            primary=primary,
            objects=objects,
            mapping=self.mapping,
        )
        ports.cached_primary = self.cached_primary
        return ports
