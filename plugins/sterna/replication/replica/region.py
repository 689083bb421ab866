"""What every stage of a sync works with: the registry, one region's view of it, its catalog and its stores."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.catalog.reader import CatalogReader
from sterna.config.mapping import Mapping
from sterna.config.registry.load import parse_registry
from sterna.config.registry.model import Region, Registry
from sterna.config.secrets import Secrets
from sterna.errors import RegistryError, UsageError
from sterna.replication.replica.ports import Ports

if TYPE_CHECKING:
    from sterna.storage.objects import Objects

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RegionContext:
    """One region, ready to be planned, synced or inspected.

    Its catalog can't commit; code that commits imports `sterna.replication.replica.commit_access`.

    Args:
        secrets: finds a credential by its id.
        ports: its connections.
        run: URI of the folder of the run that it is opened for; "" where nothing may be written.
    """

    registry: Registry
    region: Region
    secrets: Secrets
    ports: Ports = field(repr=False, compare=False)
    run: str = ""

    @classmethod
    def of(cls, registry: Registry, region: Region, secrets: Secrets) -> RegionContext:
        """Return a region with the connections that its registry names; they are opened at first use."""
        return cls(registry, region, secrets, Ports(registry, region, secrets))

    @property
    def mapping(self) -> Mapping:
        """The region's mapping of URIs."""
        return self.ports.mapping

    @property
    def catalog(self) -> CatalogReader:
        """Where this region reads."""
        return self.ports.catalog

    @property
    def primary(self) -> CatalogReader:
        """The catalog that takes commits, for looking: the same in the small."""
        return self.ports.primary

    @property
    def objects(self) -> Objects:
        """The stores of all locations, each opened with its own credential."""
        return self.ports.objects

    def without_primary(self) -> RegionContext:
        """Return this region with its own copy in place of the primary: for reads while that is down."""
        return replace(self, ports=self.ports.without_primary())

    def of_region(self, region: Region) -> RegionContext:
        """Return another region's view: its stores and mapping, over this one's catalogs."""
        return replace(self, region=region, ports=self.ports.of_region(region), run="")

    def with_new_connections(self, objects: Objects | None = None) -> RegionContext:
        """Return this region with its own connections to the catalog, which can be closed separately.

        Args:
            objects: the stores of all locations; None: the same.
        """
        return replace(self, ports=self.ports.with_new_connections(objects))

    def with_read_cache(self, run: str) -> RegionContext:
        """Return this region with stores that keep, below a run's folder, what they read of other regions."""
        return replace(self, ports=self.ports.with_objects(self.objects.with_read_cache(run)), run=run)

    def with_verbatim_copies(self) -> RegionContext:
        """Return this region with stores that read verbatim copies where another region's store can't be used."""
        return replace(self, ports=self.ports.with_objects(self.objects.with_verbatim_copies()))

    def with_large_read_callback(self, on_large_read: Callable[[str, int], None]) -> RegionContext:
        """Return this region with stores that call back before a large file is read or parsed (see `Objects`)."""
        return replace(self, ports=self.ports.with_objects(self.objects.with_large_file_hook(on_large_read)))

    def __enter__(self) -> RegionContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the catalog; the context may be used again."""
        self.ports.close()


def open_region(path: str | Path, region: str, secrets: Secrets) -> RegionContext:
    """Read a registry file and take one region's view of it; touches no network.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: there is no such region; the message names those that exist.
    """
    registry = read_registry(path)
    return RegionContext.of(registry, region_named(registry, region, path), secrets)


def region_named(registry: Registry, name: str, path: str | Path) -> Region:
    """Return a region of a registry.

    Args:
        registry: the registry.
        name: the region's name.
        path: the registry's file, for the error.

    Raises:
        UsageError: there is no such region; the message names those that exist.
    """
    if name not in registry.region_names:
        raise UsageError(f"no region {name!r} in {path}: there are {', '.join(registry.region_names)}")
    return registry.region(name)


def read_registry(path: str | Path) -> Registry:
    """Read a registry file, YAML or JSON.

    Raises:
        RegistryError: the file is missing, unreadable or wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(
            f"can't read the registry {path}: {error}",
            hint="name it with --registry, STERNA_REGISTRY or [sterna] registry",
        ) from None
    return parse_registry(text, str(path))
