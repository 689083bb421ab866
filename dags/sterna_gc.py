"""Delete what no kept head of this Airflow's region reaches below its replica root.

Paused until somebody wants it; section [sterna] of Airflow's configuration says when, and what is kept.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("gc")
