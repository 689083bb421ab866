"""Keeps a machine's own settings out of what a demo, a test or a bench starts on it."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from pathlib import Path
from typing import Final

from sterna.jvm.jars import cache_folder

_VARIABLE_PREFIXES: Final = (
    "AIRFLOW_",
    "AWS_",
    "AZURE_",
    "GOOGLE_",
    "HADOOP_",
    "HIVE_",
    "NESSIE_",
    "PG",
    "PYICEBERG_",
    "PYSPARK_",
    "QUARKUS_",
    "RCLONE_",
    "SPARK_",
    "STERNA_",
)
"""Prefixes of variables that other programs, and other deployments of sterna, are set by."""
_KEPT_VARIABLES: Final = ("STERNA_BENCH_RESULTS", "STERNA_CACHE", "STERNA_MAVEN_REPOSITORY")
_LOOPBACK_HOSTS: Final = ("127.0.0.1", "localhost", "::1")


def isolate(variables: MutableMapping[str, str] | None = None) -> None:
    """Remove this process's variables that would change the behaviour or the address of servers on the loopback.

    Settings for downloads stay: proxies, which are left out for the loopback alone, and Java's options.
    Settings files of the user's that a variable can lead past are not read.

    Args:
        variables: the environment; None: the process's own.
    """
    variables = os.environ if variables is None else variables
    for name in [name for name in variables if name.startswith(_VARIABLE_PREFIXES) and name not in _KEPT_VARIABLES]:
        del variables[name]
    for name in ("NO_PROXY", "no_proxy"):
        excluded_hosts = [host for host in variables.get(name, "").split(",") if host]
        variables[name] = ",".join([*excluded_hosts, *(host for host in _LOOPBACK_HOSTS if host not in excluded_hosts)])
    variables.update(
        dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "PGPASSFILE", "PGSERVICEFILE"), os.devnull)
    )
    # PyIceberg searches the home folder, and the current one, unless it has found a file before.
    empty = cache_folder() / "empty"
    empty.mkdir(parents=True, exist_ok=True)
    _write_once(empty / ".pyiceberg.yaml", "of: sterna\n")
    variables["PYICEBERG_HOME"] = str(empty)


def _write_once(path: Path, text: str) -> None:
    """Write a file aside, unless it is there: other processes of the machine may be reading it at this moment."""
    if path.exists() and path.read_text() == text:
        return
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(text)
    draft.replace(path)
