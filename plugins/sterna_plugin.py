"""For a folder dropped into Airflow's plugins folder: registers the plugin where sterna isn't installed as a package.

Airflow executes every Python file below that folder under its bare file name, and would run each module of sterna a
second
time as a stranger: hence `.airflowignore` beside this file. Connection forms, the description of section [sterna] and
`airflow sterna` need the package installed; everything else works from the folder.
"""

from __future__ import annotations

from importlib.metadata import entry_points

# The same plugin twice would show up as an import error.
if not any(entry.value.startswith("sterna.airflow.") for entry in entry_points(group="airflow.plugins")):
    from sterna.airflow.plugin import SternaPlugin

    __all__ = ["SternaPlugin"]
