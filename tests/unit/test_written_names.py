"""Marks, ids and names that outlive a process are those of November 2026, and each mark is read as it was written."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from sterna.cdc import plan
from sterna.cdc.postgres import Postgres
from sterna.cdc.values import DELETED, UPDATED
from sterna.flows.position import Position
from sterna.flows.shop import APP
from sterna.flows.sink import Reached
from sterna.ingest.gather import dead_uri
from sterna.ingest.model import batch_id, drop_id
from sterna.ingest.places import batch_uri, drop_uri, rejected_uri, topic_uri
from sterna.ingest.schema import marker_uri
from sterna.ingest.topic_places import consumer_group, drop_key
from sterna.wap.decide import marks
from sterna.wap.model import Channel, Step, flow_channel, marked_snapshots, numbered_marks
from tests.support.records_ingest import CLOSED, DROPS, INBOX, LANE

_FILE = Path(__file__).parents[1] / "data" / "written-2026-11" / "ingest" / "names.txt"
NAMES = dict(line.split("\t") for line in _FILE.read_text().splitlines())
CLICKS = Channel("eu", "acme", "clicks")


def test_marks_are_written_and_read() -> None:
    step = Step.batch(CLICKS, 7, 6)
    assert (step.mark, step.id) == (NAMES["mark ingest"], NAMES["wap-id step"])
    properties = marks(step, 5316, 12)
    assert properties == {NAMES["property ingest"]: "7", NAMES["place-property ingest"]: NAMES["place"]}
    assert marked_snapshots(properties) == {5316} and numbered_marks(properties) == {"eu.acme.clicks": 7}
    for name, position in (
        ("flow", Position(5316)),
        ("flow-rebuilt", Position(5316, 2)),
        ("flow-rebuilding", Position(None, 3, True)),
    ):
        assert position.mark == NAMES[f"mark {name}"] and Position.of(position.mark) == position
    reached = Reached(3, ('{"t":{"0":5}}', '"é'))
    assert reached.mark == NAMES["mark stream"] and Reached.of(reached.mark) == reached
    work = plan.work_of(plan.channel("eu", "shop"), "public.a", "1/9", 2, 15, [], None, whole=False)
    assert (work.step.mark, work.step.id) == (NAMES["mark cdc"], NAMES["wap-id cdc"])
    assert plan.position(work.step.mark, "shop") == (2, 15)


def test_names_and_ids_are_the_same() -> None:
    channels = {"cdc": plan.channel("eu", "shop"), "flow": flow_channel("orders")}
    for name, channel in channels.items():
        assert (channel.mark, channel.place) == (NAMES[f"property {name}"], NAMES[f"place-property {name}"])
    source: Any = SimpleNamespace(name="shop", hosts=["db:1"], database="d", credential_id="c", sslmode="disable")
    assert Postgres(source, lambda id: None).name(2) == NAMES["slot"]  # type: ignore[arg-type, return-value]
    assert (NAMES["column updated"], NAMES["column deleted"]) == (UPDATED, DELETED)
    assert (APP, consumer_group("eu", "clicks")) == (NAMES["app flow"], NAMES["group"])
    assert drop_id("eu", "acme.events", "eu.acme.clicks", "key:é") == NAMES["id drop"]
    assert (batch_id("acme.events", "eu.acme.clicks", 7), drop_key(12)) == (NAMES["id batch"], NAMES["key topic"])
    assert drop_uri(INBOX, LANE, DROPS[0].id) == NAMES["uri drop-mark"]
    assert batch_uri(INBOX, LANE, 7) == NAMES["uri batch"]
    assert rejected_uri(INBOX, LANE, 7) == NAMES["uri rejected"]
    assert topic_uri(INBOX, LANE) == NAMES["uri topic"]
    assert (marker_uri(INBOX), dead_uri(INBOX, CLOSED)) == (NAMES["uri tracker"], NAMES["uri dead"])
