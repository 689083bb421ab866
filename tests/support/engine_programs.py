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
    caches = {"GOCACHE": "go/build", "GOMODCACHE": "go/modules"}
    fetch = ["go", "list", "-deps", "."]
    build = ["go", "build", "-o", "{work}/engine", "."]
    source = _Source("iceberg_go", ("go.mod", "go.sum", "main.go"), caches, fetch, build, "engine")
    # Its modules can be deleted without changed permissions, and only the first command looks for them elsewhere.
    return _built(source, {"GOFLAGS": "-modcacherw -buildvcs=false"}, {"GOPROXY": "off"})


@dataclass(frozen=True)
class _Source:
    """The source of a program, and how it is built.

    Args:
        name: its folder here.
        files: what decides the program.
        caches: environment variable → a folder in sterna's cache, for what is downloaded and compiled.
        fetch: the command that downloads what it is built of.
        build: the command that builds it; `{work}` is a folder for that.
        product: the program, in that folder.
    """

    name: str
    files: Sequence[str]
    caches: Mapping[str, str]
    fetch: Sequence[str]
    build: Sequence[str]
    product: str


def _built(source: _Source, variables: Mapping[str, str], offline: Mapping[str, str]) -> Path:
    tool = source.fetch[0]
    if shutil.which(tool) is None:
        pytest.skip(f"{source.name} is built by {tool}, which is not installed")
    home = _HERE / source.name
    digest = hashlib.sha256(b"".join((home / file).read_bytes() for file in source.files)).hexdigest()[:16]
    folder = cache_folder() / "engines" / f"{source.name}-{digest}"
    folder.mkdir(parents=True, exist_ok=True)
    program, work = folder / "engine", folder / "work"
    environment = {**os.environ, **variables}
    environment |= {name: str(cache_folder() / path) for name, path in source.caches.items()}
    with file_lock(folder / "lock"):
        if not program.exists():
            work.mkdir(exist_ok=True)
            if problem := _problem(source.fetch, home, environment):
                pytest.skip(f"what {source.name} is built of can't be downloaded: {problem}")
            build = [word.format(work=work) for word in source.build]
            if problem := _problem(build, home, {**environment, **offline}):
                pytest.fail(f"{source.name} can't be built: {problem}")
            (work / source.product).rename(program)
            shutil.rmtree(work)
    return program


def _problem(command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> str:
    """Run a command, and return the end of what it says where it fails."""
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return done.stderr.strip()[-2000:] if done.returncode else ""
