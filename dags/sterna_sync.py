"""Keep this Airflow's region up to date with main.

The DAG of sterna, set up by section [sterna] of Airflow's configuration.
"""

from __future__ import annotations

from sterna.airflow.dags import sync_dag

# Large copies are left to sterna_large.py. Without that file: sync_dag() alone.
dag = sync_dag(lanes=True)
