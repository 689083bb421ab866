"""A sync in a process of its own that kills itself at a named point.

`python -m tests.support.faults.killed REGISTRY POINT [CALL]`.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, NoReturn

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.nessie.http import NessieHttp
from sterna.config.secrets import environment_secrets
from sterna.replication.execution import copy
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica import run_folder
from sterna.replication.replica.region import open_region
from sterna.replication.sync import stages
from sterna.replication.sync.run import sync
from sterna.storage.objects import Objects


@dataclass(frozen=True)
class Point:
    """Where a process dies.

    Args:
        when: `before` or `after` a call.
        holder: the module or class whose function is called.
        function: which.
        call: at which call of it; 1 is the first.
    """

    when: str
    holder: Any
    function: Callable[..., Any]
    call: int = 1


POINTS = {
    "before the plan is written": Point("before", run_folder, run_folder.save_plan),
    "after the plan is written": Point("after", run_folder, run_folder.save_plan),
    "while the plan is written": Point("after", Objects, Objects.write_new),
    "while files are looked up": Point("after", Objects, Objects.sizes),
    "before rclone is started": Point("before", copy, copy.copy_files),
    "after rclone has ended": Point("after", copy, copy.copy_files),
    "while metadata is read": Point("after", Objects, Objects.read),
    "before localizing": Point("before", stages, stages.localize_files),
    "after localizing": Point("after", stages, stages.localize_files),
    "before the commit": Point("before", NessieCatalog, NessieCatalog.commit),
    "after the commit": Point("after", NessieCatalog, NessieCatalog.commit),
    "while Nessie is asked": Point("after", NessieHttp, NessieHttp.read),
    "before the report": Point("before", run_folder, run_folder.save_report),
    "after the report": Point("after", run_folder, run_folder.save_report),
}
"""What each point is called, and where it is."""


def die() -> NoReturn:
    """Die as a process dies that runs out of memory: without a word."""
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("still alive")


def strike(point: Point) -> None:
    """Replace a function by one that dies at a point."""
    calls = iter(range(1, point.call + 1))

    def struck(*arguments: Any, **options: Any) -> Any:
        last = next(calls, point.call) == point.call
        if last and point.when == "before":
            die()
        result = point.function(*arguments, **options)
        if last:
            die()
        return result

    setattr(point.holder, point.function.__name__, struck)


def main() -> None:
    """Sync eu, up to the point."""
    registry, point, call = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 1
    strike(replace(POINTS[point], call=call))
    with open_region(registry, "eu", environment_secrets()) as context:
        sync(context, SyncOptions(), lambda line: None)


if __name__ == "__main__":
    main()
