"""A run of the tests says at its end what it left out, why, and which option runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.left_out import lines

_ROOT = Path(__file__).parents[2]
_TESTS = """
import pytest

@pytest.mark.rare
@pytest.mark.parametrize("number", range(3))
def test_rare(number): pass

@pytest.mark.rare
@pytest.mark.regions
def test_rare_region(): pass

@pytest.mark.long
def test_random(): pass

@pytest.mark.engines
def test_engine(): pass

@pytest.mark.parametrize("number", range(2))
def test_of_a_machine(number): pytest.skip("this machine has no anvil")

def test_plain(): pass
"""


_NO_ENGINE = "1 left out: they start engines such as Trino and Flink: --engines"
_FEW_LEFT_OUT = [
    "2 skipped: this machine has no anvil",
    "3 left out: they are a second kind of what every run has: --long",
    "1 left out: rare ways in which regions die: --regions, or --long",
    _NO_ENGINE,
]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["-n", "0"], _FEW_LEFT_OUT),
        (["-n", "2"], _FEW_LEFT_OUT),
        (["-n", "0", "--long"], ["3 left out: every run has them: leave --long out", _NO_ENGINE]),
        (["-n", "0", "--engines"], ["8 left out: they start no such engine: leave --engines out"]),
    ],
    ids=lambda value: " ".join(value) if value[0] == "-n" else "",
)
def test_what_was_not_run_is_told(tmp_path: Path, options: list[str], said: list[str]) -> None:
    (tmp_path / "test_some.py").write_text(_TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", *options, "test_some.py"]
    environment = {**os.environ, "PYTHONPATH": str(_ROOT), "COLUMNS": "200"}
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    _, heading, rest = done.stdout.partition(" what was not run ")
    assert heading, done.stdout
    assert [line for line in rest.splitlines() if " skipped: " in line or " left out: " in line] == said


def test_a_run_of_all_tests_says_what_it_never_looks_at() -> None:
    assert lines([], {}, whole=False, quick=False, long=False, engines=False) == []
    assert [line.rpartition(": ")[2] for line in lines([], {}, whole=True, quick=True, long=False, engines=False)] == [
        "all that starts servers; leave --quick out",
        "--long",
        "python -m tests.compose --help",
    ]
