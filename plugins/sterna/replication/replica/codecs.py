"""The JSON form of a run's plan, its stages' reports and held keys, independent of names in the code.

Their names outlive a process: plans and reports in run folders, held keys in commits, reports of stages in XComs. A
reader that acts by one must understand all of it: a plan with a field of a newer version is refused. A report is
evidence. A newer version's fields of a held key are preserved.
"""

from __future__ import annotations

from typing import Final

from sterna.codec import (
    FLAG,
    INTEGER,
    REAL,
    TEXT,
    Field,
    Record,
    UnknownFields,
    array_of,
    enum_of,
    mapping_of,
    nullable,
    tuple_of,
)
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Action, CopyBatch, Plan, Report, StageReport, TableFailure

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
    UnknownFields.PRESERVE,
    "more",
)

ACTION: Final = Record(
    Action,
    (
        Field("key", TEXT),
        Field("kind", TEXT),
        Field("change", enum_of("put", "drop")),
        Field("content", TEXT, ""),
        Field("content_id", TEXT, ""),
        Field("renamed_from", TEXT, ""),
        Field("source", TEXT, ""),
        Field("target", TEXT, ""),
        Field("replaces", FLAG, False),
        Field("clears", FLAG, False),
        Field("snapshot", nullable(INTEGER), None),
        Field("previous", nullable(INTEGER), None),
        Field("operations", nullable(tuple_of(TEXT)), None),
        Field("proven_by", nullable(TEXT), None, omits_default=True),
    ),
)

COPY_BATCH: Final = Record(
    CopyBatch,
    (
        Field("number", INTEGER),
        Field("origin", TEXT),
        Field("files", INTEGER),
        Field("bytes", INTEGER),
        Field("table", TEXT, ""),
        Field("listed", TEXT, "", attribute="list_name"),
        Field("preferred", tuple_of(TEXT), (), omits_default=True),
        Field("fallbacks", tuple_of(TEXT), (), omits_default=True),
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
        Field("bindings", mapping_of(TEXT)),
        Field("oldest", TEXT, ""),
        Field("seeding", FLAG, False),
        Field("more", FLAG, False),
        Field("filtered", FLAG, False),
        Field("idle", FLAG, False),
        Field("actions", tuple_of(ACTION.codec), ()),
        Field("held", tuple_of(HELD.codec), ()),
        Field("together", tuple_of(tuple_of(TEXT)), (), attribute="atomic_groups"),
        Field("relaxed", tuple_of(TEXT), ()),
        Field("left", INTEGER, 0, attribute="unchanged"),
        Field("batches", tuple_of(COPY_BATCH.codec), ()),
        Field("egress", REAL, 0.0, attribute="egress_cost"),
        Field("present", INTEGER, 0, attribute="present_files"),
        Field("since", tuple_of(HELD.codec), (), attribute="held_if_failed"),
        Field("registry", TEXT, ""),
        Field("reasserts", TEXT, "", attribute="restored_commits"),
        Field("reseeded_from", TEXT, "", attribute="watermark_reset_from"),
        Field("was_held", nullable(tuple_of(TEXT)), None),
        Field("lane", TEXT, ""),
        Field("large", FLAG, False, attribute="bulk_run_needed"),
        Field("epoch", TEXT, "", attribute="term"),
        Field("verbatim", enum_of("", "unmarked", "all"), "", omits_default=True),
    ),
)

TABLE_FAILURE: Final = array_of(TableFailure, table=TEXT, kind=TEXT, reason=TEXT, file=TEXT)

STAGE_REPORT: Final = Record(
    StageReport,
    (
        Field("files", INTEGER),
        Field("bytes", INTEGER),
        Field("sent", INTEGER, 0),
        Field("failed", tuple_of(TABLE_FAILURE), ()),
        Field("missing", INTEGER, 0),
        Field("run_id", TEXT, ""),
        Field("here", tuple_of(TEXT), ()),
        Field("sent_from", mapping_of(INTEGER), {}, omits_default=True),
    ),
)

REPORT: Final = Record(
    Report,
    (
        Field("run_id", TEXT),
        Field("region", TEXT),
        Field("source_hash", TEXT),
        Field("outcome", enum_of("published", "idle", "superseded", "copied", "planned")),
        Field("replica_hash", TEXT),
        Field("watermark", TEXT, ""),
        Field("published", tuple_of(TEXT), ()),
        Field("held", tuple_of(HELD.codec), ()),
        Field("copied", STAGE_REPORT.codec, StageReport()),
        Field("localized", STAGE_REPORT.codec, StageReport()),
        Field("lag_seconds", nullable(REAL), 0.0),
        Field("seconds", REAL, 0.0),
        Field("more", FLAG, False),
        Field("watermark_lag_seconds", REAL, 0.0),
        Field("transit", tuple_of(HELD.codec), ()),
        Field("large", FLAG, False),
    ),
    UnknownFields.IGNORE,
)
