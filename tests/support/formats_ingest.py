"""What `docs/formats.md` lists of ingestion and change capture, as the code has it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sterna.cdc.gathering import own_fields
from sterna.cdc.journal import ASKED, BEGUN, LAYOUTS, WANTED
from sterna.cdc.postgres import own_name
from sterna.cdc.values import DELETED, UPDATED
from sterna.flows.decide import by_sql, rebuild_step, step_of
from sterna.flows.position import Position
from sterna.flows.sink import Reached
from sterna.ingest.batch_file import BATCH_DROP, BATCH_FILE, DROP_MARK, REJECTION
from sterna.ingest.reading import dead_schema
from sterna.ingest.schema import MARKER, TABLES
from sterna.ingest.topic_places import ANCHOR, EMPTY, consumer_group
from sterna.json_record import Record
from sterna.services.flows import Flow
from sterna.wap.model import Channel, Step

_V1 = "with `version` 1"
_TABLE = "`<inbox>/<tenant>/<table>"
RECORDS: Sequence[tuple[str, str, Record[object]]] = (
    ("The mark of a drop", f"{_TABLE}/<id[:2]>/<id>.drop.json`, {_V1}", DROP_MARK),
    (
        "A batch",
        f"{_TABLE}/_batches/<channel>/<number>.json`, {_V1}; it is compared byte for byte",
        BATCH_FILE,
    ),
    ("A drop in it", "in a batch, which says where its drops go", BATCH_DROP),
    ("A rejected batch", f"{_TABLE}/_batches/<channel>/<number>.rejected.json`, {_V1}", REJECTION),
    ("A topic's partition", f"{_TABLE}/_topics/<channel>.json`, {_V1}", ANCHOR),
    ("A stretch of a topic without rows", f"{_TABLE}/_topics/<channel>.empty.json`, {_V1}", EMPTY),
    ("The tracker of an inbox", f"`<inbox>/_tracker.json`, {_V1}", MARKER),
    ("A reading of a source", f"`_cdc/sources/<source>/<epoch>/begin.json`, {_V1}", BEGUN),
    ("A reading that is asked for", f"`_cdc/sources/<source>/<epoch>/asked.json`, {_V1}", ASKED),
    ("A table that is asked for again", f"`_cdc/sources/<source>/<epoch>/again-<n>.json`, {_V1}", WANTED),
    ("What tables of a source are like", f"`_cdc/sources/<source>/<epoch>/layouts-<id>.json`, {_V1}", LAYOUTS),
)  # type: ignore[assignment] - each is a record of some class

_POSITIONS = (Position(5316), Position(5316, 2), Position(None, 3, True))
_CHANNEL = Channel("eu", "acme", "clicks")
_FLOW = Flow.model_validate({"name": "orders", "from": "a.b", "into": "a.c", "mode": "append", "sql": "SELECT 1"})
GROUPS: Mapping[str, Sequence[str]] = {
    **{f"Columns of the tracker's table `{table.name}`": tuple(table.columns) for table in TABLES},
    "Columns that change capture adds to tables": (UPDATED, DELETED),
    "Columns of a drop of change capture beside the source's, Parquet": tuple(each.name for each in own_fields()),
    "Columns of dead rows, Parquet": tuple(dead_schema().names),
    "Slots and publications of a Postgres that is followed": (own_name("<source>", 1793491384000),),
    "Consumer groups of topics": (consumer_group("<region>", "<topic>"),),
    "Marks of a batch, and of a flow": ("7", *(each.mark for each in _POSITIONS)),
    "WAP ids of batches, and of flows: these end in a digest of mode, partition and SQL": (
        Step.batch(_CHANNEL, 7, 6).id,
        by_sql(step_of(_FLOW, Position(), 5316), _FLOW, _FLOW.sql).id,
        by_sql(step_of(_FLOW, Position(5316, 2), 5317), _FLOW, _FLOW.sql).id,
        by_sql(rebuild_step(_FLOW, "5316", 5317), _FLOW, _FLOW.sql).id,
    ),
    "Marks of a stream, which are compared byte for byte": (Reached(3, ("<offset>",)).mark,),
}
