"""Flink in a JVM of its own, a cluster within one process, by the jars of Maven's central repository."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import py4j.java_gateway
import py4j.protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from sterna.jvm.jars import pinned_jars
from sterna.jvm.java import find_java
from sterna.servers.jars import fetch_jars, pyspark_jars

_JAR_LIST: Final = "flink.jars"
# Iceberg asks for Hadoop's settings, and Spark has Hadoop's client in two jars.
_HADOOP: Final = ("hadoop-client-api-", "hadoop-client-runtime-", "commons-logging-")
_OPENED: Final = ("lang", "lang.reflect", "net", "io", "nio", "text", "time", "util", "util.concurrent")
# Servers of S3's protocol that know nothing of newer checksums store their framing as content.
_CHECKSUMS: Final = (
    "-Daws.requestChecksumCalculation=when_required",
    "-Daws.responseChecksumValidation=when_required",
)
# Iceberg's pool of threads outlives the statement whose class loader it has: many are run in one process here.
_SETTINGS: Final = {"parallelism.default": "1", "classloader.check-leaked-classloader": "false"}


class FlinkError(Exception):
    """What Flink says of a statement that failed."""


@dataclass(frozen=True)
class Flink:
    """A running Flink.

    Args:
        gateway: to its JVM.
        environment: its table environment, for bounded tables.
    """

    gateway: JavaGateway
    environment: Any

    def sql(self, text: str) -> list[str]:
        """Run a statement to its end, and return its rows as Flink shows them.

        Raises:
            FlinkError: it failed.
        """
        try:
            return self._rows(text)
        except Py4JJavaError as error:
            raise FlinkError(f"{text}: {_causes(error.java_exception)}") from None

    # PySpark looks each Java error up in its own JVM, where the number of another JVM's is another object.
    @patch.object(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
    def _rows(self, text: str) -> list[str]:
        result = self.environment.executeSql(text)
        getattr(result, "await")()  # a word of Python
        rows = result.collect()
        shown = []
        while rows.hasNext():
            shown.append(rows.next().toString())
        return shown

    def stop(self) -> None:
        """End its JVM."""
        self.gateway.shutdown()


def start_flink(work: Path) -> Flink:
    """Start a Flink.

    Args:
        work: a folder for its log.
    """
    jars = [*fetch_jars(pinned_jars("tests.support.servers", _JAR_LIST)), *_hadoop_jars()]
    options = ["-Xmx1g", "-XX:TieredStopAtLevel=1", *_CHECKSUMS]
    options += [f"--add-opens=java.base/java.{package}=ALL-UNNAMED" for package in _OPENED]
    log = (work / "flink.log").open("a")
    port, token = launch_gateway(
        jarpath=str(next(path for path in pyspark_jars() if path.name.startswith("py4j-"))),
        classpath=os.pathsep.join(map(str, jars)),
        javaopts=options,
        java_path=str(find_java().executable),
        die_on_exit=True,
        enable_auth=True,
        redirect_stdout=log,
        redirect_stderr=subprocess.STDOUT,
    )
    gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
    flink: Any = gateway.jvm.org.apache.flink
    configuration = flink.configuration.Configuration()
    for name, value in _SETTINGS.items():
        configuration.setString(name, value)
    settings = flink.table.api.EnvironmentSettings.newInstance().inBatchMode().withConfiguration(configuration).build()
    return Flink(gateway, flink.table.api.TableEnvironment.create(settings))


def _hadoop_jars() -> list[Path]:
    return [path for path in pyspark_jars() if path.name.startswith(_HADOOP)]


def _causes(error: Any) -> str:
    messages = []
    while error is not None:
        messages.append(str(error.getMessage()))
        error = error.getCause()
    return " <- ".join(messages)
