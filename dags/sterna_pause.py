"""Pause or resume single tables of this Airflow's region; by hand alone."""

from __future__ import annotations

from sterna.airflow.dags import addon_dag

dag = addon_dag("pause")
