"""A clean-up whose task is ended from outside: it leaves in an orderly way, and no sync waits for it then."""

from __future__ import annotations

import pytest
from airflow.sdk.exceptions import AirflowTaskTerminated

from sterna.airflow.reconcile import SternaReconcileOperator
from sterna.maintenance.gc import run


def test_it_unwinds_what_it_is_at_and_is_not_disturbed_afterwards(monkeypatch: pytest.MonkeyPatch) -> None:
    task, fence = SternaReconcileOperator(task_id="gc", addon="gc"), ["up"]

    def collect(*_: object) -> None:
        try:
            task.on_kill()  # as the signal's handler does, in the middle of something
        finally:
            fence[0] = "down"

    monkeypatch.setattr(run, "run_gc", collect)
    monkeypatch.setattr(SternaReconcileOperator, "open", lambda self: None)
    with pytest.raises(AirflowTaskTerminated):
        task.execute({})
    assert fence == ["down"]
    task.on_kill()  # as Airflow does after a deadline has passed: there is nothing left to end
