"""A region that a process keeps open for hours: its registry file may change meanwhile, and connections may break."""

from __future__ import annotations

from pathlib import Path

from sterna.config.secrets import Secrets
from sterna.errors import RegistryError
from sterna.replication.replica.region import RegionContext, open_region


class ReloadingRegion:
    """An open region that is reopened when its registry file changes.

    A sync by an outdated registry would undo what one by the new registry did: a table that a new rule removes from the
    region would come back.

    Args:
        path: the registry file.
        name: the region.
    """

    def __init__(self, path: str | Path, name: str, secrets: Secrets) -> None:
        self._path = Path(path)
        self._name = name
        self._secrets = secrets
        self._text = b""
        self._context: RegionContext | None = None

    def current(self) -> RegionContext:
        """Return the region as the file has it now.

        Raises:
            RegistryError: the file is missing or wrong.
            UsageError: it has no such region.
        """
        text = self._read()
        if self._context is None or text != self._text:
            self.disconnect()
            self._context, self._text = open_region(self._path, self._name, self._secrets), text
        return self._context

    def disconnect(self) -> None:
        """Close the region: the next use connects, finds the primary, and reads credentials again."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def _read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError as error:
            raise RegistryError(f"can't read the registry {self._path}: {error}") from None
