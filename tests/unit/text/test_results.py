"""What commands did, in lines: sync, verify, repair, gc and the registry check."""

from __future__ import annotations

from dataclasses import replace

from sterna.maintenance.deletion.model import Amount, NotDeleted
from sterna.maintenance.gc.model import GcReport
from sterna.maintenance.tables.results import FolderSize, SweepReport
from sterna.operations.registry_check import Probe, RegistryCheck
from sterna.replication.repair.plan import FileRepair, RemainingFault
from sterna.replication.repair.run import RepairReport
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report, StageReport
from sterna.replication.verify.findings import Finding, VerificationReport
from sterna.text.gc import collected_text, swept_text
from sterna.text.lines import NOTHING_CHANGED
from sterna.text.registry import check_text
from sterna.text.sync import report_text
from sterna.text.verify import repaired_text, verified_text

COLLECTED = GcReport(
    region="eu",
    pass_id="collect-1",
    replica_hash="ab",
    dry_run=True,
    objects=Amount(9, 90),
    strange=Amount(1, 5),
    unreachable=Amount(4, 40),
    garbage=Amount(2, 20),
    refused=Amount(1, 10),
)
MEND = FileRepair("ns.a", "file:///eu/a", "file:///us/a", "copy", "missing")


def test_a_report() -> None:
    held = Held("ns.odd", "Unsupported", "is encrypted")
    report = Report(
        "r", "eu", "ab" * 32, "published", "cd", "ab" * 32, ("ns.a",), (held,), StageReport(2, 20), seconds=1
    )
    assert report_text(report, "main_replica_eu").splitlines() == [
        "published: main_replica_eu is at main@abababababab; 1 keys changed; 2 files, 20 bytes copied; lag 0.0 s; "
        "1.0 s",
        "  held ns.odd: Unsupported: is encrypted",
    ]


def test_a_report_names_the_regions_whose_copies_were_sent() -> None:
    copied = StageReport(3, 30, 30, sent_from={"ap": 10, "sa": 5})
    report = Report("r", "eu", "ab" * 32, "published", "cd", copied=copied)
    lines = ["  10 bytes from copies in ap", "  5 bytes from copies in sa"]
    assert report_text(report, "main_replica_eu").splitlines()[1:] == lines
    assert report_text(replace(report, outcome="copied"), "main_replica_eu").splitlines()[1:] == lines


def test_what_verify_found() -> None:
    verified = VerificationReport(1, 5, 50, 0, (Finding("ns.a", "missing", "file:///eu/a", "is gone"),), 1, compared=3)
    assert verified_text(verified, deep=False).splitlines() == [
        "1 tables and views, 5 files, 50 bytes: 1 faults",
        "  ns.a: missing: file:///eu/a: is gone",
    ]
    assert ", 3 files compared with main, 0 not comparable: 1 faults" in verified_text(verified, deep=True)


def test_a_repair_that_was_only_shown_says_so_last() -> None:
    left = RemainingFault("ns.b", "file:///eu/b", "size", "its source is gone")
    shown = RepairReport(False, 2, (MEND,), (left,), 2)
    assert repaired_text(shown).splitlines() == [
        "2 faults: 1 files could be copied again; 2 faults left",
        "  ns.a: copy: file:///eu/a from file:///us/a: missing",
        "  ns.b: left: file:///eu/b: size -> its source is gone",
        NOTHING_CHANGED,
    ]
    assert NOTHING_CHANGED not in repaired_text(replace(shown, applied=True))
    assert NOTHING_CHANGED not in repaired_text(replace(shown, mends=())), "--yes would do nothing either"


def test_a_clean_up_that_only_counted_says_so_last() -> None:
    assert collected_text(COLLECTED, evict=False).splitlines() == [
        "eu: 9 files, 90 bytes below the replica root; 4 files, 40 bytes unreachable",
        "  2 files, 20 bytes would be deleted now",
        "  1 files, 10 bytes of refused tables: --evict deletes them at once",
        "  1 files, 5 bytes not sterna's: left alone",
        NOTHING_CHANGED,
    ]


def test_a_clean_up_that_deleted() -> None:
    failures = (NotDeleted("file:///eu/x", "denied"),)
    done = replace(COLLECTED, dry_run=False, deleted=Amount(1, 10), failed=1, failures=failures, still_shown=("ns.s",))
    assert collected_text(done, evict=True).splitlines()[1:] == [
        "  2 files, 20 bytes were to be deleted",
        "  1 files, 10 bytes deleted, 1 failed",
        "  1 files, 10 bytes of refused tables",
        "  1 files, 5 bytes not sterna's: left alone",
        "  ns.s is refused and still on the replica branch: sync first",
        "  failed file:///eu/x: denied",
    ]


def test_a_sweep_that_only_counted_and_one_that_deleted() -> None:
    counted = SweepReport(
        region="us",
        pass_id="sweep-1",
        dry_run=True,
        main="ab",
        term="",
        locations=("us-lake", "us-old"),
        objects=Amount(9, 90),
        strange=Amount(1, 5),
        unreachable=Amount(4, 40),
        garbage=Amount(2, 20),
        folders=(FolderSize("s3://us/a/data", Amount(2, 20)),),
    )
    notes = [
        "  1 files, 5 bytes that are no files of tables: left alone",
        "  2 files, 20 bytes below s3://us/a/data",
    ]
    assert swept_text(counted).splitlines() == [
        "us: 9 files, 90 bytes in us-lake, us-old; 4 files, 40 bytes that nothing needs",
        "  2 files, 20 bytes would be deleted now",
        *notes,
        NOTHING_CHANGED,
    ]
    done = replace(counted, dry_run=False, deleted=Amount(1, 10), failed=1, failures=(NotDeleted("s3://us/x", "no"),))
    assert swept_text(done).splitlines()[1:] == [
        "  2 files, 20 bytes were to be deleted",
        "  1 files, 10 bytes deleted, 1 failed",
        *notes,
        "  failed s3://us/x: no",
    ]


def test_a_registry_check() -> None:
    checked = RegistryCheck(False, (Probe("eu", "rclone", True, "v1"), Probe("eu", "store s3://us", False, "dark", 4)))
    assert check_text(checked) == "ok   eu: rclone: v1\nFAIL eu: store s3://us: dark"
