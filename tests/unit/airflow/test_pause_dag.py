"""The DAG that pauses single tables: it does what it is asked for, and a resumed table starts a sync."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.airflow.steps import parse_pause_options
from sterna.errors import UsageError
from sterna.replication.replica import pauses
from tests.support.small_world import World, make_world, run
from tests.unit.airflow.trial import trial_run


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    lake = make_world(tmp_path)
    lake.commit(a=lake.write("a"))
    run(lake)
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: lake.context())
    return lake


def events(conf: dict[str, Any]) -> tuple[str, list[str]]:
    """Run the DAG; return its state and the assets that it updated."""
    from airflow.models.asset import AssetEvent
    from airflow.utils.session import create_session

    run_ = trial_run("sterna_pause", conf)
    with create_session() as session:
        updated = session.query(AssetEvent).filter_by(source_run_id=run_.run_id, source_dag_id="sterna_pause")
        return str(run_.state), [event.uri for event in updated]


def test_a_table_is_paused_and_resumed_and_the_resumed_one_starts_a_sync(database: None, world: World) -> None:
    assert events({"tables": ["ns.a"], "reason": "backfill"}) == ("success", [])
    [paused] = pauses.read_pauses(world.context())
    assert (paused.key, paused.reason) == ("ns.a", "backfill")
    assert events({"tables": ["ns.a"], "action": "resume"}) == ("success", ["sterna://eu/main"])
    assert pauses.read_pauses(world.context()) == ()
    assert events({"tables": ["ns.a"], "action": "resume"}) == ("success", [])  # again: there is nothing to do


def test_a_name_of_no_table_fails_the_run(database: None, world: World) -> None:
    assert events({"tables": ["ns.b"]})[0] == "failed"
    assert pauses.read_pauses(world.context()) == ()


def test_a_run_without_tables_is_refused_before_it_begins(database: None, world: World) -> None:
    from airflow.sdk.exceptions import ParamValidationError

    with pytest.raises(ParamValidationError):
        trial_run("sterna_pause", {})


@pytest.mark.parametrize("options", [{"action": "stop"}, {"dry_run": True}, {"table": "ns.a"}])
def test_options_that_there_are_not_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match="no such"):
        parse_pause_options(options)
