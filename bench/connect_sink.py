"""Iceberg's sink for Kafka Connect, as a rival: a worker of Kafka Connect (standalone) with the jars of Maven Central.

What the sink needs of Hadoop comes from PySpark's jars, and S3 from Iceberg's own bundle.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from bench.regions import Pair
from bench.writer import properties
from sterna.jvm.jars import Jar
from sterna.jvm.java import find_java
from sterna.servers.jars import ICEBERG_AWS, fetch_jars, pyspark_jars
from sterna.servers.process import LOOPBACK, Process, free_port, start_process, wait_until_ready

_JARS = Path(__file__).with_name("connect.jars")
_NAME = "iceberg"
_CONTROL = "control-iceberg"
_START_SECONDS = 180.0
_REGION = {"client.region": "us-east-1"}


@dataclass
class Sink:
    """A sink that can be killed, and started again.

    Args:
        world: where its table is.
        server: the broker's address.
        topic: what it reads.
        table: what it writes to.
        tasks: how many of its tasks read.
        every: seconds between two commits.
    """

    world: Pair
    server: str
    topic: str
    table: str
    tasks: int
    every: float
    process: Process | None = None

    def start(self) -> None:
        """Start it, and wait until its tasks run."""
        folder = self.world.stage.work / "connect"
        folder.mkdir(exist_ok=True)
        port = free_port()
        worker = _written(folder / "worker.properties", self._worker(folder, port))
        connector = _written(folder / "sink.properties", self._connector())
        java = [str(find_java().executable), "-Xmx1g", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"]
        command = [*java, "-cp", _classpath(), "org.apache.kafka.connect.cli.ConnectStandalone"]
        self.process = start_process(
            "Kafka Connect", [*command, str(worker), str(connector)], log=folder / "connect.log", cwd=folder
        )
        wait_until_ready(self.process, partial(_runs, port, self.tasks), timeout=_START_SECONDS)

    def kill(self) -> None:
        """End it without a word."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGKILL)
        self.stop()

    def stop(self) -> None:
        """End it."""
        if self.process is not None:
            self.process.stop()
            self.process = None

    def _worker(self, folder: Path, port: int) -> dict[str, object]:
        json = "org.apache.kafka.connect.json.JsonConverter"
        return {
            "bootstrap.servers": self.server,
            "key.converter": json,
            "value.converter": json,
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            "offset.storage.file.filename": folder / "offsets",
            "listeners": f"http://{LOOPBACK}:{port}",
            "connector.client.config.override.policy": "All",
            "consumer.auto.offset.reset": "earliest",
            "consumer.max.poll.records": 5000,
            "offset.flush.interval.ms": 1000,  # how long it may sleep before it checks for a commit that begins
        }

    def _connector(self) -> dict[str, object]:
        stage = self.world.stage
        catalog = {
            "type": "rest",
            "uri": f"{stage.nessie.iceberg_uri}/main",
            "warehouse": "us",
            "io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
            "s3.path-style-access": "true",
            **{name: value for name, value in properties(stage.endpoints["us"]).items() if "virtual" not in name},
            **_REGION,
        }
        return {
            "name": _NAME,
            "connector.class": "org.apache.iceberg.connect.IcebergSinkConnector",
            "tasks.max": self.tasks,
            "topics": self.topic,
            "iceberg.tables": self.table,
            "iceberg.control.topic": _CONTROL,
            "iceberg.control.commit.interval-ms": round(self.every * 1000),
            "iceberg.control.commit.timeout-ms": 30_000,
            **{f"iceberg.catalog.{name}": value for name, value in catalog.items()},
            "iceberg.kafka.bootstrap.servers": self.server,
        }


def control_topic() -> str:
    """Return the topic over which the sink's tasks agree on commits: it has to be there."""
    return _CONTROL


def _written(path: Path, settings: Mapping[str, object]) -> Path:
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    path.chmod(0o600)
    return path


def _classpath() -> str:
    rows = [line.split() for line in _JARS.read_text().splitlines() if line and not line.startswith("#")]
    jars = [Jar(group, artifact, version, int(size), digest) for group, artifact, version, size, digest in rows]
    hadoop = [path for path in pyspark_jars() if path.name.startswith("hadoop-client-")]
    return os.pathsep.join(map(str, [*fetch_jars([*jars, ICEBERG_AWS]), *hadoop]))


def _runs(port: int, tasks: int) -> bool:
    try:
        response = httpx.get(f"http://{LOOPBACK}:{port}/connectors/{_NAME}/status", timeout=5)
    except httpx.TransportError:
        return False
    running = [task["state"] for task in response.json().get("tasks", ())] if response.status_code == 200 else []
    assert "FAILED" not in running, response.text[:3000]
    return running == ["RUNNING"] * tasks
