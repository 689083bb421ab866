"""JSON names of facts: they stay, whatever the code calls a field."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime

import pytest

from sterna.maintenance.tables.results import ExpiryReport, SweepReport
from sterna.pipelines.cdc.status import ResyncSummary
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.model import Batch, Destination, State
from sterna.pipelines.ingest.rebuild import RebuildOutcome
from sterna.pipelines.ingest.replay import ReplayOutcome
from sterna.pipelines.ingest.tracker import ChannelState, Usage
from sterna.pipelines.transforms.rebuild import RebuildSummary
from sterna.replication.failover.model import CatalogSite
from sterna.replication.failover.promote import Promoted, Promotion
from sterna.replication.failover.rejoin import GuardCheck
from sterna.text.plain import to_plain

AT = datetime(2026, 1, 1, tzinfo=UTC)
CLOSED = Batch("b1", Destination("acme", "acme.events", "eu.acme.default"), 7, State.CLOSED, 1, 9, 2, AT, "age", AT)


@dataclass(frozen=True)
class _Fact:
    shown: int = field(default=1, metadata={"json": "name"})
    hidden: int = field(default=2, metadata={"internal": True})


def test_a_field_has_its_json_name_and_internal_ones_are_left_out() -> None:
    assert to_plain([_Fact()]) == [{"name": 1}]


def test_where_a_batch_goes_is_its_lane_in_json() -> None:
    lane = {"tenant": "acme", "table": "acme.events", "channel": "eu.acme.default", "partition": ""}
    assert json.loads(json.dumps(to_plain(CLOSED)))["lane"] == lane
    assert "destination" not in to_plain(CLOSED)
    assert to_plain(Usage(0, 0, frozenset(), partitions=frozenset({("a.b", "c", "p")})))["lanes"] == [["a.b", "c", "p"]]


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (ReplayOutcome, {"drops", "mark"}),
        (RebuildOutcome, {"drops"}),
        (BatchOutcome, {"drops"}),
        (ChannelState, {"drops"}),
        (ResyncSummary, {"epoch"}),
        (RebuildSummary, {"flow", "mark"}),
        (CatalogSite, {"epoch"}),
        (Promotion, {"epoch"}),
        (Promoted, {"epoch"}),
        (GuardCheck, {"epoch"}),
        (ExpiryReport, {"epoch"}),
        (SweepReport, {"epoch"}),
    ],
)
def test_facts_keep_their_json_names(kind: type, names: set[str]) -> None:
    assert {member.metadata["json"] for member in fields(kind) if "json" in member.metadata} == names
