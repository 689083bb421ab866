"""Repairing a replica: wrong and missing files below the replica root are restored from `main`, and nothing else is
changed.

Only a repair overwrites an object that a head of the replica reaches, with its right content: the mapping is a
function, so the content of each URI is known. (A copy, too, overwrites a file of a wrong size, which a killed copy
left, but no head reaches that one.) `verify` finds the faults, before and after. A sync that was planned with the old
files is overtaken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from sterna.codec import FLAG, INTEGER, TEXT, Field, Record, UnknownFields, enum_of, tuple_of
from sterna.config.registry import run_names
from sterna.errors import ReferenceNotFound
from sterna.libraries import pa, pc
from sterna.replication.execution.copy import copy_batch
from sterna.replication.execution.copy_file import CopyFile
from sterna.replication.execution.spark_executor import Engine, spark_engine
from sterna.replication.plan.batches import cut_batches
from sterna.replication.plan.options import SyncOptions
from sterna.replication.repair.plan import Diagnosis, FileRepair, RemainingFault, diagnose, remaining_fault
from sterna.replication.replica import file_list as listing
from sterna.replication.replica import run_folder
from sterna.replication.replica.head import MAX_READ_COMMITS, OVERWRITING, OVERWRITTEN_BY
from sterna.replication.replica.ids import new_run_id
from sterna.replication.replica.region import Progress, RegionContext
from sterna.replication.sync.localize import localize_files
from sterna.replication.sync.publish import invalidate_plans
from sterna.replication.verify.findings import STALE, Finding, VerificationReport
from sterna.replication.verify.run import Depth, verify


@dataclass(frozen=True)
class RepairReport:
    """The report of a repair, or of its dry run.

    Args:
        applied: it was done, not only shown.
        faults: how many verify found at first.
        mends: files that were, or would be, restored. Lists and manifests of deletes that name such files are
            rewritten with them, where that changes them, without being listed here.
        left: faults that stay, at most 1,000 a table.
        faults_left: how many stay; when nothing was applied, all of them.
    """

    applied: bool
    faults: int
    mends: tuple[FileRepair, ...]
    left: tuple[RemainingFault, ...]
    faults_left: int


FILE_REPAIR: Final = Record(
    FileRepair,
    (
        Field("table", TEXT),
        Field("file", TEXT),
        Field("source", TEXT),
        Field("how", enum_of("copy", "localize")),
        Field("why", TEXT),
    ),
    UnknownFields.IGNORE,
)
REMAINING_FAULT: Final = Record(
    RemainingFault,
    (Field("table", TEXT), Field("file", TEXT), Field("fault", TEXT), Field("why", TEXT)),
    UnknownFields.IGNORE,
)
REPAIR_REPORT: Final = Record(
    RepairReport,
    (
        Field("applied", FLAG),
        Field("faults", INTEGER),
        Field("mends", tuple_of(FILE_REPAIR.codec)),
        Field("left", tuple_of(REMAINING_FAULT.codec)),
        Field("faults_left", INTEGER),
    ),
    UnknownFields.IGNORE,
)
"""What `repair.json` has, for people."""


def repair(
    context: RegionContext,
    tables: Iterable[str],
    progress: Progress,
    *,
    deep: bool = False,
    apply: bool = False,
    engine: Engine | None = None,
) -> RepairReport:
    """Verify a replica and restore faulty files from `main`, until nothing more can be repaired.

    Args:
        tables: key names or patterns, as in a policy; none: all.
        deep: find files whose content isn't the source's, too.
        apply: repair; else only report what would be done.
        engine: where to localize; default: the region's Spark.

    Returns:
        What was done and what stays. A report of it is left beside the replica, as of every run.

    Raises:
        UsageError: a name or pattern fits no table or view on the branch.
        CatalogError, StoreError, EngineError: something does not answer; a retry resumes.
    """
    depth = Depth(deep)
    verified = initial = verify(context, depth, tables, progress)
    diagnosis = diagnose(context, verified)
    if not apply or not initial.faults:
        if apply and (begun := _interrupted_repair(context)):
            invalidate_plans(context, f"{begun.removesuffix(OVERWRITING)}-resumed")
        return RepairReport(False, initial.faults, diagnosis.repairs, diagnosis.remaining, initial.faults)
    context.primary.reference(context.region.replica_branch)  # must answer, before anything is written over
    run_id = new_run_id()
    attempted: dict[str, FileRepair] = {}
    failed: dict[str, str] = {}
    attempts = 0
    names = sorted({finding.table for finding in initial.findings if finding.kind != STALE})
    # A restored file may name others that could not be checked before.
    while pending := [file_repair for file_repair in diagnosis.repairs if file_repair.file not in attempted]:
        attempted |= {file_repair.file: file_repair for file_repair in pending}
        attempts += 1
        mark = f"repair-{run_id}-{attempts}"
        invalidate_plans(context, f"{mark}{OVERWRITING}")  # until the second one, gateways keep nothing of any file
        failed |= _apply_repairs(context, run_folder.run_uri(context, run_id), pending, diagnosis, engine, progress)
        # A file that was overwritten may be shorter now than a running sync expects. That sync can't publish any more;
        # what it published before is on the branch that is verified now.
        invalidate_plans(context, mark)
        verified = _with_stale(verify(context, depth, names, progress), initial)
        diagnosis = diagnose(context, verified)
    repaired = tuple(
        file_repair
        for file_repair in attempted.values()
        if file_repair.file not in {finding.file for finding in verified.findings}
    )
    result = RepairReport(
        True, initial.faults, repaired, _remaining_faults(verified, diagnosis, failed), verified.faults
    )
    context.objects.write_new(
        f"{run_folder.run_uri(context, run_id)}/{run_names.REPAIR}", REPAIR_REPORT.dumps(result).encode()
    )
    return result


def _interrupted_repair(context: RegionContext) -> str:
    """Return the mark of a repair that began to overwrite files, and didn't say that it had; "" where there is none."""
    commits = context.primary.history(context.region.replica_branch, operations=False)
    marks = (commit.properties.get(OVERWRITTEN_BY, "") for commit in islice(commits, MAX_READ_COMMITS))
    mark = ""
    with suppress(ReferenceNotFound):  # the catalog has lost older commits
        mark = next(filter(None, marks), "")
    return mark if mark.endswith(OVERWRITING) else ""


def _with_stale(verified: VerificationReport, initial: VerificationReport) -> VerificationReport:
    """Return a report with the stale entries of the first one, which no repair of files changes."""
    files = [finding for finding in verified.findings if finding.kind != STALE]
    stale = [finding for finding in initial.findings if finding.kind == STALE]
    faults = verified.faults - len(verified.findings) + len(files) + len(stale)
    return replace(verified, findings=(*files, *stale), faults=faults)


def _apply_repairs(
    context: RegionContext,
    run: str,
    repairs: list[FileRepair],
    diagnosis: Diagnosis,
    engine: Engine | None,
    progress: Progress,
) -> dict[str, str]:
    """Restore files; return the reasons of those that couldn't be."""
    copies = {file_repair.file for file_repair in repairs if file_repair.how == "copy"}
    table_by_file = {file_repair.file: file_repair.table for file_repair in repairs if file_repair.how == "localize"}
    failed = _copy(context, diagnosis, copies, progress) if copies else {}
    if table_by_file:
        others = set(diagnosis.files.column("table").to_pylist()) - set(table_by_file.values())
        files = listing.exclude_tables(diagnosis.files, others)
        with spark_engine(context, progress) as spark:
            report = localize_files(context, run, files, engine or spark, progress, table_by_file)
        failed |= {
            file: f"{message} {location}".rstrip()
            for table, _, message, location in report.failed
            for file in table_by_file
            if table_by_file[file] == table
        }
    return failed


def _copy(context: RegionContext, diagnosis: Diagnosis, targets: set[str], progress: Progress) -> dict[str, str]:
    wanted = diagnosis.files.filter(pc.is_in(diagnosis.files.column("target"), pa.array(sorted(targets), pa.string())))
    numbers, batches = cut_batches(wanted, context.mapping, SyncOptions())
    failed: dict[str, str] = {}
    for batch in batches:
        rows = wanted.filter(pc.equal(numbers, batch.number)).select(["table", "source", "target", "size"]).to_pylist()
        group = [CopyFile(**row) for row in rows]
        progress(f"copying {len(group)} files again")
        result = copy_batch(group, context.mapping, context.secrets, context.objects, overwrite=True)
        failed |= {context.mapping.content_uri(error.file): str(error) for error in result.failures}
    return failed


def _remaining_faults(
    verified: VerificationReport, diagnosis: Diagnosis, failed: dict[str, str]
) -> tuple[RemainingFault, ...]:
    reasons = {fault.file: fault.why for fault in diagnosis.remaining} | failed
    default_reason = "this version makes the same of its source: check the source itself by `sterna verify --deep`"
    files: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in verified.findings:
        files[finding.table, finding.file].append(finding)
    return tuple(remaining_fault(findings, reasons.get(file, default_reason)) for (_, file), findings in files.items())
