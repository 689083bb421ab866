"""The processor's priority of work that nobody waits for."""

from __future__ import annotations

import os
import subprocess
import sys

from sterna.concurrency.priority import lower_process_priority

_TWICE = """
import os, sys
from {module} import {function} as lower
os.nice(int(sys.argv[1]))
lower()
lower()
print(os.nice(0))
"""


def _niceness_afterwards(at_first: int) -> int:
    code = _TWICE.format(module=lower_process_priority.__module__, function=lower_process_priority.__name__)
    command = [sys.executable, "-c", code, str(at_first - os.nice(0))]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_a_priority_is_lowered_once_and_one_that_is_lower_stays() -> None:
    own = os.nice(0)
    assert _niceness_afterwards(own) == max(10, own)
    assert _niceness_afterwards(max(15, own)) == max(15, own)
