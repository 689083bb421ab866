"""What a command works with: credentials, and a region's view of the registry."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.edges.secrets import Secrets, environment_secrets

if TYPE_CHECKING:
    from sterna.replica.region import RegionContext

finder: ContextVar[Secrets | None] = ContextVar("secrets", default=None)


def credentials() -> Secrets:
    """Return what finds credentials in this process."""
    return finder.get() or environment_secrets()


def open_context(registry: Path, region: str) -> RegionContext:
    """Open a region's view of a registry file, with this process's credentials.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: there is no such region.
    """
    from sterna.edges.spark.pandas_import import leave_pandas_out
    from sterna.replica.region import open_region

    leave_pandas_out()
    return open_region(registry, region, credentials())
