"""A plan is shown from its facts alone: as lines for people, and as the JSON that `sterna plan --json` always had."""

from __future__ import annotations

from dataclasses import replace

from sterna.replication.execution.executor import Placement
from sterna.replication.replica.held import Held
from sterna.replication.sync.explain import CopiesTotal, ExplainedAction, OriginTotal, PlanExplanation
from sterna.text.plan import plan_json, plan_text

HELD = Held("ns.odd", "Unsupported", "is encrypted", "s3://us/odd.json", since="2026-07-01T12:00:00+00:00")
EXPLAINED = PlanExplanation(
    region="eu",
    branch="main_replica_eu",
    source_hash="ab" * 32,
    watermark=None,
    idle=False,
    seeding=True,
    more=True,
    actions=(
        ExplainedAction("ns", "NAMESPACE", "put"),
        ExplainedAction("ns.a", "ICEBERG_TABLE", "put", 3, 4096, 2),
        ExplainedAction("ns.b", "ICEBERG_VIEW", "put"),
        ExplainedAction("ns.c", "ICEBERG_TABLE", "drop"),
    ),
    left=7,
    present=1,
    localize=(Placement("manifest", 2, 512, "here", "few"), Placement("manifest-list", 1, 0, "spark", "told so")),
    origins={"us-lake": OriginTotal(1, 3, 4096)},
    egress_cost=0.02,
    held=(HELD,),
)


def test_as_lines() -> None:
    assert plan_text(EXPLAINED).splitlines() == [
        "main_replica_eu: from main@nothing to main@abababababab",
        "  put namespace ns",
        "  put iceberg_table ns.a: copy 3 files, 4096 bytes; localize 2",
        "  put iceberg_view ns.b: copy 0 files, 0 bytes; localize 0",
        "  drop iceberg_table ns.c",
        "  from us-lake: 3 files, 4096 bytes in 1 batches",
        "  localizing 2 manifest files, 512 bytes, here: few",
        "  localizing 1 manifest-list files, 0 bytes, on Spark: told so",
        "  estimated egress cost: 0.02",
        "  held ns.odd since 2026-07-01T12:00:00+00:00: Unsupported: is encrypted s3://us/odd.json",
        "  more tables follow in further groups",
    ]


def test_what_comes_from_copies_in_other_regions() -> None:
    cheaper = replace(EXPLAINED, copies={"ap": CopiesTotal(2, 4000)}, egress_saved=1.92)
    lines = plan_text(cheaper).splitlines()
    assert "  of these, from copies in ap: 2 files, 4000 bytes" in lines
    assert "  estimated egress cost: 0.02, saves 1.92" in lines
    assert plan_json(cheaper) == {
        **plan_json(EXPLAINED),
        "copies": {"ap": {"files": 2, "bytes": 4000}},
        "egress_saved": 1.92,
    }


def test_with_nothing_to_do() -> None:
    idle = replace(EXPLAINED, watermark="ab" * 32, idle=True, more=False, actions=(), localize=(), origins={}, held=())
    assert plan_text(idle).splitlines() == [
        "main_replica_eu: from main@abababababab to main@abababababab",
        "  nothing to do",
    ]


def test_as_json() -> None:
    assert plan_json(EXPLAINED) == {
        "region": "eu",
        "branch": "main_replica_eu",
        "source_hash": "ab" * 32,
        "watermark": None,
        "idle": False,
        "seeding": True,
        "more": True,
        "actions": [
            {"key": "ns", "kind": "NAMESPACE", "change": "put"},
            {"key": "ns.a", "kind": "ICEBERG_TABLE", "change": "put", "files": 3, "bytes": 4096, "localize": 2},
            {"key": "ns.b", "kind": "ICEBERG_VIEW", "change": "put"},
            {"key": "ns.c", "kind": "ICEBERG_TABLE", "change": "drop"},
        ],
        "left": 7,
        "present": 1,
        "localize": [
            {"role": "manifest", "files": 2, "bytes": 512, "where": "here", "why": "few"},
            {"role": "manifest-list", "files": 1, "bytes": 0, "where": "spark", "why": "told so"},
        ],
        "origins": {"us-lake": {"batches": 1, "files": 3, "bytes": 4096}},
        "egress_cost": 0.02,
        "held": [{name: value for name, value in vars(HELD).items() if name != "more"}],
        "transit": [],
    }
