"""Engines that nobody here wrote and that Python has in wheels: each reads a table from its metadata.json alone."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyiceberg.table import StaticTable

from sterna.jvm.jars import cache_folder, file_lock

_LOCK = Path(__file__).with_name("engines.lock")

Store = Mapping[str, str]
"""PyIceberg's properties of an S3 endpoint."""

Rows = list[list[Any]]


def _pyiceberg(location: str, store: Store) -> pa.Table:
    return StaticTable.from_metadata(location, dict(store)).scan().to_arrow()


def _datafusion(location: str, store: Store) -> pa.Table:
    """DataFusion over iceberg-rust, which pyiceberg-core is."""
    from datafusion import SessionContext
    from pyiceberg_core.datafusion import IcebergDataFusionTable

    context = SessionContext()
    table = IcebergDataFusionTable(
        identifier=["ns", "t"],
        metadata_location=location,
        file_io_properties={**store, "s3.path-style-access": "true"},
    )
    context.register_table("t", table)
    return context.sql("SELECT * FROM t").to_arrow_table()


def _polars(location: str, store: Store) -> pa.Table:
    """Polars' own reader: by default it asks PyIceberg for what it can't read."""
    import polars

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is experimental, and that PyIceberg plans the scan
        scan = polars.scan_iceberg(location, storage_options=dict(store), reader_override="native")
        return scan.collect().to_arrow()


READERS: Mapping[str, Callable[[str, Store], pa.Table]] = {
    "pyiceberg": _pyiceberg,
    "datafusion": _datafusion,
    "polars": _polars,
}


def engines_python(lock: Path = _LOCK) -> Path:
    """Return the Python of an environment of its own, made once in sterna's cache.

    Args:
        lock: what it has; default: the engines of `wheel_engines`.
    """
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()[:16]
    folder = cache_folder() / "engines" / f"{digest}-{sys.version_info.major}.{sys.version_info.minor}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    python = folder / "bin" / "python"
    with file_lock(folder.parent / f"{folder.name}.lock"):
        if not (folder / "complete").exists():
            uv = [Path(sys.executable).with_name("uv")]
            subprocess.run([*uv, "venv", "--quiet", "--clear", "--python", sys.executable, folder], check=True)
            install = [*uv, "pip", "install", "--quiet", "--python", python, "--require-hashes", "-r", lock]
            subprocess.run(install, check=True)
            (folder / "complete").touch()
    return python


def rows_of(table: pa.Table) -> Rows:
    """Return rows in the order of their first column, values as JSON has them: numbers, or text.

    Args:
        table: what a reader returned.
    """
    rows = [[_json(value) for value in row.values()] for row in table.to_pylist()]
    return sorted(rows, key=lambda row: row[0])


def _json(value: Any) -> Any:
    return value if value is None or isinstance(value, int) else str(value)
