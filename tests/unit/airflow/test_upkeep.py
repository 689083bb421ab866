"""The DAG of upkeep: off until it is configured, and each step does what it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from sterna.airflow.upkeep import (
    SternaUpkeepExpireOperator,
    SternaUpkeepOperator,
    SternaUpkeepPlanOperator,
    SternaUpkeepRunOperator,
    SternaUpkeepSweepOperator,
    read_upkeep_options,
    upkeep_dag,
)
from sterna.cleaning.model import Amount
from sterna.errors import UpkeepBlocked, UsageError
from sterna.registry import sweeping
from sterna.upkeep import committing
from sterna.upkeep import expire as upkeep_expire
from sterna.upkeep import plan as upkeep_plan
from sterna.upkeep import run as upkeep_run
from sterna.upkeep import sweep as upkeep_sweep
from sterna.upkeep.model import Amounts, Group, TableDone, TablePlan, UpkeepDone, UpkeepPlan
from sterna.upkeep.results import ExpiredTable, Expiry, Swept
from tests.unit.airflow.trial import trial_run

PLAN = UpkeepPlan("h", (TablePlan("ns.a", 1, 6, 6, groups=(Group("eu", "", 0, 6, 600, 1, 500, {"us": 500}, 0.5),)),))


class Region:
    """A region as far as upkeep's operators look at it."""

    name = "eu"

    @property
    def region(self) -> Region:
        return self

    @property
    def mapping(self) -> Region:
        return self


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Any, ...]]:
    """What the steps were asked for; section upkeep is configured."""
    services = tmp_path / "services.yaml"
    services.write_text('upkeep: {tables: [{match: ["ns.**"]}]}\n')
    monkeypatch.setenv("AIRFLOW__STERNA__SERVICES", str(services))
    monkeypatch.setattr(SternaUpkeepOperator, "open", lambda self: Region())
    found: list[tuple[Any, ...]] = []

    def plan(region: object, settings: Any, tables: tuple[str, ...], progress: Any) -> UpkeepPlan:
        found.append(("plan", tables))
        return PLAN

    def run(region: object, settings: Any, tables: tuple[str, ...], progress: Any, *, dry_run: bool) -> UpkeepDone:
        found.append(("run", tables, dry_run))
        failed = "EngineError: gone" if tables == ("ns.bad",) else ""
        plan = replace(PLAN, tables=(replace(PLAN.tables[0], starved=("eu",)),)) if tables == ("ns.wet",) else PLAN
        done = TableDone("ns.a", 1, 0, Amounts(6, 600), Amounts(1, 500, 0.5), Amounts(1, 510, 0.51), failed=failed)
        return UpkeepDone("eu", "upkeep-1", dry_run, plan, (done,))

    def expire(region: object, settings: Any, *, tables: Any, remove: Any, progress: Any) -> Expiry:
        found.append(("expire", tables, remove is None))
        blocked = "us: it is silent" if tables == ("ns.blocked",) else ""
        item = ExpiredTable("ns.a", "s3://a", 3, (1, 2), {}, done=True, problem=blocked)
        return Expiry("eu", False, "2026-01-01", "h", "", (item,))

    def sweep(region: object, settings: Any, *, delete: bool, spared: Any, progress: Any) -> Swept:
        found.append(("sweep", delete, list(spared)))
        some = Amount(2, 20)
        failed = 0 if not spared else 1
        return Swept("eu", "p", not delete, "", "h", "", ("eu-lake",), some, some, some, some, some, failed)

    monkeypatch.setattr(upkeep_expire, "expire", expire)
    monkeypatch.setattr(upkeep_sweep, "sweep", sweep)
    monkeypatch.setattr(committing, "BySpark", lambda region, settings: "spark")
    monkeypatch.setattr(sweeping, "swept_locations", lambda mapping: ("eu-lake",))
    monkeypatch.setattr(upkeep_plan, "make_plan", plan)
    monkeypatch.setattr(upkeep_run, "upkeep", run)
    return found


def test_its_shape() -> None:
    dag = upkeep_dag()
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "run", "expire", "sweep", "watcher"]
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert sorted(dag.params) == ["dry_run", "tables"]
    assert "eu" in (dag.doc_md or "")
    assert all(task.execution_timeout for task in dag.tasks if task.task_id != "watcher")
    assert upkeep_dag(dag_id="mine", schedule="").schedule is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("conf", "asked", "state"),
    [
        ({}, [("plan", ()), ("run", (), False), ("expire", (), False), ("sweep", True, [])], "success"),
        (
            {
                "tables": ["ns.bad"]
            },  # the task `run` fails, and those behind it go on: an alert on the run has to see it
            [("plan", ("ns.bad",)), ("run", ("ns.bad",), False), ("expire", ("ns.bad",), False), ("sweep", True, [])],
            "failed",
        ),
        (
            {"tables": ["ns.a"]},
            [
                ("plan", ("ns.a",)),
                ("run", ("ns.a",), False),
                ("expire", ("ns.a",), False),
                ("sweep", True, []),
            ],
            "success",
        ),
        ({"dry_run": True}, [("plan", ())], "success"),
    ],
)
def test_a_run_does_what_it_is_asked_for(
    database: None, calls: list[tuple[Any, ...]], conf: dict[str, Any], asked: list[tuple[Any, ...]], state: str
) -> None:
    run = trial_run("sterna_upkeep", conf)
    assert (str(run.state), calls) == (state, asked)


def test_what_went_wrong_with_a_table_fails_the_task(calls: list[tuple[Any, ...]]) -> None:
    from airflow.sdk.exceptions import AirflowFailException

    with pytest.raises(AirflowFailException, match="failed for"):
        SternaUpkeepRunOperator(task_id="run", options={"tables": ["ns.bad"]}).execute({})
    with pytest.raises(AirflowFailException, match=r"files of ns\.a are starved"):
        SternaUpkeepRunOperator(task_id="run", options={"tables": ["ns.wet"]}).execute({})
    result = SternaUpkeepRunOperator(task_id="run").execute({})
    assert (result["files"], result["bytes"]) == (5, 510)


def test_expiry_that_has_to_wait_fails_its_task(calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(UpkeepBlocked, match="silent"):
        SternaUpkeepExpireOperator(task_id="expire", options={"tables": ["ns.blocked"]}).execute({})
    assert SternaUpkeepExpireOperator(task_id="expire").execute({})["snapshots"] == 2


def test_a_sweep_spares_the_inboxes_of_ingestion(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    services = tmp_path / "both.yaml"
    services.write_text(
        'upkeep: {tables: [{match: ["ns.**"]}]}\n'
        "ingest: {regions: {eu: {inbox: s3://eu-lake/inbox, database: {credential_id: x}}},"
        " tenants: {acme: {namespaces: [acme]}}, tables: [{match: acme.*}]}\n"
    )
    sweep = SternaUpkeepSweepOperator(task_id="sweep", services=str(services))
    with pytest.raises(AirflowFailException, match="could not be deleted"):
        sweep.execute({})
    assert calls == [("sweep", True, ["s3://eu-lake/inbox"])]
    monkeypatch.setattr(sweeping, "swept_locations", lambda mapping: ())
    with pytest.raises(AirflowSkipException, match="no location"):
        sweep.execute({})


def test_without_a_section_everything_is_skipped(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    empty = tmp_path / "empty.yaml"
    empty.write_text("version: 1\n")
    monkeypatch.setenv("AIRFLOW__STERNA__SERVICES", str(empty))
    skipped: list[Any] = []
    monkeypatch.setattr(SternaUpkeepPlanOperator, "skip_all_except", lambda self, ti, kept: skipped.append(kept))
    assert SternaUpkeepPlanOperator(task_id="plan").execute({"ti": None})["tables"] == 0
    assert skipped == [[]]
    for kind in (SternaUpkeepRunOperator, SternaUpkeepExpireOperator, SternaUpkeepSweepOperator):
        with pytest.raises(AirflowSkipException):
            kind(task_id="step").execute({})
    assert calls == []


def test_an_option_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="tabels"):
        read_upkeep_options('{"tabels": []}')
