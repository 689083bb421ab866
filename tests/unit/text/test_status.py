"""Where a region stands, in lines: made by hand, so that each line has its cause in view."""

from __future__ import annotations

from dataclasses import replace

from sterna.operations.status.model import ExcludedTable, HeldStatus, RegionStatus, ShortRetention
from sterna.replication.failover.model import Slot
from sterna.replication.replica.catalog_copy import PrimaryOutage
from sterna.replication.replica.held import Held
from sterna.text.plain import to_plain
from sterna.text.status import status_text

STATUS = RegionStatus(
    region="eu",
    branch="main_replica_eu",
    replica_hash="cd" * 32,
    watermark="ab" * 32,
    source_hash="ef" * 32,
    lag_seconds=12.34,
    last_run="run-1",
    last_commit="2026-07-01T12:00:00+00:00",
    held=(),
    other_registry=(),
    watermark_lag_seconds=12.34,
)
HELD = HeldStatus(
    Held("ns.odd", "Unsupported", "is encrypted", "s3://us/odd.json", since="2026-07-01"), 60.0, "wait", 3, "2026-07-02"
)


def test_a_sound_region_needs_two_lines() -> None:
    assert status_text(STATUS).splitlines() == [
        "main_replica_eu: at main@abababababab, main is at efefefefefef; lag 12.3 s",
        "  last commit 2026-07-01T12:00:00+00:00 by run run-1",
    ]


def test_a_region_that_was_never_synced() -> None:
    new = replace(STATUS, replica_hash="", watermark="", last_run="", last_commit="")
    assert status_text(new).splitlines() == [
        "main_replica_eu: at main@nothing, main is at efefefefefef; lag 12.3 s, being seeded",
        "  eu has never synced: unpause its DAG, or sterna sync --region eu",
        "  last commit never by run -",
    ]


def test_all_that_is_known_is_said() -> None:
    full = replace(
        STATUS,
        lag_seconds=None,
        watermark_lag_seconds=None,
        held=(HELD,),
        refused=(ExcludedTable("ns.kept", "policy"), ExcludedTable("ns.left", "residency", 2, 30)),
        short_retention=(ShortRetention("ns.fast", 100.0, 90.0),),
        other_registry=("us",),
        unserved="12" * 32,
        slots=(Slot("sterna_eu", False, "extended", 900, 0.9), Slot("sterna_ap", True, "reserved", 0)),
        unseen=("the evidence of runs: does not answer",),
        problem="somebody else committed",
    )
    assert status_text(full).splitlines() == [
        "main_replica_eu: at main@abababababab, main is at efefefefefef; lag unknown",
        "  published at the primary and not served here yet: 121212121212: see sterna catalog status",
        "  last commit 2026-07-01T12:00:00+00:00 by run run-1",
        "  held ns.odd since 2026-07-01, tried 3 times, last at 2026-07-02: Unsupported: "
        "is encrypted s3://us/odd.json -> wait",
        "  refused ns.kept: policy",
        "  refused ns.left: residency; 2 files, 30 bytes still here: sterna gc --evict --yes deletes them",
        "  warning ns.fast: main keeps its snapshots for 100 s (history.expire.max-snapshot-age-ms), this region is "
        "90 s behind: what is expired before it was copied holds the table",
        "  slot sterna_eu: NOT active, 900 bytes behind, extended, 90 % of its limit",
        "  slot sterna_ap: active, 0 bytes behind, reserved",
        "  region us runs another registry",
        "  not read: the evidence of runs: does not answer",
        "  somebody else committed",
    ]


def test_errors_have_their_names_and_the_links_to_their_cards() -> None:
    carded = replace(HELD, card="docs/operations.md#unsupported")
    lines = status_text(
        replace(STATUS, held=(carded,), problem="no", problem_kind="Diverged", problem_card="book#diverged")
    ).splitlines()
    assert lines[-2].endswith(" -> wait, see docs/operations.md#unsupported")
    assert lines[-1] == "  Diverged: no, see book#diverged"


def test_the_oldest_lag_comes_first_and_beside_it_the_one_without_held_tables() -> None:
    behind = replace(
        STATUS, lag_seconds=2_592_000.0, watermark_lag_seconds=0.0, held=(HELD,), held_lag_seconds=2_592_000.0
    )
    assert "lag 2592000.0 s (without held tables 0.0 s)" in status_text(behind)
    unknown = replace(STATUS, lag_seconds=None, held=(replace(HELD, held=Held("ns.odd", "Waits", "waits")),))
    text = status_text(replace(unknown, held_lag_seconds=None))
    assert "lag unknown (without held tables 12.3 s)" in text
    assert "held ns.odd since an unknown time, tried 3 times" in text


def test_cut_off_the_lag_is_a_bound() -> None:
    cut = replace(STATUS, cut_off=PrimaryOutage("us", "does not answer", "ab" * 32, "2026-07-01", ""))
    first, second, _ = status_text(cut).splitlines()
    assert first.endswith("main was at efefefefefef; lag at most 12.3 s")
    assert second == (
        "  cut off: primary us does not answer; serving main@abababababab as of 2026-07-01; last heard never: does not "
        "answer"
    )


def test_as_data() -> None:
    document = to_plain(replace(STATUS, held=(HELD,)))
    assert document["held"][0]["held"]["file"] == "s3://us/odd.json"
    assert document["short_retention"] == []
