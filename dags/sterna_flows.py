"""Let tables follow others, as this Airflow's region has them.

Paused until somebody wants it. Without `transforms` in the services file it does nothing.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("transforms")
