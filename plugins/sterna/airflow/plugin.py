"""The Airflow plugin; found through the entry point `airflow.plugins`, or by `plugins/sterna_plugin.py`."""

from __future__ import annotations

from airflow.sdk.plugins_manager import AirflowPlugin

from sterna.airflow import preload


class SternaPlugin(AirflowPlugin):
    """Makes sterna known to Airflow."""

    name = "sterna"
    listeners = [preload]  # noqa: RUF012 - declared so by Airflow
