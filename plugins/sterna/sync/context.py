"""What every stage of a sync works with: the registry, one region's view of it, its catalog and its stores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.edges.catalog import Catalog
from sterna.edges.nessie import NessieCatalog, open_nessie
from sterna.edges.secrets import Secrets
from sterna.errors import RegistryError, UsageError
from sterna.registry.load import parse_registry
from sterna.registry.mapping import Mapping
from sterna.registry.model import Region, Registry

if TYPE_CHECKING:
    from sterna.edges.objects import Objects

Progress = Callable[[str], None]


@dataclass(frozen=True)
class Context:
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
    def primary(self) -> Catalog:
        """Where commits go: the same in the small; where each region has a copy of the catalog, the one whose epoch is the newest."""
        region = self.region
        if self.registry.has_copies:
            from sterna.edges.epoch import find_primary

            region = find_primary(self.registry.regions, self.secrets)
        address = region.catalog
        return (
            self.catalog if address.write == self.region.catalog.read else open_nessie(address.write, address.credential_id, self.secrets)
        )

    @cached_property
    def objects(self) -> Objects:
        """The stores of all locations, each opened with its own credential."""
        from sterna.edges.objects import Objects

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

    def __enter__(self) -> Context:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections to the catalog; the context may be used again."""
        for name in ("catalog", "primary"):
            catalog = vars(self).pop(name, None)
            if isinstance(catalog, NessieCatalog):
                catalog.close()


def open_context(path: str | Path, region: str, secrets: Secrets) -> Context:
    """Read a registry file and take one region's view of it; touches no network.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: there is no such region; the message names those that exist.
    """
    registry = read_registry(path)
    if region not in registry.region_names:
        raise UsageError(f"no region {region!r} in {path}: there are {', '.join(registry.region_names)}")
    return Context(registry, registry.region(region), secrets)


def read_registry(path: str | Path) -> Registry:
    """Read a registry file, YAML or JSON.

    Raises:
        RegistryError: the file is missing, unreadable or wrong.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(
            f"can't read the registry {path}: {error}", hint="name it with --registry, STERNA_REGISTRY or [sterna] registry"
        ) from None
    return parse_registry(text, str(path))
