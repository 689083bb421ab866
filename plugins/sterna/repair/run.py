"""Repairing a replica: wrong and missing files below the replica root are brought anew from `main`, and nothing
else is touched.

It is the one place where an object that a head of the replica reaches is written over, with what belongs there: the
mapping is a function, so the right content of each place is known. (A copy, too, sends again over a file of a wrong
size, which a killed copy left: but no head reaches that one.) What is wrong is found by `verify`, before and after. And
a sync that counts on what was there before is overtaken.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sterna.json_record import FLAG, INTEGER, TEXT, Field, Record, Unknown, many, one_of
from sterna.registry import run_names
from sterna.repair.diagnose import Diagnosis, Left, Mend, diagnose, left_over
from sterna.replica import file_list as listing
from sterna.replica import run_folder
from sterna.replica.ids import new_run_id
from sterna.replica.region import Progress, RegionContext
from sterna.sync.copy import CopyFile, copy_batch
from sterna.sync.engine import Engine, spark_engine
from sterna.sync.localize import localize_files
from sterna.sync.options import SyncOptions
from sterna.sync.plan.batches import cut
from sterna.sync.publish import overtake
from sterna.verify.findings import Finding, Verified
from sterna.verify.run import Depth, verify


@dataclass(frozen=True)
class Repaired:
    """What a repair did, or would do.

    Args:
        applied: it was done, not only shown.
        faults: how many verify found at first.
        mends: files that were, or would be, brought anew. Lists and manifests of deletes that name such files are
            written anew with them, where that changes them, without being named here.
        left: faults that stay, at most 1,000 a table.
        faults_left: how many stay; when nothing was applied, all of them.
    """

    applied: bool
    faults: int
    mends: tuple[Mend, ...]
    left: tuple[Left, ...]
    faults_left: int


MEND: Final = Record(
    Mend,
    (
        Field("table", TEXT),
        Field("file", TEXT),
        Field("source", TEXT),
        Field("how", one_of("copy", "localize")),
        Field("why", TEXT),
    ),
    Unknown.IGNORE,
)
LEFT: Final = Record(
    Left,
    (Field("table", TEXT), Field("file", TEXT), Field("fault", TEXT), Field("why", TEXT)),
    Unknown.IGNORE,
)
REPAIRED: Final = Record(
    Repaired,
    (
        Field("applied", FLAG),
        Field("faults", INTEGER),
        Field("mends", many(MEND.kind)),
        Field("left", many(LEFT.kind)),
        Field("faults_left", INTEGER),
    ),
    Unknown.IGNORE,
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
) -> Repaired:
    """Verify a replica and bring what is wrong anew from `main`, until nothing more can be done.

    Args:
        context: the region.
        tables: key names or patterns, as in a policy; none: all.
        progress: called with lines for people.
        deep: find files whose content isn't the source's, too.
        apply: do it; else only say what would be done.
        engine: where to localize; default: the region's Spark.

    Returns:
        What was done and what stays. A report of it is left beside the replica, as of every run.

    Raises:
        UsageError: a name or pattern fits no table or view on the branch.
        CatalogError, StoreError, EngineError: something does not answer; doing it again goes on.
    """
    depth = Depth(deep)
    found = first = verify(context, depth, tables, progress)
    diagnosis = diagnose(context, found)
    if not apply or not first.faults:
        return Repaired(False, first.faults, diagnosis.mends, diagnosis.left, first.faults)
    context.primary.reference(context.region.replica_branch)  # must answer, before anything is written over
    run_id = new_run_id()
    done: dict[str, Mend] = {}
    failed: dict[str, str] = {}
    rounds = 0
    names = sorted({finding.table for finding in first.findings})
    # A file that is brought anew may lead to others that could not be looked at before.
    while fresh := [mend for mend in diagnosis.mends if mend.file not in done]:
        done |= {mend.file: mend for mend in fresh}
        failed |= _apply(context, run_folder.run_uri(context, run_id), fresh, diagnosis, engine, progress)
        # A file that was written over may be shorter now than a sync that is under way says of it. It is published no
        # more; what it published before is on the branch that is verified now.
        rounds += 1
        overtake(context, f"repair-{run_id}-{rounds}")
        found = verify(context, depth, names, progress)
        diagnosis = diagnose(context, found)
    mended = tuple(mend for mend in done.values() if mend.file not in {finding.file for finding in found.findings})
    result = Repaired(True, first.faults, mended, _left(found, diagnosis, failed), found.faults)
    context.objects.write_new(
        f"{run_folder.run_uri(context, run_id)}/{run_names.REPAIR}", REPAIRED.dumps(result).encode()
    )
    return result


def _apply(
    context: RegionContext, run: str, mends: list[Mend], diagnosis: Diagnosis, engine: Engine | None, progress: Progress
) -> dict[str, str]:
    """Bring files anew; return why, of those that couldn't be."""
    copies = {mend.file for mend in mends if mend.how == "copy"}
    anew = {mend.file: mend.table for mend in mends if mend.how == "localize"}
    failed = _copy(context, diagnosis, copies, progress) if copies else {}
    if anew:
        others = set(diagnosis.files.column("table").to_pylist()) - set(anew.values())
        files = listing.without_tables(diagnosis.files, others)
        with spark_engine(context, progress) as spark:
            report = localize_files(context, run, files, engine or spark, progress, anew)
        failed |= {
            file: f"{message} {at}".rstrip()
            for table, _, message, at in report.failed
            for file in anew
            if anew[file] == table
        }
    return failed


def _copy(context: RegionContext, diagnosis: Diagnosis, targets: set[str], progress: Progress) -> dict[str, str]:
    import pyarrow as pa
    import pyarrow.compute as pc

    wanted = diagnosis.files.filter(pc.is_in(diagnosis.files.column("target"), pa.array(sorted(targets), pa.string())))
    numbers, batches = cut(wanted, context.mapping, SyncOptions())
    failed: dict[str, str] = {}
    for batch in batches:
        rows = wanted.filter(pc.equal(numbers, batch.number)).select(["table", "source", "target", "size"]).to_pylist()
        group = [CopyFile(**row) for row in rows]
        progress(f"copying {len(group)} files anew")
        result = copy_batch(group, context.mapping, context.secrets, context.objects, anew=True)
        failed |= {context.mapping.content(error.file): str(error) for error in result.failures}
    return failed


def _left(found: Verified, diagnosis: Diagnosis, failed: dict[str, str]) -> tuple[Left, ...]:
    known = {item.file: item.why for item in diagnosis.left} | failed
    unhealed = "it is what this version makes of its source: look at the source itself by `sterna verify --deep`"
    files: dict[tuple[str, str], list[Finding]] = defaultdict(list)
    for finding in found.findings:
        files[finding.table, finding.file].append(finding)
    return tuple(left_over(findings, known.get(file, unhealed)) for (_, file), findings in files.items())
