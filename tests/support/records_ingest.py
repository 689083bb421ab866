"""One value of each kind that ingestion and change capture write down, with something in every field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sterna.codec import Document
from sterna.pipelines.cdc.journal import (
    CAPTURE_REQUEST_FILE,
    RESYNC_REQUEST_FILE,
    SPEC_FILE,
    TABLE_SCHEMAS_FILE,
    ResyncRequest,
    SpecRecord,
    TableSchemas,
)
from sterna.pipelines.ingest.batch_file import BATCH_FILE, REJECTION, UPLOAD_MARKER, BatchFile, Rejection
from sterna.pipelines.ingest.model import Batch, Destination, Format, State, Upload
from sterna.pipelines.ingest.topic_offsets import ANCHOR_FILE, Anchor
from sterna.pipelines.ingest.tracker_schema import MARKER_FILE, Marker

AT = datetime(2026, 11, 1, 2, 3, 4, 567890, UTC)
DESTINATION = Destination("acme", "acme.events", "eu.acme.clicks", "day=2026-11-01")
DIGEST = "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"
INBOX = "s3://eu/inbox"
BATCH_ID = "0991a0ff547bfa38de3a1ac7e2ec5b86"


def _drop(id: str, key: str, offset: str, format: Format, ending: str, accepted: datetime) -> Upload:
    uri = f"{INBOX}/acme/acme.events/{id[:2]}/{id}-{DIGEST[:16]}.{ending}"
    return Upload(id, DESTINATION, key, offset, format, 3, 1, DIGEST, uri, accepted)


DROPS = (
    _drop(
        "2ca87625a2bc43cdb566b2b6368b5cbc",
        "offset:41 é\u201c",
        "41 é\u201c",
        Format.JSON_LINES,
        "jsonl",
        AT,
    ),
    _drop("25d33fe42ccd0303231937934f2b8edc", "key:k-2", "", Format.ARROW, "arrow", AT + timedelta(seconds=1)),
    _drop(
        "ff0f38f06202becac3000774d95c93d8",
        "once:00ff",
        "",
        Format.PARQUET,
        "parquet",
        datetime(2026, 11, 1, 2, 3, 6, 0, UTC),
    ),
)
CLOSED = Batch(BATCH_ID, DESTINATION, 7, State.CLOSED, 3, 9, 3, AT + timedelta(minutes=1), "age", AT)

FILES: dict[str, tuple[Document[Any], Any]] = {
    "drop-mark": (Document(UPLOAD_MARKER), DROPS[0]),
    "batch": (Document(BATCH_FILE), BatchFile(BATCH_ID, DESTINATION, 7, CLOSED.closed, "age", DROPS)),
    "rejected": (
        Document(REJECTION),
        Rejection(BATCH_ID, DESTINATION, 7, "3 rows are bad é\u201c", AT + timedelta(hours=1)),
    ),
    "topic": (ANCHOR_FILE, Anchor("eu.clicks", "abcDEF-_", 12)),
    "tracker": (MARKER_FILE, Marker("0f" * 16)),
    "begin": (SPEC_FILE, SpecRecord({"public.b": ("id", "é"), "public.a": ("id",)})),
    "asked": (CAPTURE_REQUEST_FILE, {}),
    "again": (RESYNC_REQUEST_FILE, ResyncRequest("public.a")),
    "layouts": (
        TABLE_SCHEMAS_FILE,
        TableSchemas(
            {
                "": "SET character_set_server=utf8mb4",
                "shop.t": {
                    "defaultCharsetName": "utf8mb4",
                    "primaryKeyColumnNames": ["id"],
                    "columns": [{"name": "id", "position": 1, "optional": False}],
                },
            }
        ),
    ),
}
"""By the name of its file in `tests/data/written-2026-11/ingest`, how it stands in a file, and the value."""
