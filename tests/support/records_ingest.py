"""One value of each kind that ingestion and change capture write down, with something in every field."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from sterna.cdc.journal import ASKED_FILE, BEGIN_FILE, LAYOUTS_FILE, WANTED_FILE, Begun, Layouts, Wanted
from sterna.ingest.batch_file import BATCH_FILE, DROP_MARK, REJECTION, BatchFile, Rejection
from sterna.ingest.model import Batch, Drop, Format, Lane, State
from sterna.ingest.schema import MARKER_FILE, Marker
from sterna.ingest.topic_places import ANCHOR_FILE, Anchor
from sterna.json_record import Document

AT = datetime(2026, 11, 1, 2, 3, 4, 567890, UTC)
LANE = Lane("acme", "acme.events", "eu.acme.clicks", "day=2026-11-01")
DIGEST = "ca3d163bab055381827226140568f3bef7eaac187cebd76878e0b63e9e442356"
INBOX = "s3://eu/inbox"
BATCH_ID = "0991a0ff547bfa38de3a1ac7e2ec5b86"


def _drop(id: str, key: str, offset: str, format: Format, ending: str, accepted: datetime) -> Drop:
    uri = f"{INBOX}/acme/acme.events/{id[:2]}/{id}-{DIGEST[:16]}.{ending}"
    return Drop(id, LANE, key, offset, format, 3, 1, DIGEST, uri, accepted)


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
CLOSED = Batch(BATCH_ID, LANE, 7, State.CLOSED, 3, 9, 3, AT + timedelta(minutes=1), "age", AT)

FILES: dict[str, tuple[Document[Any], Any]] = {
    "drop-mark": (Document(DROP_MARK), DROPS[0]),
    "batch": (Document(BATCH_FILE), BatchFile(BATCH_ID, LANE, 7, CLOSED.closed, "age", DROPS)),
    "rejected": (
        Document(REJECTION),
        Rejection(BATCH_ID, LANE, 7, "3 rows are bad é\u201c", AT + timedelta(hours=1)),
    ),
    "topic": (ANCHOR_FILE, Anchor("eu.clicks", "abcDEF-_", 12)),
    "tracker": (MARKER_FILE, Marker("0f" * 16)),
    "begin": (BEGIN_FILE, Begun({"public.b": ("id", "é"), "public.a": ("id",)})),
    "asked": (ASKED_FILE, {}),
    "again": (WANTED_FILE, Wanted("public.a")),
    "layouts": (
        LAYOUTS_FILE,
        Layouts(
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
