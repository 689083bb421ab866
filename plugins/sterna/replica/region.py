"""What every stage of a sync works with: the registry, one region's view of it, its catalog and its stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.catalog.model import Catalog
from sterna.edges.nessie.catalog import NessieCatalog, open_nessie
from sterna.edges.nessie.http import Deadlines
from sterna.edges.secrets import Secrets
from sterna.errors import RegistryError, UsageError
from sterna.registry.load import parse_registry
from sterna.registry.mapping import Mapping
from sterna.registry.model import Region, Registry

if TYPE_CHECKING:
    from sterna.edges.stores.objects import Objects

Progress = Callable[[str], None]


@dataclass(frozen=True)
class RegionContext:
    """One region, ready to be planned, synced or looked at.

    Args:
        registry: the whole registry.
        region: this region.
        secrets: finds a credential by its id.
    """

    registry: Registry
    region: Region
    secrets: Secrets

    @cached_property
    def mapping(self) -> Mapping:
        """The region's mapping of URIs."""
        return Mapping(self.registry, self.region)

    @cached_property
    def catalog(self) -> Catalog:
        """Where this region reads."""
        return open_nessie(self.region.catalog.read, self.region.catalog.credential_id, self.secrets)

    @cached_property
    def primary_region(self) -> Region:
        """Whose catalog takes commits: where each region has a copy, that of the newest epoch.

        Else this region's says where to write.
        """
        if not self.registry.has_copies:
            return self.region
        from sterna.edges.postgres.epoch import find_primary

        return find_primary(self.registry.regions, self.secrets)

    @cached_property
    def primary(self) -> Catalog:
        """Where commits go: the same in the small."""
        return self.catalog if self.reads_primary else self.open_primary()

    @property
    def reads_primary(self) -> bool:
        """Whether this region reads the very catalog that takes commits."""
        return self.primary_region.catalog.write == self.region.catalog.read

    def open_primary(self, deadlines: Deadlines | None = None) -> NessieCatalog:
        """Open a connection of one's own to the catalog that takes commits; its errors say whose it is."""
        address = self.primary_region.catalog
        name = f"the primary's Nessie, region {self.primary_region.name}," if self.registry.has_copies else "Nessie"
        return open_nessie(address.write, address.credential_id, self.secrets, deadlines=deadlines, name=name)

    def without_primary(self) -> None:
        """Ask the region's own copy from now on whatever the primary would be asked.

        For looking, while the primary is dark.
        """
        vars(self)["primary"] = self.catalog

    @cached_property
    def objects(self) -> Objects:
        """The stores of all locations, each opened with its own credential."""
        from sterna.edges.stores.objects import Objects

        return Objects(self.mapping, self.secrets)

    @contextmanager
    def fetching(self, run: str) -> Iterator[None]:
        """Let the objects keep, below a run's folder, what they read of other regions meanwhile."""
        plain = self.objects
        vars(self)["objects"] = plain.fetching(run)
        try:
            yield
        finally:
            vars(self)["objects"] = plain

    def __enter__(self) -> RegionContext:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the catalog; the context may be used again."""
        vars(self).pop("primary_region", None)
        for name in ("catalog", "primary"):
            catalog = vars(self).pop(name, None)
            if isinstance(catalog, NessieCatalog):
                catalog.close()


def open_region(path: str | Path, region: str, secrets: Secrets) -> RegionContext:
    """Read a registry file and take one region's view of it; touches no network.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: there is no such region; the message names those that exist.
    """
    registry = read_registry(path)
    if region not in registry.region_names:
        raise UsageError(f"no region {region!r} in {path}: there are {', '.join(registry.region_names)}")
    return RegionContext(registry, registry.region(region), secrets)


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
