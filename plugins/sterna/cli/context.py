"""What a command works with: credentials, and a region's view of the registry."""

from __future__ import annotations

from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING

from sterna.config.secrets import Secrets, environment_secrets

if TYPE_CHECKING:
    from sterna.replication.replica.region import RegionContext

secrets_override: ContextVar[Secrets | None] = ContextVar("secrets", default=None)


def credentials() -> Secrets:
    """Return what finds credentials in this process."""
    return secrets_override.get() or environment_secrets()


def open_context(registry: Path, region: str) -> RegionContext:
    """Open a region's view of a registry file, with this process's credentials.

    Raises:
        RegistryError: the file is missing or wrong.
        UsageError: there is no such region.
    """
    from sterna.replication.replica.region import open_region
    from sterna.spark.pandas_import import block_pandas

    block_pandas()
    return open_region(registry, region, credentials())
