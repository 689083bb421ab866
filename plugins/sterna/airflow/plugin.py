"""The Airflow plugin; found through the entry point `airflow.plugins`, or by `plugins/sterna_plugin.py`."""

from __future__ import annotations

from sterna.airflow import requirements  # noqa: F401 - before what an older Airflow lacks

# isort: split

from airflow.sdk.plugins_manager import AirflowPlugin

from sterna.airflow import preload
from sterna.airflow.pages import mount


class SternaPlugin(AirflowPlugin):
    """Makes sterna known to Airflow."""

    name = "sterna"
    listeners = [preload]  # noqa: RUF012 - declared so by Airflow
    fastapi_apps = mount.fastapi_apps()
    external_views = mount.external_views()
