"""Follow databases, for this Airflow's region.

Paused until somebody wants it. Without `cdc` in the services file it does nothing.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("cdc")
