"""Engines that are libraries of compiled languages: programs of one statement each, built once in sterna's cache."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sterna.servers.s3 import CLIENT_ENVIRONMENT
from tests.support.built_programs import go_program, rust_program


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


def json_rows(name: str, *ids: int) -> str:
    """Return rows as the programs take them, all of one name."""
    return json.dumps([{"id": number, "name": name} for number in ids])


def iceberg_go() -> Path:
    """Return the program of iceberg-go; skips the test where it can't be built."""
    return go_program("iceberg_go", ".", "main.go")


def iceberg_rust() -> Path:
    """Return the program of iceberg-rust; skips the test where it can't be built."""
    return rust_program("iceberg_rust")
