"""What `run.py` starts: with which variables.

Whatever would have each process do again what another did counts here: a `PYTHONDONTWRITEBYTECODE` of the machine's, as
in many container images, had every Airflow, Spark and process of a query compile all of their packages.
"""

from __future__ import annotations

import os
import subprocess
import sys

import run


def test_bytecode_is_kept_though_the_machine_forbids_it() -> None:
    environment = run.environment_of({**os.environ, "PYTHONDONTWRITEBYTECODE": "1"})
    command = [sys.executable, "-S", "-c", "import sys; print(sys.dont_write_bytecode)"]
    assert subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout == "False\n"


def test_the_virtual_environment_comes_first_and_the_rest_stays() -> None:
    environment = run.environment_of({"PATH": "/usr/bin", "HOME": "/home/me"})
    assert environment == {
        "PATH": f"{run.BIN}{os.pathsep}/usr/bin",
        "VIRTUAL_ENV": str(run.VENV),
        "HOME": "/home/me",
    }
