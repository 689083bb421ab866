"""One value of each kind that outlives a process as JSON, with something in every field."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sterna.maintenance.deletion.model import Amount, NotDeleted
from sterna.maintenance.gc.model import GcReport
from sterna.maintenance.tables.results import FolderSize, SweepReport
from sterna.pipelines.cdc.journal import Part, Segment, StoppedTable, TableResync
from sterna.pipelines.ingest.columns import Column
from sterna.replication.plan.batches import Share
from sterna.replication.repair.plan import FileRepair, RemainingFault
from sterna.replication.repair.run import RepairReport
from sterna.replication.replica.bulk_state import BulkRun, BulkTable
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Action, CopyBatch, Plan, Report, StageReport, TableFailure
from sterna.storage.bandwidth import Lease

_HELD = Held(
    "nyc.flights",
    "SourceGone",
    "it is gone: é \u201cé\u201d",
    "s3://us/a%20b",
    "2026-11-01T02:03:04Z",
    "abcd",
    "nyc.planes",
    "nyc.a",
    7,
    "2026-11-02T00:00:00Z",
)
_SEEN = Held("nyc.planes", "InTransit", "")
_FAILURE = TableFailure("nyc.flights", "StoreDenied", "no", "s3://us/x")
_STAGE = StageReport(1, 2, 3, (_FAILURE,), 4, "run-1", ("nyc.a",))
_ACTION = Action(
    "nyc.flights",
    "ICEBERG_TABLE",
    "put",
    '{"type":"ICEBERG_TABLE"}',
    "id",
    "nyc.old",
    "s3://us/m.json",
    "s3://eu/m.json",
    True,
    True,
    2**62,
    1,
    ("append", "delete"),
)
_MOVING = BulkTable("nyc.flights", "2026-11-01T02:03:04Z", 9, (0, 3), "s3://eu/m.json", 400, 1)
_COLUMN = Column("id", "decimal(10, 2)", True)
_LIST = Column("xs", {"type": "list", "element": "int"})

VALUES: dict[str, Any] = {
    "held": _HELD,
    "held-short": _SEEN,
    "plan": Plan(
        "run-1",
        "eu",
        "h1",
        "w1",
        "r1",
        "d1",
        {"us-lake": "s3://us/ us"},
        "2026-11-01T02:03:04Z",
        True,
        True,
        True,
        True,
        (_ACTION, Action("nyc.gone", "NAMESPACE", "drop")),
        (_HELD,),
        (("nyc.a", "nyc.b"), ("nyc.c",)),
        ("nyc.c",),
        3,
        (CopyBatch(0, "us-lake", 1, 2), CopyBatch(1, "us-lake", 3, 4, "nyc.flights", "copy-x.parquet")),
        1.25,
        5,
        (_SEEN,),
        "f1",
        "somebody's commit",
        "w0",
        ("nyc.a",),
        "large",
        True,
        "2-eu",
    ),
    "plan-short": Plan("run-1", "eu", "h1", "", "r1", "d1", {}),
    "stage-report": _STAGE,
    "report": Report(
        "run-1",
        "eu",
        "h1",
        "published",
        "r2",
        "w1",
        ("nyc.a",),
        (_HELD,),
        _STAGE,
        StageReport(1, 1),
        None,
        1.5,
        True,
        0.25,
        (_SEEN,),
        True,
    ),
    "round": BulkRun("run-1", (_MOVING,), True, (_FAILURE,), "r1", "d1", "f1", "2-eu", ("nyc.a",), (_HELD,)),
    "lease": Lease(2097152),
    "collected": GcReport(
        region="eu",
        pass_id="collect-1",
        replica_hash="r1",
        dry_run=True,
        objects=Amount(1, 2),
        strange=Amount(3, 4),
        unreachable=Amount(5, 6),
        garbage=Amount(7, 8),
        refused=Amount(9, 10),
        deleted=Amount(11, 12),
        failed=13,
        failures=(NotDeleted("s3://eu/x", "no"),),
        in_flight=("run-1",),
        still_shown=("nyc.a",),
        at="2026-11-01T02:03:04Z",
        evidence=Amount(14, 15),
        superseded=Amount(16, 17),
        left=Amount(18, 19),
        verbatim=Amount(20, 21),
    ),
    "swept": SweepReport(
        region="eu",
        pass_id="sweep-1",
        dry_run=True,
        at="2026-11-01T02:03:04Z",
        main="m1",
        term="2-eu",
        locations=("eu-lake",),
        objects=Amount(1, 2),
        strange=Amount(3, 4),
        unreachable=Amount(5, 6),
        garbage=Amount(7, 8),
        deleted=Amount(9, 10),
        failed=11,
        failures=(NotDeleted("s3://eu/x", "no"),),
        folders=(FolderSize("s3://eu/f", Amount(12, 13)),),
        left=Amount(14, 15),
    ),
    "repaired": RepairReport(
        True,
        3,
        (FileRepair("nyc.a", "s3://eu/x", "s3://us/x", "copy", "gone"),),
        (RemainingFault("nyc.a", "s3://eu/y", "size", "why"),),
        1,
    ),
    "share": Share(0, 3, "us-lake,ap-lake", 4, 5),
    "drop": Segment(
        2,
        7,
        {"server": "shop"},
        {"lsn": 12, "ts_usec": 3},
        {"public.a": (Part("s3://eu/p.parquet", 1, 2, (_COLUMN, _LIST)),)},
        True,
        1_764_000_000_000_000,
        {"public.a": (_COLUMN,)},
        {"public.a": ("old",)},
        {"server": 1, "file": "bin.000001", "begun": 5},
        "s3://eu/layouts-1.json",
        {"public.a": {"identity": "d"}},
        {"public.b": StoppedTable("UnfitSource", "a value of column v has no place in date", 6)},
        {"public.a": TableResync(3, 5, ("id",), "700:705:701,703", 24_000_000)},
        2,
    ),
}
"""By the name of its file in `tests/data/written-2026-11/records`."""

VALUES["collected-dropped"] = replace(VALUES["collected"], dropped=Amount(22, 23))
VALUES["plan-sources"] = replace(
    VALUES["plan"], batches=(CopyBatch(0, "us-lake", 1, 2, "nyc.flights", "copy-x.parquet", ("ap", "eu"), ("sa",)),)
)
VALUES["stage-report-sources"] = replace(_STAGE, sent_from={"ap": 2})
VALUES["plan-verbatim"] = replace(
    VALUES["plan"], actions=(replace(_ACTION, proven_by="s3://eu/l.json"),), verbatim="all"
)
