"""A region that a process keeps open for hours: its registry file may change meanwhile, and connections may break."""

from __future__ import annotations

from pathlib import Path

from sterna.config.secrets import Secrets
from sterna.errors import RegistryError
from sterna.replication.replica.region import RegionContext, open_region


class ReloadingRegion:
    """A region's view of a registry file, opened anew when the file says something else.

    Whoever went on by an old registry would undo what a sync by the new one did: a table that a new rule takes off the
    region would come back.

    Args:
        path: the registry file.
        name: the region.
        secrets: finds credentials.
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
        """Close what is open: the next look connects anew, finds the primary anew, and reads credentials anew."""
        if self._context is not None:
            self._context.close()
            self._context = None

    def _read(self) -> bytes:
        try:
            return self._path.read_bytes()
        except OSError as error:
            raise RegistryError(f"can't read the registry {self._path}: {error}") from None
