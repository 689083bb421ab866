"""Several copies at once from a location with a limit, by processes that know nothing of one another, and one alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.common import Result, report

GOAL_ALONE = 0.9
GOAL_TOGETHER = 1.1
_COPY = """
import json, sys, time
from sterna.storage.rclone.transfer import Folder, copy_files
from sterna.config.registry.model import Location, Remote
job = json.loads(sys.argv[1])
def side(id, **more):
    location = Location(id=id, prefix=f"file://{job['folder']}/{id}", region=id, remote=Remote(type="local"), **more)
    return Folder(location, None)
began = time.monotonic()
done = copy_files(side("us", bandwidth=job["limit"]), side("eu"), [job["name"]], progress=lambda *_: None)
assert not done.errors, done.errors
print(began, time.monotonic())
"""


def bench(copies: int, megabytes: int, limit_mib: int, work: Path | None) -> None:
    """Copy files of so many MiB, one alone and several at once, with a limit of so many MiB a second."""
    with tempfile.TemporaryDirectory(dir=work, prefix="bandwidth-") as folder:
        for side in ("us", "eu"):
            Path(folder, side).mkdir()
        for number in range(copies):
            Path(folder, "us", f"f{number}").write_bytes(os.urandom(megabytes << 20))
        alone = _share_of_limit(folder, 1, megabytes, limit_mib)
        together = _share_of_limit(folder, copies, megabytes, limit_mib)
    case = f"{megabytes} MiB at {limit_mib} MiB/s"
    for name, share, goal in (("1 copy", alone, GOAL_ALONE), (f"{copies} copies", together, GOAL_TOGETHER)):
        bound = "at least" if name == "1 copy" else "at most"
        report(Result("bandwidth", f"{name}, {case}", goal, bound, "times", {"of the limit": (share,)}, share))  # type: ignore[arg-type]


def _share_of_limit(folder: str, copies: int, megabytes: int, limit_mib: int) -> float:
    """Return how much of the limit was used, from when the first process began to copy until the last one was done."""
    running = []
    for number in range(copies):
        job = {"folder": folder, "limit": f"{limit_mib}M", "name": f"f{number}"}
        running.append(subprocess.Popen([sys.executable, "-c", _COPY, json.dumps(job)], stdout=subprocess.PIPE))
    times = [[float(word) for word in process.communicate()[0].split()] for process in running]
    seconds = max(ended for _, ended in times) - min(began for began, _ in times)
    return copies * megabytes / seconds / limit_mib
