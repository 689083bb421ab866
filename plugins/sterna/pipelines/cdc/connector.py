"""The engine's part for MariaDB, which its Python package lacks: fetched once, kept beside the other jars."""

from __future__ import annotations

from pathlib import Path

from sterna.errors import EngineError
from sterna.jvm.jars import Jar, cache_folder, pinned_jars


def mariadb_connector_jars() -> tuple[Jar, ...]:
    """Return what has to be fetched."""
    return pinned_jars("sterna.pipelines.cdc", "mariadb.jars")


def mariadb_jars() -> list[Path]:
    """Return what was fetched.

    Raises:
        EngineError: it wasn't, on this machine.
    """
    folder = cache_folder() / "jars"
    paths = [(jar, folder / jar.file_name) for jar in mariadb_connector_jars()]
    if missing := [path for jar, path in paths if not path.exists() or path.stat().st_size != jar.size]:
        raise EngineError(f"MariaDB's connector is missing: no {missing[0]}", hint="sterna cdc fetch")
    return [path for _, path in paths]
