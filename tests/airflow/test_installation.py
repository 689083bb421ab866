"""Beside Airflows of others: `pip` changes nothing that is there, and one that is too old is named in a line.

Each Airflow comes from the package index, with the dependencies that it had when it was released. Airflow's published
constraints are no packages.
"""

from __future__ import annotations

import os
import subprocess
import venv
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
# The days on which the last release of each minor was there.
RELEASES = {"3.0.6": "2025-09-05", "3.1.8": "2026-03-20", "3.2.2": "2026-05-30", "3.3.2": "2026-09-18"}
# What its page of plugins shows as errors; the function is newer than the oldest of these.
ERRORS = """
from airflow import plugins_manager as manager
manager.ensure_plugins_loaded()
print(manager.get_import_errors() if hasattr(manager, "get_import_errors") else manager.import_errors)
"""
TOO_OLD = "sterna needs Airflow 3.3 or newer, and this is {}: "

pytestmark = pytest.mark.rare


class _Site:
    """An operator's environment.

    Args:
        folder: where it is.
    """

    def __init__(self, folder: Path) -> None:
        self.programs = folder / "venv" / "bin"
        venv.create(folder / "venv", with_pip=True)
        clean = {name: text for name, text in os.environ.items() if not name.startswith(("AIRFLOW_", "PYTHON"))}
        self.environment = clean | {
            "AIRFLOW_HOME": str(folder / "home"),
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
            "PYTHONDONTWRITEBYTECODE": "1",
        }

    def run(self, program: str, *arguments: str, code: int = 0, **variables: str) -> str:
        """Run one of its programs, which ends with a code; all that it says."""
        result = subprocess.run(
            [self.programs / program, *arguments],
            cwd=REPOSITORY,
            env=self.environment | variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=600,
        )
        assert result.returncode == code, result.stdout[-3000:]
        return result.stdout

    def packages(self) -> set[str]:
        return set(self.run("pip", "freeze", "--exclude", "sterna").splitlines())


@pytest.fixture
def site(tmp_path: Path, version: str) -> _Site:
    """An environment with an Airflow."""
    site = _Site(tmp_path)
    site.run("pip", "install", "--quiet", "--upgrade", "pip>=26")  # an older one knows no day
    site.run("pip", "install", "--quiet", f"apache-airflow=={version}", f"--uploaded-prior-to={RELEASES[version]}")
    return site


def _install(site: _Site, folder: Path, code: int = 0) -> str:
    """Install sterna as docs/installation.md has it; what is there stays as it is."""
    before = site.packages()
    installed = folder / "installed.txt"
    installed.write_text("\n".join(sorted(before)))
    answer = site.run("pip", "install", "--quiet", ".[spark]", "--constraint", str(installed), code=code)
    assert before <= site.packages()
    return answer


def _errors_of_the_folder(site: _Site) -> str:
    return site.run("python", "-c", ERRORS, AIRFLOW__CORE__PLUGINS_FOLDER=str(REPOSITORY / "plugins"))


@pytest.mark.parametrize("version", ["3.3.2"])
def test_an_operator_s_airflow_stays_as_it_is_and_has_the_plugin(site: _Site, tmp_path: Path) -> None:
    missing = "sterna lacks packages in Airflow's environment: pip install "
    assert missing in _errors_of_the_folder(site)
    _install(site, tmp_path)
    assert missing not in _errors_of_the_folder(site)
    site.run("pip", "check")
    loaded = site.run("airflow", "plugins", "--output", "json")
    assert '"name": "sterna"' in loaded
    assert "ImportError" not in loaded


@pytest.mark.parametrize("version", ["3.1.8", "3.2.2"])
def test_beside_an_older_airflow_the_command_works(site: _Site, tmp_path: Path, version: str) -> None:
    assert TOO_OLD.format(version) in _errors_of_the_folder(site)
    _install(site, tmp_path)
    site.run("pip", "check")
    assert TOO_OLD.format(version) in site.run("python", "-c", ERRORS)
    site.run("airflow", "plugins")
    assert "ok   eu: settings" in site.run("sterna", "registry", "check", "--offline")


@pytest.mark.parametrize("version", ["3.0.6"])
def test_an_airflow_whose_packages_are_too_old_is_left_alone(site: _Site, tmp_path: Path, version: str) -> None:
    assert TOO_OLD.format(version) in _errors_of_the_folder(site)
    assert "typer" in _install(site, tmp_path, code=1)
