"""How a run's plan, its stages' reports and held keys stand in JSON, whatever the code calls them.

Their names outlive a process: plans and reports in run folders, held keys in commits, reports of stages in XComs. Who
acts by one must understand all of it: a plan with a field of a newer version is refused. A report is evidence. What a
newer version says of a held key is repeated by this one.
"""

from __future__ import annotations

from typing import Final

from sterna.json_record import (
    FLAG,
    INTEGER,
    REAL,
    TEXT,
    Field,
    Record,
    Unknown,
    by_name,
    many,
    nullable,
    one_of,
    row,
)
from sterna.replica.held import Held
from sterna.replica.records import Action, Batch, Plan, Report, StageReport, TableFailure

# The order is part of the name of a long list: the digest of its text.
HELD: Final = Record(
    Held,
    (
        Field("key", TEXT),
        Field("kind", TEXT),
        Field("reason", TEXT),
        Field("file", TEXT, ""),
        Field("since", TEXT, ""),
        Field("good", TEXT, ""),
        Field("waits_for", TEXT, ""),
        Field("group", TEXT, ""),
        Field("bytes", INTEGER, 0),
        Field("until", TEXT, ""),
    ),
    Unknown.CARRY,
    "more",
)

ACTION: Final = Record(
    Action,
    (
        Field("key", TEXT),
        Field("kind", TEXT),
        Field("change", one_of("put", "drop")),
        Field("content", TEXT, ""),
        Field("content_id", TEXT, ""),
        Field("renamed_from", TEXT, ""),
        Field("source", TEXT, ""),
        Field("target", TEXT, ""),
        Field("replaces", FLAG, False),
        Field("clears", FLAG, False),
        Field("snapshot", nullable(INTEGER), None),
        Field("previous", nullable(INTEGER), None),
        Field("operations", nullable(many(TEXT)), None),
    ),
)

BATCH: Final = Record(
    Batch,
    (
        Field("number", INTEGER),
        Field("origin", TEXT),
        Field("files", INTEGER),
        Field("bytes", INTEGER),
        Field("table", TEXT, ""),
        Field("listed", TEXT, ""),
    ),
)

PLAN: Final = Record(
    Plan,
    (
        Field("run_id", TEXT),
        Field("region", TEXT),
        Field("source_hash", TEXT),
        Field("watermark", TEXT),
        Field("replica_hash", TEXT),
        Field("digest", TEXT),
        Field("bindings", by_name(TEXT)),
        Field("oldest", TEXT, ""),
        Field("seeding", FLAG, False),
        Field("more", FLAG, False),
        Field("filtered", FLAG, False),
        Field("idle", FLAG, False),
        Field("actions", many(ACTION.kind), ()),
        Field("held", many(HELD.kind), ()),
        Field("together", many(many(TEXT)), ()),
        Field("relaxed", many(TEXT), ()),
        Field("left", INTEGER, 0),
        Field("batches", many(BATCH.kind), ()),
        Field("egress", REAL, 0.0),
        Field("present", INTEGER, 0),
        Field("since", many(HELD.kind), ()),
        Field("registry", TEXT, ""),
        Field("reasserts", TEXT, ""),
        Field("reseeded_from", TEXT, ""),
        Field("was_held", nullable(many(TEXT)), None),
        Field("lane", TEXT, ""),
        Field("large", FLAG, False),
        Field("epoch", TEXT, ""),
    ),
)

TABLE_FAILURE: Final = row(TableFailure, table=TEXT, kind=TEXT, reason=TEXT, file=TEXT)

STAGE_REPORT: Final = Record(
    StageReport,
    (
        Field("files", INTEGER),
        Field("bytes", INTEGER),
        Field("sent", INTEGER, 0),
        Field("failed", many(TABLE_FAILURE), ()),
        Field("missing", INTEGER, 0),
        Field("run_id", TEXT, ""),
        Field("here", many(TEXT), ()),
    ),
)

REPORT: Final = Record(
    Report,
    (
        Field("run_id", TEXT),
        Field("region", TEXT),
        Field("source_hash", TEXT),
        Field("outcome", one_of("published", "idle", "superseded", "copied", "planned")),
        Field("replica_hash", TEXT),
        Field("watermark", TEXT, ""),
        Field("published", many(TEXT), ()),
        Field("held", many(HELD.kind), ()),
        Field("copied", STAGE_REPORT.kind, StageReport()),
        Field("localized", STAGE_REPORT.kind, StageReport()),
        Field("lag_seconds", nullable(REAL), 0.0),
        Field("seconds", REAL, 0.0),
        Field("more", FLAG, False),
        Field("watermark_lag_seconds", REAL, 0.0),
        Field("transit", many(HELD.kind), ()),
        Field("large", FLAG, False),
    ),
    Unknown.IGNORE,
)
