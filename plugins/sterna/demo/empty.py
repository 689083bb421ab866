"""`sterna demo --empty`: catalog, stores and a Postgres on this machine, with nothing in them, to try things with."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from sterna.demo.addresses import write_variables
from sterna.demo.folder import work_folder
from sterna.servers.postgres import find_binaries
from sterna.servers.stack import Deployment, deployment


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
        with deployment(folder) as stage:
            variables = write_variables(stage.work, _variables(stage))
            progress(f"ready; in another terminal: . {shlex.quote(str(variables))}")
            with suppress(KeyboardInterrupt):
                while True:
                    time.sleep(3600)


def _variables(stage: Deployment) -> dict[str, str]:
    """Return what commands need: the registry, credentials of the stores, and where psql finds the Postgres."""
    assert stage.postgres is not None
    admin = stage.postgres.admin
    server = {"PGHOST": admin.host, "PGPORT": str(admin.port), "PGUSER": admin.user, "PGPASSWORD": admin.password}
    path = os.pathsep.join([stage.environment["PATH"], str(find_binaries())])
    return {**stage.environment, **server, "PGDATABASE": admin.name, "PATH": path}
