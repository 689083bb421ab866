"""Verify the replica of this Airflow's region.

Paused until somebody wants it; section [sterna] of Airflow's configuration says when, and how much is compared.
"""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("verify")
