"""The look at command lines finds what it is there to find."""

from __future__ import annotations

import subprocess
import sys
import time

from tests.support.faults.command_lines import watching


def test_a_secret_on_a_command_line_is_seen() -> None:
    with watching("the-canary", "a-second-canary") as lines:
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "--password=the-canary"])
        try:
            deadline = time.monotonic() + 30
            while not lines.showing and time.monotonic() < deadline:
                time.sleep(0.05)
        finally:
            child.kill()
            child.wait()
    (line,) = lines.showing
    assert "--password=the-canary" in line
