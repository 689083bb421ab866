"""Programs of Go's modules and of Rust's crates, built once in sterna's cache."""

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
    cache = cache_folder() / "go"
    # Modules can be deleted without changed permissions.
    variables = {
        "GOCACHE": f"{cache}/build",
        "GOMODCACHE": f"{cache}/modules",
        "GOFLAGS": "-modcacherw -buildvcs=false",
    }
    fetch = ["go", "list", "-deps", package]
    # Only the command before looks for modules elsewhere.
    build = ["env", "GOPROXY=off", "go", "build", "-o", "{work}/program", package]
    return _built(name, ("go.mod", "go.sum", *sources), variables, fetch, build, "program")


def rust_program(name: str) -> Path:
    """Return a program of the crates in Cargo.lock; skips the test where they can't be had.

    Args:
        name: the folder of its Cargo.toml beside this file, and the program's name there.
    """
    fetch, build = ["cargo", "fetch", "--locked"], ["cargo", "build", "--frozen", "--target-dir", "{work}"]
    return _built(name, ("Cargo.toml", "Cargo.lock", "src/main.rs"), {}, fetch, build, f"debug/{name}")


def _built(
    name: str,
    files: Sequence[str],
    variables: Mapping[str, str],
    fetch: Sequence[str],
    build: Sequence[str],
    product: str,
) -> Path:
    """Build a program unless it is there, and return it.

    Args:
        name: the folder of its source here.
        files: what decides the program, in that folder.
        variables: of the commands' environment.
        fetch: downloads what it is built of; where that fails, the test is skipped.
        build: builds it without downloads; `{work}` is a folder for that.
        product: the program, in that folder.
    """
    if shutil.which(fetch[0]) is None:
        pytest.skip(f"{name} is built by {fetch[0]}, which is not installed")
    source = _HERE / name
    content = b"".join((source / file).read_bytes() for file in files)
    folder = cache_folder() / fetch[0] / f"{name}-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    program, work = folder / "program", folder / "work"
    environment = {**os.environ, **variables}
    with file_lock(folder / "lock"):
        if not program.exists():
            work.mkdir(exist_ok=True)
            if problem := _problem(fetch, source, environment):
                pytest.skip(f"what {name} is built of can't be downloaded: {problem}")
            if problem := _problem([word.format(work=work) for word in build], source, environment):
                pytest.fail(f"{name} can't be built: {problem}")
            (work / product).rename(program)
            shutil.rmtree(work)
    return program


def _problem(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command, and return the end of what it says where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip()[-2000:] if done.returncode else ""
