"""A task that makes a run red where any of its tasks is.

Airflow judges a run by its last tasks alone. Where these run whatever became of the others, an alert on the run stays
green (Airflow's best practices, "Example of watcher pattern with trigger rules").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, BaseOperator

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

WATCHER_TASK_ID = "watcher"
"""The task's id."""


class SternaWatcherOperator(BaseOperator):
    """Fail as soon as a task before it failed; skipped where none did."""

    ui_color = "#e8f1f8"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{"trigger_rule": "one_failed", "retries": 0, **kwargs})

    def execute(self, context: TaskContext) -> None:
        """Fail the run.

        Raises:
            AirflowFailException: always.
        """
        from airflow.sdk.exceptions import AirflowFailException

        raise AirflowFailException("a task of this run failed: see its log")


def add_watcher(dag: DAG) -> None:
    """Let each run of a DAG fail where one of its tasks does.

    Args:
        dag: it has all its other tasks.
    """
    tasks = list(dag.tasks)
    tasks >> SternaWatcherOperator(task_id=WATCHER_TASK_ID, dag=dag)
