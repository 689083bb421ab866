"""Engines that are libraries of compiled languages: programs of one statement each, built once in sterna's cache."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from sterna.jvm.jars import cache_folder, file_lock
from sterna.servers.s3 import CLIENT_ENVIRONMENT

_HERE = Path(__file__).parent


class StatementError(Exception):
    """What an engine says of a statement that failed."""


@dataclass(frozen=True)
class EngineProgram:
    """A program, and where it works.

    Args:
        program: its path.
        address: the catalog's.
        store: PyIceberg's properties of the store.
    """

    program: Path
    address: str
    store: Mapping[str, str]

    def run(self, table: str, statement: str, argument: str = "") -> str:
        """Run a statement, and return what it prints.

        Args:
            table: the namespace's and the table's name, with a dot between them.
            statement: as the program's source has it.
            argument: the statement's.

        Raises:
            StatementError: it failed.
        """
        command = [self.program, self.address, *table.split("."), statement, argument]
        environment = {**os.environ, **CLIENT_ENVIRONMENT, "ICEBERG_STORE": json.dumps(dict(self.store))}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise StatementError(f"{statement} {argument}: {done.stderr.strip()}")
        return done.stdout.strip()

    def rows(self, table: str, metadata: str = "") -> list[list[Any]]:
        """Read a table, and return its rows.

        Args:
            table: as `run` has it.
            metadata: the URI of the metadata.json to read; default: what the catalog says.

        Raises:
            StatementError: as `run`.
        """
        text = self.run(table, "read-file", metadata) if metadata else self.run(table, "read")
        return [json.loads(line) for line in text.splitlines()]


def iceberg_go() -> Path:
    """Return the program of iceberg-go, of the modules in go.sum; skips the test where they can't be had."""
    if shutil.which("go") is None:
        pytest.skip("iceberg_go is built by go, which is not installed")
    source, cache = _HERE / "iceberg_go", cache_folder()
    content = b"".join((source / file).read_bytes() for file in ("go.mod", "go.sum", "main.go"))
    folder = cache / "engines" / f"iceberg_go-{hashlib.sha256(content).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    program, work = folder / "engine", folder / "work"
    caches = {"GOCACHE": str(cache / "go/build"), "GOMODCACHE": str(cache / "go/modules")}
    # Modules can be deleted without changed permissions.
    environment = {**os.environ, **caches, "GOFLAGS": "-modcacherw -buildvcs=false"}
    with file_lock(folder / "lock"):
        if not program.exists():
            work.mkdir(exist_ok=True)
            if problem := _problem(["go", "list", "-deps", "."], source, environment):
                pytest.skip(f"what iceberg_go is built of can't be downloaded: {problem}")
            # Only the command before looks for modules elsewhere.
            build = ["go", "build", "-o", f"{work}/engine", "."]
            if problem := _problem(build, source, {**environment, "GOPROXY": "off"}):
                pytest.fail(f"iceberg_go can't be built: {problem}")
            (work / "engine").rename(program)
            shutil.rmtree(work)
    return program


def _problem(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command, and return the end of what it says where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip()[-2000:] if done.returncode else ""
