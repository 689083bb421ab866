"""Repair the replica of this Airflow's region from main; by hand alone."""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("repair")
