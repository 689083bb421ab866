"""sterna as a command, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from sterna.cli.main import main

STERNA = (sys.executable, "-m", main.__module__)
"""What a command begins with."""
_START_SECONDS = 60


def gateway_url(log: Path, process: subprocess.Popen[bytes]) -> str:
    """Return the address of a gateway that is starting, as its log tells it.

    Raises:
        TimeoutError: it doesn't come up.
    """
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        for line in log.read_text().splitlines():
            if "running on " in line:
                return str(json.loads(line)["message"]).partition("running on ")[2].split()[0]
        time.sleep(0.05)
    raise TimeoutError(f"the gateway doesn't come up: {log.read_text()[-1000:]}")
