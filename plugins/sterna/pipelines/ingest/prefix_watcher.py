"""Files that others put into a folder: each becomes an upload, once, and stays where it is.

A file is identified by name, size and time: one that is overwritten is another file.
"""

from __future__ import annotations

import hashlib
import logging
import tempfile
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath

from sterna.config.sections.ingest import WatchedPrefix
from sterna.errors import BadDrop, DropOverLimit, KeyReused, printable
from sterna.pipelines.ingest.inbox import UploadRequest
from sterna.pipelines.ingest.model import Destination, Format, channel_name
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.validate import check
from sterna.storage.write import read_file

log = logging.getLogger(__name__)
CHANNEL = "listed"
_FORMATS = {
    ".parquet": Format.PARQUET,
    ".jsonl": Format.JSON_LINES,
    ".ndjson": Format.JSON_LINES,
    ".arrows": Format.ARROW,
}
_MAX_SEEN_FILES = 1_000_000


@dataclass
class PollCounts:
    """What a poll of a prefix found.

    Args:
        accepted: files that became uploads.
        rejected: files that are none.
        is_full: the tenant's backlog is full, and files are left for the next poll.
    """

    accepted: int = 0
    rejected: int = 0
    is_full: bool = False


@dataclass
class PrefixWatcher:
    """A folder in which others put files.

    Args:
        setting: which folder, for which table.
    """

    ingest: RegionIngest
    setting: WatchedPrefix
    _seen: set[str] = field(default_factory=set)

    def poll(self) -> PollCounts:
        """Take what is new.

        Raises:
            StoreUnreachable, StoreDenied, DatabaseUnreachable, DatabaseRefused: the next poll continues.
        """
        counts = PollCounts()
        for uri, size, modified in self.ingest.objects.list(self.setting.prefix):
            format, key = _FORMATS.get(PurePosixPath(uri).suffix.lower()), _key(uri, size, modified)
            if format is None or key in self._seen:
                continue
            if self._is_full(size):
                counts.is_full = True
                break
            if not self._process_file(uri, (size, modified), key, format, counts):
                continue
            if len(self._seen) < _MAX_SEEN_FILES:  # the tracker has the others
                self._seen.add(key)
        return counts

    def _process_file(
        self, uri: str, listing: tuple[int, datetime], key: str, format: Format, counts: PollCounts
    ) -> bool:
        """Take a file, or refuse it; return whether it is the one that was listed: else the next poll takes it."""
        try:
            is_new = self._accept_file(uri, listing, key, format)
        except (BadDrop, DropOverLimit, KeyReused) as error:
            counts.rejected += 1
            log.warning("a listed file is refused: %s: %s: %s", printable(uri), type(error).__name__, error.message)
            return True
        counts.accepted += bool(is_new)
        return is_new is not None

    def _accept_file(self, uri: str, listing: tuple[int, datetime], key: str, format: Format) -> bool | None:
        destination = self._destination()
        limits = self.ingest.settings.tenants[destination.tenant].limits
        max_bytes = limits.file if format is Format.PARQUET else limits.body
        if listing[0] > max_bytes:
            raise DropOverLimit(f"{listing[0]} bytes, {max_bytes} are allowed")
        if self.ingest.inbox.has_key(destination, key):
            return False
        with tempfile.TemporaryDirectory(prefix="sterna-ingest-") as folder:
            path = Path(folder) / "body"
            # Taken under the name of what it was before, it would be taken again under its own.
            if not (digest := read_file(self.ingest.objects, uri, path, listing)):
                return None
            rows = check(format, path, limits)
            request = UploadRequest(destination, key, "", format, path, path.stat().st_size, rows, digest)
            return self.ingest.inbox.accept(request)[1]

    def _destination(self) -> Destination:
        table = self.setting.table
        tenant = self.ingest.settings.tenant_of(table) or ""
        return Destination(tenant, table, channel_name(self.ingest.name, tenant, CHANNEL))

    def _is_full(self, size: int) -> bool:
        tenant = self._destination().tenant
        return (
            self.ingest.tracker.read_usage(tenant).backlog + size > self.ingest.settings.tenants[tenant].limits.backlog
        )


def _key(uri: str, size: int, modified: datetime) -> str:
    return "listed-" + hashlib.sha256(f"{size} {modified.isoformat()} {uri}".encode()).hexdigest()
