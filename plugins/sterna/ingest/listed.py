"""Files that others put into a folder: each becomes a drop, once, and stays where it is.

What it is known by is its name, size and time: a file that is written over is another one.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from sterna.edges.stores.writing import read_file
from sterna.errors import BadDrop, DropOverLimit, KeyReused, printable
from sterna.ingest.check import check
from sterna.ingest.inbox import Sent
from sterna.ingest.model import Format, Lane, channel_name
from sterna.ingest.region import RegionIngest
from sterna.services.ingest import ListedPrefix

log = logging.getLogger(__name__)
CHANNEL = "listed"
_FORMATS = {
    ".parquet": Format.PARQUET,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".arrows": Format.ARROW,
}
_MOST_KNOWN = 1_000_000


@dataclass
class Listed:
    """What a look at a folder found.

    Args:
        taken: files that became drops.
        refused: files that are none.
        full: the tenant's backlog is full, and files are left for the next look.
    """

    taken: int = 0
    refused: int = 0
    full: bool = False


@dataclass
class ListedFolder:
    """A folder in which others put files.

    Args:
        ingest: the region's.
        setting: which folder, for which table.
    """

    ingest: RegionIngest
    setting: ListedPrefix
    _seen: set[str] = field(default_factory=set)

    def look(self) -> Listed:
        """Take what is new.

        Raises:
            StoreUnreachable, StoreDenied, DatabaseUnreachable, DatabaseRefused: as far as it came; the next look goes
                on.
        """
        found = Listed()
        for uri, size, changed in self.ingest.objects.list(self.setting.prefix):
            format, key = _FORMATS.get(PurePosixPath(uri).suffix.lower()), _key(uri, size, changed)
            if format is None or key in self._seen:
                continue
            if self._is_full(size):
                found.full = True
                break
            if not self._take(uri, (size, changed), key, format, found):
                continue
            if len(self._seen) < _MOST_KNOWN:  # the tracker knows the others
                self._seen.add(key)
        return found

    def _take(self, uri: str, listed: tuple[int, datetime], key: str, format: Format, found: Listed) -> bool:
        """Take a file, or refuse it; return whether it is the one that was listed: else the next look takes it."""
        try:
            taken = self._taken(uri, listed, key, format)
        except (BadDrop, DropOverLimit, KeyReused) as error:
            found.refused += 1
            log.warning("a listed file is refused: %s: %s: %s", printable(uri), type(error).__name__, error.message)
            return True
        found.taken += bool(taken)
        return taken is not None

    def _taken(self, uri: str, listed: tuple[int, datetime], key: str, format: Format) -> bool | None:
        lane = self._lane()
        limits = self.ingest.settings.tenants[lane.tenant].limits
        most = limits.file if format is Format.PARQUET else limits.body
        if listed[0] > most:
            raise DropOverLimit(f"{listed[0]} bytes, {most} are allowed")
        if self.ingest.inbox.knows(lane, key):
            return False
        with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
            path = Path(folder) / "body"
            # Taken under the name of what it was before, it would be taken again under its own.
            if not (digest := read_file(self.ingest.objects, uri, path, listed)):
                return None
            rows = check(format, path, limits)
            sent = Sent(lane, key, "", format, path, path.stat().st_size, rows, digest)
            return self.ingest.inbox.take(sent)[1]

    def _lane(self) -> Lane:
        table = self.setting.table
        tenant = self.ingest.settings.tenant_of(table) or ""
        return Lane(tenant, table, channel_name(self.ingest.name, tenant, CHANNEL))

    def _is_full(self, size: int) -> bool:
        tenant = self._lane().tenant
        return self.ingest.tracker.usage(tenant).backlog + size > self.ingest.settings.tenants[tenant].limits.backlog


def _key(uri: str, size: int, changed: datetime) -> str:
    return "listed-" + hashlib.sha256(f"{size} {changed.isoformat()} {uri}".encode()).hexdigest()
