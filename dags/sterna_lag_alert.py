"""An example.

Alert when this Airflow's region lags behind main. Give the DAG your own notifier as on_failure_callback.
"""

from __future__ import annotations

from sterna.airflow.dags import lag_dag

dag = lag_dag()
