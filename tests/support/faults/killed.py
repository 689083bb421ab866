"""A sync in a process of its own that kills itself at a named point.

`python -m tests.support.faults.killed REGISTRY POINT [CALL]`.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from sterna.edges.secrets import environment_secrets
from sterna.replica.region import open_region
from sterna.sync.options import SyncOptions
from sterna.sync.run import sync

POINTS = {
    "before the plan is written": "before sterna.replica.run_folder.save_plan",
    "after the plan is written": "after sterna.replica.run_folder.save_plan",
    "while the plan is written": "after sterna.edges.stores.objects.Objects.write_new",
    "while files are looked up": "after sterna.edges.stores.objects.Objects.sizes",
    "before rclone is started": "before sterna.sync.copy.copy_files",
    "after rclone has ended": "after sterna.sync.copy.copy_files",
    "while metadata is read": "after sterna.edges.stores.objects.Objects.read",
    "before localizing": "before sterna.sync.stages.localize_files",
    "after localizing": "after sterna.sync.stages.localize_files",
    "before the commit": "before sterna.edges.nessie.catalog.NessieCatalog.commit",
    "after the commit": "after sterna.edges.nessie.catalog.NessieCatalog.commit",
    "while Nessie is asked": "after sterna.edges.nessie.http.NessieHttp.read",
    "before the report": "before sterna.replica.run_folder.save_report",
    "after the report": "after sterna.replica.run_folder.save_report",
}
"""What each point is called, and the function that is killed before or after."""


def die() -> NoReturn:
    """Die as a process dies that runs out of memory: without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def strike(where: str, call: int) -> None:
    """Replace a function by one that dies at its n-th call; `where`: `before` or `after`, and its path."""
    when, _, path = where.partition(" ")
    holder, name = _holder(path)
    real: Callable[..., Any] = getattr(holder, name)
    calls = iter(range(1, call + 1))

    def struck(*arguments: Any, **options: Any) -> Any:
        last = next(calls, call) == call
        if last and when == "before":
            die()
        result = real(*arguments, **options)
        if last:
            die()
        return result

    setattr(holder, name, struck)


def _holder(path: str) -> tuple[Any, str]:
    """Return the module or class that a function is in, and its name."""
    where, _, name = path.rpartition(".")
    try:
        return importlib.import_module(where), name
    except ModuleNotFoundError:
        module, _, owner = where.rpartition(".")
        return getattr(importlib.import_module(module), owner), name


def main() -> None:
    """Sync eu, up to the point."""
    registry, point, call = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
    strike(POINTS[point], call)
    with open_region(registry, "eu", environment_secrets()) as context:
        sync(context, SyncOptions(), lambda line: None)


if __name__ == "__main__":
    main()
