"""Marks, ids and names that outlive a process are those of November 2026, and each mark is read as it was written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sterna.pipelines.cdc import plan
from sterna.pipelines.cdc.postgres import PostgresDatabase
from sterna.pipelines.cdc.types import DELETED, UPDATED
from sterna.pipelines.ingest.fetch import dead_letters_uri
from sterna.pipelines.ingest.layout import batch_uri, rejected_uri, topic_uri, upload_marker_uri
from sterna.pipelines.ingest.model import batch_id, upload_id
from sterna.pipelines.ingest.topic_offsets import consumer_group, upload_key
from sterna.pipelines.ingest.tracker_schema import marker_uri
from sterna.pipelines.publish.decide import position_properties
from sterna.pipelines.publish.model import Channel, Step, numbered_positions, position_snapshots, transform_channel
from sterna.pipelines.transforms.decide import Position
from sterna.pipelines.transforms.sink import StreamPosition
from sterna.pipelines.transforms.step_context import APP_NAME
from tests.support.records_ingest import CLOSED, DESTINATION, DROPS, INBOX

_FILE = Path(__file__).parents[1] / "data" / "written-2026-11" / "ingest" / "names.txt"
NAMES = dict(line.split("\t") for line in _FILE.read_text().splitlines())
CLICKS = Channel("eu", "acme", "clicks")


def test_marks_are_written_and_read() -> None:
    step = Step.of_batch(CLICKS, 7, 6)
    assert (step.position, step.id) == (NAMES["mark ingest"], NAMES["wap-id step"])
    properties = position_properties(step, 5316, 12)
    assert properties == {NAMES["property ingest"]: "7", NAMES["place-property ingest"]: NAMES["place"]}
    assert position_snapshots(properties) == {5316} and numbered_positions(properties) == {"eu.acme.clicks": 7}
    for name, position in (
        ("flow", Position(5316)),
        ("flow-rebuilt", Position(5316, 2)),
        ("flow-rebuilding", Position(None, 3, True)),
    ):
        assert position.text == NAMES[f"mark {name}"] and Position.parse(position.text) == position
    reached = StreamPosition(3, ('{"t":{"0":5}}', '"é'))
    assert reached.text == NAMES["mark stream"] and StreamPosition.parse(reached.text) == reached
    work = plan.build_work(plan.channel("eu", "shop"), "public.a", "1/9", 2, 15, [], None, complete=False)
    assert (work.step.position, work.step.id) == (NAMES["mark cdc"], NAMES["wap-id cdc"])
    assert plan.parse_position(work.step.position, "shop") == (2, 15)


def test_names_and_ids_are_the_same() -> None:
    channels = {"cdc": plan.channel("eu", "shop"), "flow": transform_channel("orders")}
    for name, channel in channels.items():
        assert (channel.position_property, channel.snapshot_property) == (
            NAMES[f"property {name}"],
            NAMES[f"place-property {name}"],
        )
    source: Any = SimpleNamespace(name="shop", hosts=["db:1"], database="d", credential_id="c", sslmode="disable")
    assert PostgresDatabase(source, lambda id: None).slot_name(2) == NAMES["slot"]  # type: ignore[arg-type, return-value]
    assert (NAMES["column updated"], NAMES["column deleted"]) == (UPDATED, DELETED)
    assert (APP_NAME, consumer_group("eu", "clicks")) == (NAMES["app flow"], NAMES["group"])
    assert upload_id("eu", "acme.events", "eu.acme.clicks", "key:é") == NAMES["id drop"]
    assert (batch_id("acme.events", "eu.acme.clicks", 7), upload_key(12)) == (NAMES["id batch"], NAMES["key topic"])
    assert upload_marker_uri(INBOX, DESTINATION, DROPS[0].id) == NAMES["uri drop-mark"]
    assert batch_uri(INBOX, DESTINATION, 7) == NAMES["uri batch"]
    assert rejected_uri(INBOX, DESTINATION, 7) == NAMES["uri rejected"]
    assert topic_uri(INBOX, DESTINATION) == NAMES["uri topic"]
    assert (marker_uri(INBOX), dead_letters_uri(INBOX, CLOSED)) == (NAMES["uri tracker"], NAMES["uri dead"])
