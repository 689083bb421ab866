"""What `docs/formats.md` lists of ingestion and change capture, as the code has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterna.codec import Record
from sterna.config.sections.transforms import Transform
from sterna.pipelines.cdc.change_buffer import own_fields
from sterna.pipelines.cdc.journal import CAPTURE_REQUEST, RESYNC_REQUEST, SPEC, TABLE_SCHEMAS
from sterna.pipelines.cdc.postgres import slot_name
from sterna.pipelines.cdc.types import DELETED, UPDATED
from sterna.pipelines.ingest.batch_file import BATCH_FILE, BATCH_UPLOAD, REJECTION, UPLOAD_MARKER
from sterna.pipelines.ingest.read_rows import dead_schema
from sterna.pipelines.ingest.topic_offsets import ANCHOR, EMPTY_RANGE, MessageRange, consumer_group
from sterna.pipelines.ingest.tracker_schema import MARKER, TABLES
from sterna.pipelines.publish.model import Channel, Step
from sterna.pipelines.transforms.decide import Position, build_step, rebuild_step, with_sql_digest
from sterna.pipelines.transforms.sink import StreamPosition

_V1 = "with `version` 1"
_TABLE = "`<inbox>/<tenant>/<table>"
RECORDS: Sequence[tuple[str, str, Record[object]]] = (
    ("The marker of an upload", f"{_TABLE}/<id[:2]>/<id>.drop.json`, {_V1}", UPLOAD_MARKER),
    (
        "A batch",
        f"{_TABLE}/_batches/<channel>/<number>.json`, {_V1}; it is compared byte for byte",
        BATCH_FILE,
    ),
    ("An upload in it", "in a batch, which says where its uploads go", BATCH_UPLOAD),
    ("A rejected batch", f"{_TABLE}/_batches/<channel>/<number>.rejected.json`, {_V1}", REJECTION),
    ("A topic's partition", f"{_TABLE}/_topics/<channel>.json`, {_V1}", ANCHOR),
    ("A stretch of a topic without rows", f"{_TABLE}/_topics/<channel>.empty.json`, {_V1}", EMPTY_RANGE),
    ("The tracker of an inbox", f"`<inbox>/_tracker.json`, {_V1}", MARKER),
    ("A reading of a source", f"`_cdc/sources/<source>/<epoch>/begin.json`, {_V1}", SPEC),
    ("A reading that is asked for", f"`_cdc/sources/<source>/<epoch>/asked.json`, {_V1}", CAPTURE_REQUEST),
    ("A table that is asked for again", f"`_cdc/sources/<source>/<epoch>/again-<n>.json`, {_V1}", RESYNC_REQUEST),
    ("What tables of a source are like", f"`_cdc/sources/<source>/<epoch>/layouts-<id>.json`, {_V1}", TABLE_SCHEMAS),
)  # type: ignore[assignment] - each is a record of some class

_POSITIONS = (Position(5316), Position(5316, 2), Position(None, 3, True))
_CHANNEL = Channel("eu", "acme", "clicks")
_FLOW = Transform.model_validate({"name": "orders", "from": "a.b", "into": "a.c", "mode": "append", "sql": "SELECT 1"})
GROUPS: Mapping[str, Sequence[str]] = {
    **{f"Columns of the tracker's table `{table.name}`": tuple(table.columns) for table in TABLES},
    "Columns that change capture adds to tables": (UPDATED, DELETED),
    "Columns of a segment of change capture beside the source's, Parquet": tuple(
        example.name for example in own_fields()
    ),
    "Columns of dead rows, Parquet": tuple(dead_schema().names),
    "Slots and publications of a Postgres that is followed": (slot_name("<source>", 1793491384000),),
    "Consumer groups of topics": (consumer_group("<region>", "<topic>"),),
    "`uri` of an upload of a topic that is read directly": (MessageRange("clicks", 0, 12, 20).uri,),
    "Positions of a batch, and of a transform": ("7", *(example.text for example in _POSITIONS)),
    "WAP ids of batches, and of flows: these end in a digest of mode, partition and SQL": (
        Step.of_batch(_CHANNEL, 7, 6).id,
        with_sql_digest(build_step(_FLOW, Position(), 5316), _FLOW, _FLOW.sql).id,
        with_sql_digest(build_step(_FLOW, Position(5316, 2), 5317), _FLOW, _FLOW.sql).id,
        with_sql_digest(rebuild_step(_FLOW, "5316", 5317), _FLOW, _FLOW.sql).id,
    ),
    "Positions of a stream, which are compared byte for byte": (StreamPosition(3, ("<offset>",)).text,),
}
