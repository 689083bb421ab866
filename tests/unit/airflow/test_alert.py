"""The lag alert: what is a metric, what makes it fail, and with which words."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from sterna.airflow import operators
from sterna.airflow.metrics import record_sync
from sterna.airflow.operators import SternaLagOperator
from sterna.errors import ServicesError
from sterna.operations.status import read
from sterna.operations.status.model import HeldStatus, InTransitStatus, LaggingRegion, RegionStatus
from sterna.replication.failover.model import Slot
from sterna.replication.replica.catalog_copy import PrimaryOutage
from sterna.replication.replica.held import Held
from sterna.replication.replica.model import Report

MONTH = 30 * 86_400.0
SOUND = RegionStatus(
    "eu", "main_replica_eu", "r", "w", "h", 0.0, "run-1", "", (), (), watermark_lag_seconds=0.0, held_lag_seconds=0.0
)


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def held(
    key: str, lag: float | None, kind: str = "Unsupported", reason: str = "is encrypted", **more: Any
) -> HeldStatus:
    since = "" if lag is None else ago(lag)
    return HeldStatus(Held(key, kind, reason, since=since, **more), lag, "wait")


@pytest.fixture
def look(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run the alert over a status made by hand."""
    monkeypatch.setattr(operators.SternaOperator, "open", lambda self: None)

    def run(status: RegionStatus, **settings: Any) -> float | None:
        asked: dict[str, Any] = {}
        monkeypatch.setattr(read, "read_alarm_status", lambda region, **options: asked.update(options) or status)
        task = SternaLagOperator(task_id="lag", limit=timedelta(minutes=1), **settings)
        run.asked = asked
        return task.execute({})

    return run


def message(look: Any, status: RegionStatus, **settings: Any) -> str:
    """What the alert says, without the links to the run book."""
    with pytest.raises(AirflowFailException) as caught:
        look(status, **settings)
    return re.sub(r": see docs/operations\.md#\S+$", "", str(caught.value), flags=re.MULTILINE)


def test_a_sound_region_is_green(look: Any, metrics: dict[str, float]) -> None:
    assert look(replace(SOUND, lag_seconds=59.0, watermark_lag_seconds=59.0)) == 59.0
    assert metrics == {
        "sterna.lag_seconds": 59.0,
        "sterna.watermark_lag_seconds": 59.0,
        "sterna.held_lag_seconds": 0.0,
        "sterna.held_tables": 0,
        "sterna.held_ignored_tables": 0,
        "sterna.transit_tables": 0,
        "sterna.transit_bytes": 0,
        "sterna.transit_lag_seconds": 0.0,
        "sterna.alarms": 0,
        "sterna.unseen": 0,
        "sterna.cut_off": 0,
    }


def test_a_region_that_lags_over_the_limit_fails(look: Any, metrics: dict[str, float]) -> None:
    text = message(look, replace(SOUND, lag_seconds=61.0, watermark_lag_seconds=61.0))
    assert text == "eu lags 61 s behind main: main_replica_eu is at main@w"
    assert (metrics["sterna.lag_seconds"], metrics["sterna.alarms"]) == (61.0, 1)


def test_a_branch_that_can_not_be_used_fails(look: Any, metrics: dict[str, float]) -> None:
    broken = replace(SOUND, lag_seconds=None, watermark_lag_seconds=None, problem="changed by somebody")
    assert message(look, broken) == "changed by somebody"
    assert "sterna.lag_seconds" not in metrics
    assert metrics["sterna.alarms"] == 1


def test_an_alarm_ends_with_the_link_to_its_entry(look: Any) -> None:
    unusable = replace(SOUND, problem="no", problem_kind="Diverged", problem_card="docs/operations.md#diverged")
    with pytest.raises(AirflowFailException) as caught:
        look(replace(unusable, unseen=("the slots: no",)))
    assert str(caught.value).splitlines() == [
        "Diverged: no: see docs/operations.md#diverged",
        "the state of eu is incomplete; not read: the slots: no: "
        "see docs/operations.md#the-state-of-r-is-incomplete-not-read-",
    ]


def test_a_table_that_is_held_for_a_month_fails_by_its_name(look: Any, metrics: dict[str, float]) -> None:
    old, new = held("ns.old", MONTH), held("ns.new", 5.0, "Damaged")
    status = replace(SOUND, lag_seconds=MONTH, held=(new, old), held_lag_seconds=MONTH)
    assert message(look, status) == (
        "eu holds 1 tables for more than 60 s, the oldest first: ns.old for 2592000 s: Unsupported: is encrypted"
    )
    assert metrics["sterna.lag_seconds"] == metrics["sterna.held_lag_seconds"] == pytest.approx(MONTH, abs=60)
    assert (metrics["sterna.watermark_lag_seconds"], metrics["sterna.held_tables"]) == (0.0, 2)


def test_of_many_held_tables_the_oldest_few_are_named_and_the_others_counted(look: Any, metrics: Any) -> None:
    many = tuple(held(f"ns.t{number}", 100.0 + number) for number in range(12))
    text = message(look, replace(SOUND, held=many, held_lag_seconds=111.0))
    assert text.startswith("eu holds 12 tables for more than 60 s, the oldest first: ns.t11 for 111 s")
    assert text.endswith("ns.t7 for 107 s: Unsupported: is encrypted; and 7 more")


def test_a_table_in_transit_is_not_held_and_lags(look: Any, metrics: dict[str, float]) -> None:
    moving = InTransitStatus(
        held("ns.big", 100.0, "InTransit", "the large lane brings it", bytes=9).held, 100.0, 5, True
    )
    status = replace(SOUND, lag_seconds=100.0, transit=(moving,), transit_lag_seconds=100.0)
    text = "eu lags behind main by more than 60 s with tables in transit: ns.big by 100 s, 5 bytes left"
    assert message(look, status) == text
    idle = replace(status, transit=(replace(moving, under_way=False),))
    assert message(look, idle) == f"{text}, and no bulk run is copying it"
    assert metrics["sterna.lag_seconds"] == metrics["sterna.transit_lag_seconds"] == pytest.approx(100.0, abs=60)
    counts = {name: metrics[f"sterna.{name}"] for name in ("held_tables", "transit_tables", "transit_bytes")}
    assert counts == {"held_tables": 0, "transit_tables": 1, "transit_bytes": 5}
    young = replace(status, transit=(replace(moving, lag_seconds=59.0),), transit_lag_seconds=59.0)
    assert look(young) == 59.0


def test_a_table_that_waits_for_another_counts_as_well(look: Any, metrics: dict[str, float]) -> None:
    waiting = held("ns.b", 100.0, "Waits", "committed together with ns.a, which is held", waits_for="ns.a")
    text = message(look, replace(SOUND, held=(held("ns.a", 100.0), waiting)), ignore_held=["ns.a"])
    assert "holds 1 tables" in text
    assert "ns.b for 100 s: Waits: committed together with ns.a" in text
    assert metrics["sterna.held_lag_seconds"] == pytest.approx(100.0, abs=60)


def test_a_table_that_may_be_held_is_shown_and_no_alarm(
    look: Any, metrics: dict[str, float], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__STERNA__IGNORE_HELD", "scratch.**, ns.o?d")
    status = replace(SOUND, lag_seconds=MONTH, held=(held("ns.old", MONTH), held("scratch.a.b", None)))
    caplog.set_level("INFO")
    assert look(status) == 0.0
    assert (metrics["sterna.lag_seconds"], metrics["sterna.held_lag_seconds"]) == (0.0, 0.0)
    assert (metrics["sterna.held_tables"], metrics["sterna.held_ignored_tables"]) == (2, 2)
    report = Report("run-1", "eu", "h", "published", "r", held=tuple(item.held for item in status.held))
    metrics.clear()
    record_sync(report)
    assert (metrics["sterna.lag_seconds"], metrics["sterna.held_ignored_tables"]) == (0.0, 2)


def test_after_a_sync_the_gauge_is_the_oldest_lag(metrics: dict[str, float]) -> None:
    old = held("ns.old", MONTH).held
    record_sync(Report("run-1", "eu", "h", "published", "r", held=(old,), lag_seconds=MONTH, watermark_lag_seconds=2.0))
    assert metrics["sterna.lag_seconds"] == metrics["sterna.held_lag_seconds"] == pytest.approx(MONTH, abs=60)
    assert metrics["sterna.watermark_lag_seconds"] == 2.0


def test_held_nobody_knows_since_when_is_never_green(look: Any, metrics: dict[str, float]) -> None:
    status = replace(SOUND, lag_seconds=None, held=(held("ns.odd", None),), held_lag_seconds=None)
    assert "ns.odd for an unknown time: Unsupported" in message(look, status)
    assert "sterna.lag_seconds" not in metrics
    assert metrics["sterna.alarms"] == 1


def test_a_region_that_is_cut_off_fails(look: Any, metrics: dict[str, float]) -> None:
    cut = PrimaryOutage("us", "does not answer", "ab" * 32, ago(5), ago(5))
    text = message(look, replace(SOUND, cut_off=cut))
    assert text.startswith("eu is cut off: primary us does not answer; serving main@abababababab")
    assert (metrics["sterna.cut_off"], metrics["sterna.alarms"]) == (1, 1)
    far = replace(SOUND, cut_off=cut, watermark_lag_seconds=70.0)
    assert message(look, far).splitlines()[0].startswith("eu lags at most 70 s behind main")


def test_a_clean_up_that_does_not_get_ahead_fails(look: Any, metrics: dict[str, float]) -> None:
    status = replace(SOUND, oldest_evidence=ago(16 * 86_400))
    assert "no clean-up of eu gets ahead: evidence of a run is 13824" in message(look, status)
    assert metrics["sterna.gc_lag_seconds"] == pytest.approx(16 * 86_400, abs=60)
    assert look(replace(SOUND, oldest_evidence=ago(9 * 86_400))) == 0.0
    assert look(status, gc_limit=timedelta(days=30)) == 0.0


def test_where_no_clean_up_is_run_nobody_looks_for_what_it_left(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    look(SOUND)
    assert look.asked == {"evidence": True, "maintenance": None}
    monkeypatch.setenv("AIRFLOW__STERNA__GC_LIMIT", "0")
    look(replace(SOUND, oldest_evidence=ago(MONTH)))
    assert look.asked == {"evidence": False, "maintenance": None}


@pytest.mark.parametrize(
    ("slot", "fails"),
    [
        (Slot("sterna_eu", True, "reserved", 10, 0.1), False),
        (Slot("sterna_eu", True, "extended", 10, None), False),
        (Slot("sterna_eu", False, "extended", 900, 0.9), True),
        (Slot("sterna_eu", False, "unreserved", 900, None), True),
        (Slot("sterna_eu", False, "lost", 900, 1.0), True),
        (Slot("sterna_eu", False, "missing", 900), True),
    ],
    ids=lambda value: getattr(value, "wal_status", None),
)
def test_a_slot_near_its_limit_fails(slot: Slot, fails: bool, look: Any, metrics: dict[str, float]) -> None:
    status = replace(SOUND, slots=(slot,))
    if fails:
        assert f"sterna_eu: {slot.wal_status}, NOT active, 900 bytes behind" in message(look, status)
    else:
        assert look(status) == 0.0
    assert metrics["sterna.slot_behind_bytes"] == slot.behind
    assert metrics.get("sterna.slot_used") == slot.used
    assert metrics["sterna.alarms"] == int(fails)


def test_what_can_not_be_looked_at_is_said_and_counted_and_never_called_well(
    look: Any, metrics: dict[str, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    monkeypatch.setattr(SternaLagOperator, "log_progress", lambda self, line: lines.append(line))
    unseen = replace(SOUND, unseen=("the replication slots: refused the login", "the evidence of runs: no answer"))
    text = "not read: the replication slots: refused the login; the evidence of runs: no answer"
    assert message(look, unseen) == f"the state of eu is incomplete; {text}"
    assert lines == [f"not read: {what}" for what in unseen.unseen]
    assert (metrics["sterna.unseen"], metrics["sterna.alarms"]) == (2, 1)
    look(SOUND)
    assert metrics["sterna.unseen"] == 0


def test_what_metadata_brought_along_writes_no_line_of_its_own(look: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(SternaLagOperator, "log_progress", lambda self, line: lines.append(line))
    nasty = held("ns.bad", MONTH, reason="no\n[2026] INFO all is well\x1b[2J \ud800")
    text = message(look, replace(SOUND, held=(nasty,)))
    assert r"no\x0a[2026] INFO all is well\x1b[2J \ud800" in text
    assert all(line.isprintable() for line in (*text.splitlines(), *lines))
    assert len(text.splitlines()) == 1


def test_every_alarm_is_told_at_once(look: Any, metrics: dict[str, float]) -> None:
    slots = (Slot("sterna_eu", False, "lost", 0, 1.0),)
    status = replace(SOUND, watermark_lag_seconds=61.0, held=(held("ns.a", MONTH),), slots=slots)
    assert len(message(look, status).splitlines()) == metrics["sterna.alarms"] == 3


def test_a_silent_region_that_upkeep_waits_for_is_an_alarm_where_upkeep_is_configured(
    look: Any, metrics: dict[str, float], tmp_path: Any
) -> None:
    services = tmp_path / "services.yaml"
    services.write_text("version: 1\nmaintenance: {tables: [{match: ['**']}], max_wait: 2d}\n")
    silent = replace(SOUND, silent=(LaggingRegion("ap", 3 * 86_400.0), LaggingRegion("us", None, "was changed")))
    assert message(look, silent, services=str(services)) == (
        "maintenance of main waits for ap, and storage grows: it is 259200 s behind main; "
        "maintenance of main waits for us, and storage grows: was changed"
    )
    assert look.asked["maintenance"].max_wait == 2 * 86_400
    assert (metrics["sterna.maintenance_waits_for"], metrics["sterna.alarms"]) == (2, 1)
    assert look(replace(SOUND, silent=()), services=str(services)) == 0.0
    assert metrics["sterna.maintenance_waits_for"] == 0
    look(SOUND)
    assert look.asked["maintenance"] is None


def test_a_broken_services_file_hides_no_alarm_and_is_told(look: Any, tmp_path: Any) -> None:
    services = tmp_path / "services.yaml"
    services.write_text("version: 1\nmaintenance: nonsense\n")
    with pytest.raises(ServicesError, match="maintenance"):
        look(SOUND, services=str(services))
    late = replace(SOUND, lag_seconds=61.0, watermark_lag_seconds=61.0)
    assert "lags 61 s" in message(look, late, services=str(services))
