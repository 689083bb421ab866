"""The DAGs that verify and repair a replica: what they look like, and what they find, show, mend and refuse."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException, ParamValidationError

from sterna.airflow.dags import addon_dag
from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.airflow.steps import parse_repair_options, parse_verify_options
from sterna.errors import UsageError
from sterna.text.lines import NOTHING_CHANGED
from tests.support.small_world import make_world, run
from tests.unit.airflow.trial import trial_run


@pytest.fixture
def flipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of eu's replica with a byte that isn't the source's; tasks run in that region."""
    world = make_world(tmp_path)
    world.commit(a=world.write("a"), b=world.write("b"))
    run(world)
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: world.context())
    (path,) = (world.folder / "eu" / "replica" / "us-lake" / "a").rglob("*.parquet")
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    return path


def execute(addon: Any, pushed: dict[str, Any], **options: Any) -> Any:
    task = SternaReconcileOperator(task_id=addon, addon=addon, options=options)
    return task.execute({"ti": SimpleNamespace(xcom_push=pushed.__setitem__)})  # type: ignore[typeddict-item]


def test_their_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    verify, repair = addon_dag("verify"), addon_dag("repair")
    assert verify.timetable.expression == "40 5 * * *"
    assert repair.schedule is None
    for dag in (verify, repair):
        (task,) = dag.tasks
        assert (task.execution_timeout, dag.max_active_runs, dag.catchup) == (timedelta(hours=6), 1, False)
    assert (verify.is_paused_upon_creation, repair.is_paused_upon_creation) == (True, False)
    assert dict(verify.params) == {"tables": [], "deep": False, "sample": ""}
    assert dict(repair.params) == {"tables": [], "deep": False, "dry_run": False}
    monkeypatch.setenv("AIRFLOW__STERNA__VERIFY_SAMPLE", "1/30")
    monkeypatch.setenv("AIRFLOW__STERNA__VERIFY_SCHEDULE", "")
    verify = addon_dag("verify")
    assert (verify.schedule, verify.params["sample"]) == (None, "1/30")


def test_a_flipped_byte_is_found_shown_and_mended(flipped: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pushed: dict[str, Any] = {}
    log: list[str] = []
    monkeypatch.setattr(SternaReconcileOperator, "log_progress", lambda self, line: log.append(line))
    assert execute("verify", pushed)["faults"] == 0, "the structure says nothing of it"
    assert execute("verify", pushed, deep=True, tables=["ns.b"])["compared_files"] > 0
    for more in ({"deep": True}, {"sample": "1/1"}, {"deep": True, "sample": "1/999999999"}):
        with pytest.raises(AirflowFailException, match=r"^1 faults in ns\.a: the log names each; `sterna_repair` "):
            execute("verify", pushed, **more)
        assert pushed.pop("return_value")["faults"] == 1
        assert any(line.startswith(f"  ns.a: differs: file://{flipped}: ") for line in log)
        log.clear()
    before = flipped.read_bytes()
    shown = execute("repair", pushed, deep=True, dry_run=True)
    assert shown == {"dry_run": True, "faults": 1, "mends": 1, "faults_left": 1}
    assert any(line.startswith(f"  ns.a: copy: file://{flipped} from file://") for line in log)
    assert log[-1] == NOTHING_CHANGED
    assert flipped.read_bytes() == before
    assert execute("repair", pushed)["faults"] == 0
    assert execute("repair", pushed, deep=True) == {"dry_run": False, "faults": 1, "mends": 1, "faults_left": 0}
    assert flipped.read_bytes() != before
    assert execute("verify", pushed, deep=True)["faults"] == 0
    assert pushed == {}


def test_a_repair_that_leaves_faults_fails(flipped: Path) -> None:
    (source,) = (flipped.parents[5] / "us" / "lake" / "a").rglob("*.parquet")
    flipped.unlink()
    source.unlink()
    pushed: dict[str, Any] = {}
    assert execute("repair", pushed, dry_run=True)["faults_left"] == 1
    with pytest.raises(AirflowFailException, match=r"^1 faults are left in ns\.a: the log says why each stays$"):
        execute("repair", pushed)
    assert pushed["return_value"]["faults_left"] == 1


@pytest.mark.slow
def test_a_dry_run_that_airflow_drops_changes_nothing(
    database: None, flipped: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = flipped.read_bytes()
    assert str(trial_run("sterna_repair", {"deep": True, "dry_run": True}).state) == "success"
    assert flipped.read_bytes() == before
    with monkeypatch.context() as off:
        off.setenv("AIRFLOW__CORE__DAG_RUN_CONF_OVERRIDES_PARAMS", "False")
        assert str(trial_run("sterna_repair", {"deep": True, "dry_run": True}).state) == "failed"
    assert flipped.read_bytes() == before
    assert str(trial_run("sterna_repair", {"deep": True}).state) == "success"
    assert flipped.read_bytes() != before


@pytest.mark.parametrize(
    ("addon", "options", "message"),
    [
        ("verify", {"sample": "5/3"}, "'5/3' is no share: expected one such as 1/30"),
        ("verify", {"dry_run": True}, "no such option: dry_run; there are deep, sample, tables"),
        ("verify", {"tables": ["ns.c"]}, "no table 'ns.c' on main_replica_eu: there are ns.a, ns.b"),
        ("repair", {"sample": "1/1"}, "no such option: sample; there are deep, dry_run, tables"),
    ],
)
def test_what_nobody_can_mean_is_refused(flipped: Path, addon: Any, options: dict[str, Any], message: str) -> None:
    before = flipped.read_bytes()
    with pytest.raises(UsageError, match=f"^{message}"):
        execute(addon, {}, **options)
    assert flipped.read_bytes() == before


@pytest.mark.slow
def test_a_run_s_conf_decides_what_is_verified(database: None, flipped: Path) -> None:
    states = {
        str(conf): str(trial_run("sterna_verify", conf).state)
        for conf in ({}, {"deep": True, "tables": ["ns.b"]}, {"deep": True}, {"tabels": ["ns.b"]}, {"dry_run": True})
    }
    assert list(states.values()) == ["success", "success", "failed", "failed", "failed"], states


@pytest.mark.parametrize(
    ("addon", "params"), [("verify", {"sample": "half"}), ("verify", {"deep": "yes"}), ("repair", {"tables": "ns.a"})]
)
def test_a_value_of_another_form_is_refused_by_airflow(addon: Any, params: dict[str, Any]) -> None:
    with pytest.raises(ParamValidationError):
        addon_dag(addon, params=params)


def test_an_option_that_there_is_not_is_refused() -> None:
    with pytest.raises(UsageError, match="no such option: structure; there are deep, sample, tables"):
        parse_verify_options('{"structure": true}')
    with pytest.raises(UsageError, match="no such option: yes; there are deep, dry_run, tables"):
        parse_repair_options({"yes": True})
