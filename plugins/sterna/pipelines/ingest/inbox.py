"""The inbox: where an upload becomes durable before it is acknowledged.

First its content, under a name that has the content's digest; then its marker, created only if absent, which
makes it an upload; then the tracker's row. After a crash in between, the same upload sent again continues from there.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sterna.errors import ObjectMissing, TrackerContradicts
from sterna.pipelines.ingest.batch_file import format_batch, format_rejection, format_upload, parse_batch, parse_upload
from sterna.pipelines.ingest.layout import batch_uri, content_uri, rejected_uri, upload_marker_uri
from sterna.pipelines.ingest.model import Batch, Destination, Format, Upload, upload_id
from sterna.pipelines.ingest.tracker import Tracker, require_same_upload
from sterna.storage.objects import Objects
from sterna.storage.write import create, write_file


@dataclass(frozen=True)
class UploadRequest:
    """An upload that passed validation.

    Args:
        destination: where it goes.
        key: the idempotency key; "": none, and what is sent again is another upload.
        offset: the offset token; "": none. It is the key, then.
        path: the content.
        digest: its SHA-256, in hex.
        uri: where the content is for good; "": it goes to the inbox.
    """

    destination: Destination
    key: str
    offset: str
    format: Format
    path: Path
    bytes: int
    rows: int
    digest: str
    uri: str = ""

    @property
    def is_idempotent(self) -> bool:
        """Whether a repetition would be recognized."""
        return bool(self.key or self.offset)


class Inbox:
    """A region's inbox.

    Args:
        tracker: the index.
        region: its name.
        inbox: its URI.
    """

    def __init__(self, objects: Objects, tracker: Tracker, region: str, inbox: str) -> None:
        self._objects = objects
        self._tracker = tracker
        self._region = region
        self._inbox = inbox

    def accept(self, request: UploadRequest) -> tuple[Upload, bool]:
        """Make an upload durable; return it, and whether it is new.

        Raises:
            KeyReused: another one was taken under its key.
            StoreUnreachable, StoreDenied, DatabaseUnreachable, DatabaseRefused: it isn't taken.
        """
        upload = self._build_upload(request)
        if request.is_idempotent and (existing := self._tracker.upload(upload.id)) is not None:
            require_same_upload(existing, upload)
            return existing, False
        if not request.uri:
            write_file(self._objects, upload.uri, request.path)
        marker_uri = upload_marker_uri(self._inbox, upload.destination, upload.id)
        if not create(self._objects, marker_uri, format_upload(upload), assume_absent=not request.is_idempotent):
            stored = parse_upload(self._objects.read(marker_uri), marker_uri)
            require_same_upload(stored, upload)
            upload = stored  # what was written down first counts, whenever that was
        return self._tracker.accept(upload)

    def has_key(self, destination: Destination, key: str) -> bool:
        """Return whether an upload was taken under a key.

        Raises:
            DatabaseUnreachable, DatabaseRefused: the tracker can't be read.
        """
        return (
            self._tracker.upload(upload_id(self._region, destination.table, destination.channel, f"key:{key}"))
            is not None
        )

    def read_marker(self, destination: Destination, key: str) -> Upload | None:
        """Return the upload that was taken under a key, by its marker in the inbox: the tracker may lack its row.

        Raises:
            BadDrop: the marker was changed.
            StoreUnreachable, StoreDenied: it can't be determined.
        """
        marker_uri = upload_marker_uri(
            self._inbox, destination, upload_id(self._region, destination.table, destination.channel, f"key:{key}")
        )
        try:
            return parse_upload(self._objects.read(marker_uri), marker_uri)
        except ObjectMissing:
            return None

    def index(self, upload: Upload) -> None:
        """Add an upload whose marker is in the inbox to the tracker.

        Raises:
            DatabaseUnreachable, DatabaseRefused: it doesn't.
        """
        self._tracker.accept(upload)

    def _build_upload(self, request: UploadRequest) -> Upload:
        # Three kinds of keys, none of which can be taken for another.
        key = f"offset:{request.offset}" if request.offset else f"once:{secrets.token_hex(16)}"
        key = f"key:{request.key}" if request.key else key
        id = upload_id(self._region, request.destination.table, request.destination.channel, key)
        uri = request.uri or content_uri(self._inbox, request.destination, id, request.digest, request.format)
        now = datetime.now(UTC)
        return Upload(
            id,
            request.destination,
            key,
            request.offset,
            request.format,
            request.bytes,
            request.rows,
            request.digest,
            uri,
            now,
        )


def write_batch_file(objects: Objects, inbox: str, batch: Batch, uploads: Sequence[Upload], applied: int = 0) -> str:
    """Write a batch's file beside its uploads; return its URI.

    It comes first, even before the check whether the batch is published: a tracker that was restored to an older state
    assigns a number a second time, and by the table's applied position that batch would count as published.

    Args:
        inbox: the region's inbox.
        batch: the batch.
        uploads: its uploads, in their order.
        applied: the number of the last batch of its channel that is on `main`.

    Raises:
        TrackerContradicts: the number is another batch's already: the tracker was restored or replaced.
        BadDrop: the existing object is no batch's file, or has a field that is unknown to this version.
        StoreUnreachable, StoreDenied: it isn't written, and must not be staged.
    """
    uri, text = batch_uri(inbox, batch.destination, batch.number), format_batch(batch, uploads)
    if batch.number <= applied:
        existing = objects.read(uri) if objects.size(uri) is not None else None
    else:
        existing = text if create(objects, uri, text) else objects.read(uri)
    if existing != text:
        if existing is not None:
            parse_batch(existing, uri)
        raise TrackerContradicts(
            f"number {batch.number} of channel {batch.destination.channel} is another batch's already",
            table=batch.destination.table,
            file=uri,
            hint="the tracker is older than the inbox: sterna ingest rebuild",
        )
    return uri


def write_rejected_file(objects: Objects, inbox: str, batch: Batch, reason: str, rejected_at: datetime) -> str:
    """Write down that a batch was rejected, before the next number is published; return where.

    One that was written before stays as it is.
    """
    uri = rejected_uri(inbox, batch.destination, batch.number)
    create(objects, uri, format_rejection(batch, reason, rejected_at))
    return uri
