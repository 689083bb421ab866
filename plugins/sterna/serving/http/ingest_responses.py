"""Uploads, batches and channels as producers see them in JSON.

Bodies are read from `UploadStatus`, `Batch` and `ChannelState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated

from pydantic import BeforeValidator

from sterna.pipelines.ingest.model import Batch, Format, State, Upload
from sterna.serving.http.responses import ResponseBody, Responses, body_field, failures, success

_Text = Annotated[str | None, BeforeValidator(lambda text: text or None)]


class BatchBody(ResponseBody):
    """A batch."""

    id: str = body_field("7d793037a0760186574b0282f2f435e7")
    tenant: str = body_field("acme", "destination.tenant")
    table: str = body_field("acme.events", "destination.table")
    channel: str = body_field("eu.acme.default", "destination.channel")
    partition: _Text = body_field(None, "destination.partition")
    number: int = body_field(17)
    state: State = body_field("published")
    files: int = body_field(500)
    rows: int = body_field(1000)
    bytes: int = body_field(21_000)
    oldest: datetime = body_field("2026-11-22T10:00:00.000000Z")
    closed: datetime = body_field("2026-11-22T10:00:09.000000Z")
    closed_by: str = body_field("files")
    settled: datetime | None = body_field("2026-11-22T10:00:12.000000Z")
    snapshotid: str | None = body_field("8744736658442914487", "snapshot")
    commit: _Text = body_field("9f2c4c1e0b7d4a6f8e3b5d2c1a0f9e8d7c6b5a4f3e2d1c0b9a8f7e6d5c4b3a29")
    reason: _Text = body_field(None)
    attempts: int = body_field(1)


@dataclass(frozen=True)
class UploadStatus:
    """An upload, and what became of it.

    Args:
        batch: its batch; None: it waits for one.
        served: by region, since when its replica serves the batch; None: not yet.
        repeated: it was sent before.
    """

    upload: Upload
    batch: Batch | None = None
    served: Mapping[str, datetime | None] = field(default_factory=dict)
    repeated: bool = False


class UploadStatusBody(ResponseBody):
    """An upload, and what became of it."""

    id: str = body_field("5d41402abc4b2a76b9719d911017c592", "upload.id")
    table: str = body_field("acme.events", "upload.destination.table")
    channel: str = body_field("eu.acme.default", "upload.destination.channel")
    partition: _Text = body_field(None, "upload.destination.partition")
    offset: _Text = body_field(None, "upload.offset")
    format: Format = body_field("json", "upload.format")
    rows: int = body_field(2, "upload.rows")
    bytes: int = body_field(42, "upload.bytes")
    accepted: datetime = body_field("2026-11-22T10:00:00.000000Z", "upload.accepted")
    state: State = body_field("buffered", "upload.state")
    batch: BatchBody | None = body_field(None)
    served: dict[str, datetime | None] = body_field({})


class AcceptedBody(UploadStatusBody):
    """An upload as the answer to sending it."""

    repeated: bool = body_field(False)


class BatchesBody(ResponseBody):
    """Batches of a region, the newest first."""

    region: str = body_field("eu")
    batches: list[BatchBody] = body_field([BatchBody.example()])


class ChannelTableBody(ResponseBody):
    """How far a channel is at one table."""

    table: str = body_field("acme.events")
    accepted_offset: _Text = body_field("1042", "accepted")
    settled_offset: _Text = body_field("1000", "settled")
    drops: int = body_field(1042, "uploads")


class ChannelBody(ResponseBody):
    """How far a channel is, at each table."""

    channel: str = body_field("eu.acme.feed")
    tables: list[ChannelTableBody] = body_field([ChannelTableBody.example()])


_UNAUTHORIZED = {401: "a token is needed", 403: "the token's tenant has no such namespace"}
_UNAVAILABLE = {503: "the inbox or the tracker of this region doesn't answer"}
UPLOAD_RESPONSES: Responses = {
    201: success("Durable in this region.", AcceptedBody, AcceptedBody.example()),
    200: success("It was sent before, and is durable since then.", AcceptedBody, AcceptedBody.example(repeated=True)),
    **failures(
        {
            400: "send either Idempotency-Key or Sterna-Offset, not both",
            **_UNAUTHORIZED,
            404: "no table of that name takes rows",
            408: "the upload took longer than 600 s (limits.upload)",
            409: "the same key was used for another content before",
            411: "a Content-Length is needed",
            413: "2000000000 bytes, 1073741824 are allowed (limits.file)",
            415: "the Content-Encoding has to be gzip, or none",
            422: "line 3 is no JSON object",
            429: "10737418240 bytes wait for being published (limits.backlog)",
            **_UNAVAILABLE,
        }
    ),
}
UPLOAD_STATUS_RESPONSES: Responses = {
    200: success(
        "The upload.", UploadStatusBody, UploadStatusBody.example(state="published", batch=BatchBody.example())
    ),
    **failures(_UNAUTHORIZED | {404: "there is no such upload"} | _UNAVAILABLE),
}
BATCHES_RESPONSES: Responses = {
    200: success("Batches.", BatchesBody, BatchesBody.example()),
    **failures({400: "limit: expected 1 to 1000"} | _UNAUTHORIZED | _UNAVAILABLE),
}
CHANNEL_RESPONSES: Responses = {
    200: success("The channel.", ChannelBody, ChannelBody.example()),
    **failures(_UNAUTHORIZED | {404: "there is no such channel in this region"} | _UNAVAILABLE),
}
