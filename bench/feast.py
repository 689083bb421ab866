"""Feast beside sterna: in a Python environment of its own, on the same Valkey, with the same rows."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from bench.regions import report_progress
from sterna.servers.process import LOOPBACK, free_port, start_process, wait_until_ready
from sterna.servers.valkey import ValkeyServer

VERSION = "0.67.0"
_START = 180.0
_DEFINITIONS = """\
from datetime import timedelta
from feast import Entity, FeatureView, Field, FileSource
from feast.types import Float64, Int64, String

user = Entity(name="user", join_keys=["user_id"])
source = FileSource(path={path!r}, timestamp_field="ts")
types = {{"f": Int64, "d": Float64, "s": String}}
schema = [Field(name=name, dtype=types[name[0]]) for name in {names!r}]
view = FeatureView(name="user", entities=[user], ttl=timedelta(days=3650), schema=schema, online=True, source=source)
"""


@dataclass(frozen=True)
class Feast:
    """A feature repository.

    Args:
        program: the command `feast`.
    """

    folder: Path
    program: Path

    def run(self, *words: str) -> None:
        """Run a command to its end.

        Raises:
            RuntimeError: it failed.
        """
        done = subprocess.run([self.program, *words], cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"feast {' '.join(words)}: {done.stderr[-2000:]}")

    @contextmanager
    def served(self) -> Iterator[str]:
        """Run its feature server; yield its address."""
        url = f"http://{LOOPBACK}:{(port := free_port())}"
        command = [
            self.program,
            "serve",
            "--host",
            LOOPBACK,
            "--port",
            str(port),
            "--no-access-log",
            "--max-requests",
            "0",
        ]
        process = start_process("Feast", command, log=self.folder / "serve.log", cwd=self.folder)

        def answers() -> bool:
            try:
                return httpx.get(f"{url}/health", timeout=10).is_success
            except httpx.HTTPError:
                return False

        try:
            wait_until_ready(process, answers, timeout=_START)
            yield url
        finally:
            process.stop()


def environment(folder: Path) -> Path:
    """Make a Python environment with Feast in it, once; return its command `feast`."""
    program = folder / "bin" / "feast"
    if not program.exists():
        report_progress(f"installing Feast {VERSION} into an environment of its own")
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin" / "pip", "install", "-q", f"feast[redis]=={VERSION}"], check=True)
    return program


def repository(folder: Path, program: Path, rows: Path, names: list[str], valkey: ValkeyServer) -> Feast:
    """Create a repository with one view of users, and apply it to Feast.

    Args:
        program: the command `feast`.
        rows: a Parquet file with them.
        names: columns that are features; the first letter is their type's.
        valkey: the online store.
    """
    folder.mkdir()
    store = {"type": "redis", "connection_string": f"{LOOPBACK}:{valkey.port},password={valkey.password}"}
    settings: dict[str, Any] = {
        "project": "bench",
        "provider": "local",
        "registry": "registry.db",
        "online_store": store,
    }
    settings |= {"offline_store": {"type": "file"}, "entity_key_serialization_version": 3}
    (folder / "feature_store.yaml").write_text(json.dumps(settings))
    (folder / "definitions.py").write_text(_DEFINITIONS.format(path=str(rows), names=names))
    feast = Feast(folder, program)
    started = time.monotonic()
    feast.run("apply")
    report_progress(f"feast apply: {time.monotonic() - started:.1f} s")
    return feast
