"""`sterna demo --empty`: catalog, stores and a Postgres on this machine, with nothing in them, to try things with."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sterna.config.registry.model import SOURCE_BRANCH
from sterna.demo.addresses import engine_variables, write_variables
from sterna.demo.folder import work_folder
from sterna.servers.postgres import find_binaries
from sterna.servers.spark import spark_environment
from sterna.servers.stack import Deployment, deployment
from sterna.servers.valkey import find_valkey

_POSTGRES_SETTINGS = {"wal_level": "logical"}  # so that changes can be captured from it


def run_empty(work: Path | None, progress: Callable[[str], None]) -> None:
    """Start two empty regions, print how to reach them, and keep them until Ctrl-C.

    Args:
        work: a folder that is kept, new or empty; None: a temporary one.
        progress: called with each line.

    Raises:
        UsageError: the folder holds something, or can't be made.
        EngineError: a part is missing or didn't start.
    """
    with work_folder(work, "sterna-demo-") as folder:
        progress(f"starting Postgres, Nessie and an S3 endpoint a region, in {folder}")
        with deployment(folder, postgres_settings=_POSTGRES_SETTINGS) as stage:
            variables = write_variables(stage.work, _variables(stage, _write_services(folder)))
            progress(f"ready; in another terminal: . {shlex.quote(str(variables))}")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)


def _write_services(folder: Path) -> Path:
    """Write a services file that configures nothing yet."""
    path = folder.resolve() / "sterna_services.yaml"
    path.write_text("version: 1\n")
    return path


def _variables(stage: Deployment, services: Path) -> dict[str, str]:
    """Return what commands and engines need: both files, credentials of the stores, a Spark, Postgres and Valkey."""
    assert stage.postgres is not None
    admin = stage.postgres.admin
    server = {"PGHOST": admin.host, "PGPORT": str(admin.port), "PGUSER": admin.user, "PGPASSWORD": admin.password}
    programs = [stage.environment["PATH"], str(find_binaries()), str(find_valkey().parent)]
    return {
        **stage.environment,
        **spark_environment(stage.work, archive=False),
        **_pyiceberg_variables(stage),
        **server,
        **engine_variables(stage, services),
        "PGDATABASE": admin.name,
        "PATH": os.pathsep.join(programs),
    }


def _pyiceberg_variables(stage: Deployment) -> dict[str, str]:
    """Return the settings of PyIceberg's catalog `main`: a writer in region us that reaches all stores."""
    uri = f"{stage.nessie.iceberg_uri}/{SOURCE_BRANCH}"
    settings = {"type": "rest", "uri": uri, "warehouse": "us", **stage.combined_endpoint.pyiceberg_properties()}
    return {
        f"PYICEBERG_CATALOG__MAIN__{name.upper().replace('.', '__').replace('-', '_')}": value
        for name, value in settings.items()
    }
