"""Put on main what came in at this Airflow's region.

Paused until somebody wants it. Without `ingest` in the services file it does nothing.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("ingest")
