"""The DAG of upkeep: off until it is configured, and each step does what it is asked for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sterna.airflow.dags import addon_dag
from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.airflow.steps import parse_maintenance_options
from sterna.config import orphan_removal
from sterna.errors import UpkeepBlocked, UsageError
from sterna.maintenance.deletion.model import Amount
from sterna.maintenance.tables import expire as upkeep_expire
from sterna.maintenance.tables import orphan_files as upkeep_sweep
from sterna.maintenance.tables import plan as upkeep_plan
from sterna.maintenance.tables import run as upkeep_run
from sterna.maintenance.tables.model import Amounts, Group, MaintenancePlan, MaintenanceReport, TablePlan, TableReport
from sterna.maintenance.tables.results import ExpiredTable, ExpiryReport, SweepReport
from tests.unit.airflow.trial import trial_run

PLAN = MaintenancePlan(
    "h", (TablePlan("ns.a", 1, 6, 6, groups=(Group("eu", "", 0, 6, 600, 1, 500, {"us": 500}, 0.5),)),)
)


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
    """What the steps were asked for; section maintenance is configured."""
    services = tmp_path / "services.yaml"
    services.write_text('maintenance: {tables: [{match: ["ns.**"]}]}\n')
    monkeypatch.setenv("AIRFLOW__STERNA__SERVICES", str(services))
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: Region())
    recorded: list[tuple[Any, ...]] = []

    def plan(region: object, settings: Any, tables: tuple[str, ...], progress: Any) -> MaintenancePlan:
        recorded.append(("plan", tables))
        return PLAN

    def run(
        region: object, settings: Any, tables: tuple[str, ...], progress: Any, *, dry_run: bool
    ) -> MaintenanceReport:
        recorded.append(("run", tables, dry_run))
        failed = "EngineError: gone" if tables == ("ns.bad",) else ""
        plan = replace(PLAN, tables=(replace(PLAN.tables[0], starved=("eu",)),)) if tables == ("ns.wet",) else PLAN
        done = TableReport("ns.a", 1, 0, Amounts(6, 600), Amounts(1, 500, 0.5), Amounts(1, 510, 0.51), failed=failed)
        return MaintenanceReport("eu", "upkeep-1", dry_run, plan, (done,))

    def expire(region: object, settings: Any, *, tables: Any, remove: Any, progress: Any) -> ExpiryReport:
        recorded.append(("expire", tables, remove is None))
        blocked = "us: it is silent" if tables == ("ns.blocked",) else ""
        item = ExpiredTable("ns.a", "s3://a", 3, (1, 2), {}, done=True, problem=blocked)
        return ExpiryReport("eu", False, "2026-01-01", "h", "", (item,))

    def sweep(
        region: object, settings: Any, *, delete: bool, excluded_prefixes: Any, near_roots: Any, progress: Any
    ) -> SweepReport:
        recorded.append(("sweep", delete, [*excluded_prefixes, *near_roots]))
        some = Amount(2, 20)
        failed = 0 if not excluded_prefixes else 1
        return SweepReport(
            region="eu",
            pass_id="p",
            dry_run=not delete,
            main="h",
            term="",
            locations=("eu-lake",),
            objects=some,
            strange=some,
            unreachable=some,
            garbage=some,
            deleted=some,
            failed=failed,
        )

    monkeypatch.setattr(upkeep_expire, "expire_snapshots", expire)
    monkeypatch.setattr(upkeep_sweep, "sweep", sweep)
    monkeypatch.setattr(upkeep_expire, "SparkSnapshotRemover", lambda region, settings: "spark")
    monkeypatch.setattr(orphan_removal, "swept_folders", lambda mapping, near_roots: ("eu-lake",))
    monkeypatch.setattr(upkeep_plan, "plan_maintenance", plan)
    monkeypatch.setattr(upkeep_run, "run_maintenance", run)
    return recorded


def test_its_shape() -> None:
    dag = addon_dag("maintenance")
    assert [task.task_id for task in dag.topological_sort()] == ["plan", "run", "expire", "sweep", "watcher"]
    assert (dag.max_active_runs, dag.catchup) == (1, False)
    assert sorted(dag.params) == ["dry_run", "tables"]
    assert "eu" in (dag.doc_md or "")
    assert all(task.execution_timeout for task in dag.tasks if task.task_id != "watcher")
    assert addon_dag("maintenance", dag_id="mine", schedule="").schedule is None


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

    pushed: dict[str, Any] = {}
    context: Any = {"ti": SimpleNamespace(xcom_push=pushed.__setitem__)}
    for table, message in (("ns.bad", "failed for"), ("ns.wet", r"files of ns\.a are starved")):
        task = SternaReconcileOperator(task_id="run", addon="maintenance", step="run", options={"tables": [table]})
        with pytest.raises(AirflowFailException, match=message):
            task.execute(context)
        assert pushed.pop("return_value")["groups"] == 1
    result = SternaReconcileOperator(task_id="run", addon="maintenance", step="run").execute({})
    assert (result["files"], result["bytes"]) == (5, 510)


def test_expiry_that_has_to_wait_fails_its_task(calls: list[tuple[Any, ...]]) -> None:
    with pytest.raises(UpkeepBlocked, match="silent"):
        SternaReconcileOperator(
            task_id="expire", addon="maintenance", step="expire", options={"tables": ["ns.blocked"]}
        ).execute({})
    assert SternaReconcileOperator(task_id="expire", addon="maintenance", step="expire").execute({})["snapshots"] == 2


def test_a_sweep_spares_the_inboxes_of_ingestion(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

    services = tmp_path / "both.yaml"
    services.write_text(
        'maintenance: {tables: [{match: ["ns.**"]}]}\n'
        "ingest: {regions: {eu: {inbox: s3://eu-lake/inbox, database: {credential_id: x}}},"
        " tenants: {acme: {namespaces: [acme]}}, tables: [{match: acme.*}]}\n"
    )
    sweep = SternaReconcileOperator(task_id="sweep", addon="maintenance", step="sweep", services=str(services))
    context: Any = {"ti": SimpleNamespace(xcom_push=lambda key, value: None)}
    with pytest.raises(AirflowFailException, match="could not be deleted"):
        sweep.execute(context)
    assert calls == [("sweep", True, ["s3://eu-lake/inbox"])]
    monkeypatch.setattr(orphan_removal, "swept_folders", lambda mapping, near_roots: ())
    with pytest.raises(AirflowSkipException, match="no location"):
        sweep.execute({})


def test_without_a_section_everything_is_skipped(
    calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from airflow.sdk.exceptions import AirflowSkipException

    empty = tmp_path / "empty.yaml"
    empty.write_text("version: 1\n")
    monkeypatch.setenv("AIRFLOW__STERNA__SERVICES", str(empty))
    for step in ("plan", "run", "expire", "sweep"):
        with pytest.raises(AirflowSkipException, match="no section maintenance"):
            SternaReconcileOperator(task_id=step, addon="maintenance", step=step).execute({})
    assert calls == []


@pytest.mark.slow
def test_a_run_without_a_section_is_skipped_and_not_red(
    database: None, calls: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "empty.yaml").write_text("version: 1\n")
    monkeypatch.setenv("AIRFLOW__STERNA__SERVICES", str(tmp_path / "empty.yaml"))
    run = trial_run("sterna_upkeep", {})
    assert {str(task.state) for task in run.get_task_instances()} == {"skipped"}
    assert (str(run.state), calls) == ("success", [])


def test_an_option_that_nobody_knows_is_refused() -> None:
    with pytest.raises(UsageError, match="tabels"):
        parse_maintenance_options('{"tabels": []}')
