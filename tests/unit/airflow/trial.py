"""A trial run of a DAG in this process, as `airflow dags test` makes one."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

if TYPE_CHECKING:
    from airflow.models.dagrun import DagRun

DAGS = Path(__file__).parents[3] / "dags"


def trial_run(dag_id: str, conf: dict[str, Any]) -> DagRun:
    """Parse the file of a DAG and run it.

    It is parsed anew each time: a trial run leaves its parameters in the DAG object. Airflow also writes all DAGs of
    the folder to its database, each time; here it writes the one that runs.
    """
    from airflow.dag_processing import dagbag

    file = str(DAGS / f"{dag_id}.py")
    with patch.object(dagbag, "BundleDagBag", partial(_of_one_file, dagbag.BundleDagBag, file)):
        return dagbag.DagBag(file).dags[dag_id].test(run_conf=conf)


def _of_one_file(bag: Any, file: str, dag_folder: object, **more: Any) -> Any:
    return bag(dag_folder=file, **more)
