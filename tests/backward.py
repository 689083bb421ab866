"""Does an older version go on with what this one writes? Whoever goes back to it needs that.

    .venv/bin/python -m tests.backward                     with the version of November 2026
    .venv/bin/python -m tests.backward --commit 1a2b3c4    with another, of before the names of 0.2
    .venv/bin/python -m tests.backward --folder DIR        keeps the state, the old tree and its .venv

This version writes the state that tests/data/written-2026-11 holds. The tests of that state then run in the old tree,
with the old code: its first sync moves nothing, its outlets send what waited, and its services go on, once each. They
are taken from the last commit with the old modules' names, and the settings get the names that the old version reads.
It takes some minutes, mostly for the old version's packages. It ends with pytest's exit code.
"""

from __future__ import annotations

import argparse
import io
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from sterna.config.renamed import REGISTRY_SETTINGS, SERVICES_SETTINGS

HERE: Final = Path(__file__).resolve().parents[1]
COMMIT: Final = "b5071db"
_STATE: Final = Path("tests/data/written-2026-11")
_SETTINGS: Final = {"storage_registry.yaml": REGISTRY_SETTINGS, "sterna_services.yaml": SERVICES_SETTINGS}
# What the old tree gets: how the state is restored, and what is asked of it.
_TESTS: Final = "6b2dcdc7"  # the last commit with the names of then
_ASKED: Final = (
    "tests/integration/test_written_2026_11.py",
    "tests/integration/test_written_2026_11_services.py",
    "tests/integration/test_written_2026_11_spark.py",
)
_SHARED: Final = ("tests/support/written.py", "tests/support/sharing.py")
# The one difference: a clean-up of then counts the record of a transform's step as strange, and leaves it alone.
_DIFFERENCE: Final = ("(done.failed, done.strange.files) == (0, 0)", "(done.failed, done.strange.files) == (0, 1)")
_AT_REST: Final = 160.0  # seconds: until then a bulk copy that was killed counts as at work, for either version


def main(arguments: Sequence[str] | None = None) -> int:
    """Write a state, and let the older version go on with it; return pytest's exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.backward", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--commit", default=COMMIT, help=f"the older version (default: {COMMIT})")
    parser.add_argument("--folder", type=Path, help="where everything is made and kept; default: a temporary one")
    asked = parser.parse_args(arguments)
    with ExitStack() as stack:
        folder = asked.folder or Path(stack.enter_context(TemporaryDirectory(prefix="sterna-backward-")))
        old, world = folder / "tree", folder / "world"
        if not world.exists():
            write_state(world)
        if not old.exists():
            check_out(asked.commit, old)
        shutil.copytree(world, old / _STATE / "world", dirs_exist_ok=True)
        restore_setting_names(old / _STATE / "world")
        check_out(_TESTS, old, *_ASKED, *_SHARED)
        expect_difference(old / _ASKED[0])
        time.sleep(max(0.0, _AT_REST + (world / "answers.json").stat().st_mtime - time.time()))
        return run_tests(old)


def write_state(world: Path) -> None:
    """Let this version write the state."""
    scratch = world.with_name("world-begun")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(HERE / "plugins"), str(HERE)))}
    subprocess.run([sys.executable, HERE / _STATE / "make.py", scratch], check=True, env=environment)
    scratch.rename(world)


def restore_setting_names(world: Path) -> None:
    """Give settings the names that the old version reads; nothing else of the state is changed."""
    for name, renamed in _SETTINGS.items():
        text = (world / name).read_text()
        for pattern, new_name in renamed.items():
            text = re.sub(rf"\b{new_name}:", f"{pattern.rpartition('.')[2]}:", text)
        (world / name).write_text(text)


def expect_difference(test: Path) -> None:
    """Let a test expect the one known difference, so that it reaches what it checks after it."""
    text, (same, different) = test.read_text(), _DIFFERENCE
    assert text.count(same) == 1, f"{test} has no {same}"
    test.write_text(text.replace(same, different))


def check_out(commit: str, tree: Path, *names: str) -> None:
    """Put files of a commit (default: all) into a folder: not as a work tree, of which the repository would know."""
    files = subprocess.run(["git", "archive", commit, *names], cwd=HERE, check=True, capture_output=True).stdout
    tree.mkdir(parents=True, exist_ok=True)
    with tarfile.open(fileobj=io.BytesIO(files)) as archive:
        archive.extractall(tree, filter="data")


def run_tests(tree: Path) -> int:
    """Run the tests of the state with a tree's own code and packages."""
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    command = [sys.executable, "run.py", "test", "-n", "0", "-p", "no:cacheprovider", *_ASKED]
    return subprocess.run(command, cwd=tree, env=environment).returncode


if __name__ == "__main__":
    sys.exit(main())
