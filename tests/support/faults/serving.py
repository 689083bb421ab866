"""The gateway of a region's address in a process of its own, which may kill itself at a named step of a commit.

`python -m tests.support.faults.serving POINT ARGUMENTS`: "" is no point.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import yaml

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.cli.main import main as sterna
from sterna.servers.stack import Deployment
from sterna.serving.rest_catalog import commit, main_metadata, table_commit
from sterna.storage.objects import Objects
from tests.support.command import gateway_url
from tests.support.faults.killed import Point, strike

_ROOT = Path(__file__).parents[3]
_numbers = count()

POINTS = {
    "before it is taken back": Point("before", table_commit, table_commit.take_back_snapshot),
    "while the client's files are looked up": Point("after", Objects, Objects.sizes),
    "after the first file is written": Point("after", Objects, Objects.write_new),
    "after all files are written": Point("after", main_metadata, main_metadata.write_metadata),
    "before the commit": Point("before", NessieCatalog, NessieCatalog.commit),
    "after the commit": Point("after", NessieCatalog, NessieCatalog.commit),
    "before it is localized": Point("before", commit, commit.localize_entry),
    "after it is localized": Point("after", commit, commit.localize_entry),
}
"""What each step of a commit is called, and where it is."""


@dataclass
class ServingProcess:
    """A gateway that runs.

    Args:
        url: its address.
        process: it.
        log: what it says.
    """

    url: str
    process: subprocess.Popen[bytes]
    log: Path

    def kill(self) -> None:
        """Kill it at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)


def start(stage: Deployment, region: str = "eu", point: str = "") -> ServingProcess:
    """Start `sterna serve --only catalog`, which may die at a step of the first commit that it gets."""
    number = next(_numbers)
    services, log = (stage.work / f"serve-{number}.{ending}" for ending in ("yaml", "log"))
    locations = yaml.safe_load(stage.registry.read_text())["locations"]
    prefix = next(location["prefix"] for location in locations if location["region"] == region)
    services.write_text(yaml.safe_dump({"catalog": {"regions": {region: {"location": prefix}}}}))
    command = [sys.executable, "-m", "tests.support.faults.serving", point, "serve", "--region", region]
    command += ["--only", "catalog", "--port", "0"]
    command += ["--registry", str(stage.registry), "--services", str(services)]
    with log.open("wb") as file:
        process = subprocess.Popen(command, cwd=_ROOT, stderr=file, start_new_session=True)
    try:
        return ServingProcess(gateway_url(log, process), process, log)
    except BaseException:
        process.kill()
        raise


@contextmanager
def serving(stage: Deployment, region: str = "eu", point: str = "") -> Iterator[ServingProcess]:
    """Run one until the block ends, if it doesn't end by itself."""
    started = start(stage, region, point)
    try:
        yield started
    finally:
        if started.process.poll() is None:
            started.kill()


def main() -> None:
    """Serve, up to the point."""
    point, arguments = sys.argv[1], sys.argv[2:]
    if point:
        strike(POINTS[point])
    sterna(arguments)


if __name__ == "__main__":
    main()
