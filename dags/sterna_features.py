"""Keep features of this Airflow's region ready for online reads.

Paused until somebody wants it. Without `features.online` for the region in the services file it does nothing.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("features")
