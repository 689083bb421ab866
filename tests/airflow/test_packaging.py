"""A real Airflow finds sterna in both ways: installed as a wheel, and as a folder dropped into its plugins folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from sterna.config.registry import model

REPOSITORY = Path(__file__).parents[2]
# What none of a DAG file's imports may bring in: each task would pay for it.
HEAVY = (
    "pyspark",
    "pyarrow",
    "numba",
    "numpy",
    "pandas",
    "pyiceberg",
    "obstore",
    "fastavro",
    "pynessie",
    "rclone_python",
    "sterna.airflow.pages.app",
    model.__name__,
)
assert find_spec("sterna.airflow.pages.app"), "who imports nothing of this name would prove nothing"

# Loads plugins, providers and DAG files as Airflow's components do, and tells what came of it.
_PROBE = f"""
import json, os, sys
from airflow import plugins_manager
from airflow.dag_processing.dagbag import DagBag
from airflow.providers_manager import ProvidersManager
bag = DagBag()
plugins_manager.ensure_plugins_loaded()
modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
loaded = {{name: os.path.realpath(file) for name, file in modules if file}}
heavy = [name for name in {HEAVY!r} if name in sys.modules]
manager = ProvidersManager()
print(json.dumps({{
    "plugins": [
        [plugin.name, str(plugin.source)]
        for plugin in plugins_manager._get_plugins()[0]
        if not type(plugin).__module__.startswith("airflow.providers.")
    ],
    "plugin_errors": plugins_manager.get_import_errors(),
    "dags": sorted(bag.dags),
    "dag_errors": bag.import_errors,
    "modules": {{name: path for name, path in loaded.items() if "sterna" in path}},
    "heavy": heavy,
    "provider": "sterna" in manager.providers,
    "connections": sorted(name for name in manager.hooks if name.startswith("sterna_")),
}}))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """This environment's packages without sterna, and without the .pth file through which an editable install is
    found.
    """
    folder = tmp_path_factory.mktemp("site")
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("sterna", "__editable__", "_editable_impl_sterna")) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what the built wheel installs."""
    built, installed = tmp_path_factory.mktemp("wheel"), tmp_path_factory.mktemp("installed")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", built],
        cwd=REPOSITORY,
        check=True,
        capture_output=True,
    )
    (file,) = built.glob("*.whl")
    zipfile.ZipFile(file).extractall(installed)
    return installed


def _environment(home: Path, plugins: Path, *packages: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
    return clean | {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__UNIT_TEST_MODE": "True",
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(plugins),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home}/airflow.db",
        "AIRFLOW__STERNA__REGION": "eu",
        "AIRFLOW__STERNA__REGISTRY": str(home / "storage_registry.yaml"),
        "PYTHONPATH": os.pathsep.join(str(package) for package in packages),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def _python(environment: dict[str, str], *arguments: str) -> str:
    # Not the virtual environment's interpreter: that one would find the editable install.
    interpreter = getattr(sys, "_base_executable", sys.executable)
    result = subprocess.run(
        [interpreter, *arguments], env=environment, cwd=environment["AIRFLOW_HOME"], capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr[-3000:]
    return result.stdout


def _probe(environment: dict[str, str]) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(_python(environment, "-c", _PROBE).splitlines()[-1])
    return answer


def _assert_loaded_once(probe: dict[str, Any], root: Path) -> None:
    assert probe["plugin_errors"] == {}
    assert probe["dag_errors"] == {}
    names = (
        *("cdc", "features", "flows", "gc", "ingest", "lag_alert", "large", "pause", "promote", "repair", "sync"),
        *("upkeep", "verify"),
    )
    assert probe["dags"] == [f"sterna_{name}" for name in names]
    assert [name for name, _ in probe["plugins"]] == ["sterna"]
    modules = {
        name: Path(path) for name, path in probe["modules"].items() if Path(path).is_relative_to(root / "sterna")
    }
    assert "sterna.airflow.operators" in modules
    # Once: each file under one name, and that name is the one that imports use.
    assert len(set(modules.values())) == len(modules)
    assert all(name.split(".")[0] == "sterna" for name in modules)
    assert probe["heavy"] == []


def test_installed_as_a_wheel(site: Path, wheel: Path, tmp_path: Path) -> None:
    probe = _probe(_environment(tmp_path, tmp_path / "plugins", wheel, site))
    _assert_loaded_once(probe, wheel)
    assert "EntryPoint" in probe["plugins"][0][1] or "sterna==" in probe["plugins"][0][1]
    assert probe["provider"]
    pages = {page.name for page in (REPOSITORY / "plugins/sterna/airflow/pages/static").iterdir()}
    assert {"index.html", "app.js", "style.css"} <= pages
    assert {page.name for page in (wheel / "sterna/airflow/pages/static").iterdir()} == pages
    assert {"sterna_nessie", "sterna_s3"} <= set(probe["connections"])


def test_dropped_into_the_plugins_folder(site: Path, tmp_path: Path) -> None:
    plugins = REPOSITORY / "plugins"
    probe = _probe(_environment(tmp_path, plugins, site))
    _assert_loaded_once(probe, plugins)
    assert "sterna_plugin.py" in probe["plugins"][0][1]
    assert not probe["provider"]


def test_both_at_once_register_one_plugin(site: Path, wheel: Path, tmp_path: Path) -> None:
    probe = _probe(_environment(tmp_path, REPOSITORY / "plugins", wheel, site))
    _assert_loaded_once(probe, wheel)


def test_airflow_has_the_commands(site: Path, wheel: Path, tmp_path: Path) -> None:
    environment = _environment(tmp_path, tmp_path / "plugins", wheel, site)
    assert "console script" in _python(environment, "-m", "airflow", "sterna", "--help")
    assert "--region" in _python(environment, "-m", "airflow", "sterna", "plan", "--help")


def test_airflow_leaves_stdout_to_json(site: Path, wheel: Path, tmp_path: Path) -> None:
    """Airflow logs to stdout, as of a connection that it reads: what a command answers is JSON alone."""
    (tmp_path / "storage_registry.yaml").write_text(f"""
version: 1
regions:
- name: eu
  replica_root: file://{tmp_path}/eu/replica
  catalog: {{read: "http://127.0.0.1:9/api/v2", credential_id: nessie}}
locations:
- {{id: lake, prefix: "file://{tmp_path}/eu", region: eu, remote: {{type: local}}}}
""")
    environment = _environment(tmp_path, tmp_path / "plugins", wheel, site)
    # Other tests of the process say by variables which region they mean.
    environment = {name: value for name, value in environment.items() if not name.startswith("STERNA_")}
    del environment["AIRFLOW__CORE__UNIT_TEST_MODE"]
    environment["AIRFLOW_CONN_NESSIE"] = json.dumps({"conn_type": "sterna_nessie", "login": "a", "password": "b"})
    script = "from airflow.__main__ import main; main()"
    command = [getattr(sys, "_base_executable", sys.executable), "-c", script]
    result = subprocess.run(
        [*command, "sterna", "status", "--region", "eu", "--json"], env=environment, capture_output=True, text=True
    )
    assert result.stdout == ""
    assert "sterna_nessie" in result.stderr
    assert json.loads(result.stderr.splitlines()[-1])["error"] == "CatalogUnreachable"
