"""Programs of Go's modules, built once in sterna's cache."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from sterna.jvm.jars import cache_folder, file_lock

_HERE = Path(__file__).parent


def go_program(name: str, package: str = ".", *sources: str) -> Path:
    """Return a program of the modules in go.sum; skips the test where they can't be had.

    Args:
        name: the folder of its go.mod beside this file.
        package: what is built.
        sources: files of that folder, beside go.mod and go.sum, that it is built of.
    """
    if shutil.which("go") is None:
        pytest.skip(f"{name} is built by go, which is not installed")
    source, cache = _HERE / name, cache_folder() / "go"
    content = b"".join((source / file).read_bytes() for file in ("go.mod", "go.sum", *sources))
    folder = cache / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    program, work = folder / "program", folder / "work"
    # Modules can be deleted without changed permissions.
    variables = {
        "GOCACHE": f"{cache}/build",
        "GOMODCACHE": f"{cache}/modules",
        "GOFLAGS": "-modcacherw -buildvcs=false",
    }
    environment = {**os.environ, **variables}
    with file_lock(folder / "lock"):
        if not program.exists():
            work.mkdir(exist_ok=True)
            if problem := _problem(["go", "list", "-deps", package], source, environment):
                pytest.skip(f"what {name} is built of can't be downloaded: {problem}")
            # Only the command before looks for modules elsewhere.
            build = ["go", "build", "-o", f"{work}/program", package]
            if problem := _problem(build, source, {**environment, "GOPROXY": "off"}):
                pytest.fail(f"{name} can't be built: {problem}")
            (work / "program").rename(program)
            shutil.rmtree(work)
    return program


def _problem(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command, and return the end of what it says where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip()[-2000:] if done.returncode else ""
