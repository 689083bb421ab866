"""A Spark Connect server for tests, as `docker-compose.yml` runs one a region."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sterna.errors import EngineError
from sterna.jvm.java import SPARK_MINIMUM_JAVA, find_java, java_home_for_spark
from sterna.servers.process import LOOPBACK, Process, start_process, wait_until_ready
from sterna.servers.spark import ERRORS_ONLY
from sterna.spark.worker import SECRETS_KEY

_START_SECONDS = 180.0
_READY_MESSAGE = "Spark Connect server started"
_LOGGING = f"""\
{ERRORS_ONLY}logger.connect.name = org.apache.spark.sql.connect.service.SparkConnectServer
logger.connect.level = info
"""


@dataclass(frozen=True)
class SparkConnect:
    """A running Spark Connect server.

    Args:
        url: the value of a region's `spark` in the registry.
    """

    url: str
    process: Process

    def stop(self) -> None:
        """End the server."""
        self.process.stop()


def start_spark_connect(work: Path, region: str, port: int, *, memory: str = "512m") -> SparkConnect:
    """Start a Spark Connect server at a loopback port and wait until it answers.

    Args:
        work: the folder for its log and temporary files.
        region: the region it works for; names its files.
        memory: the heap of its JVM, as Spark writes it.

    Raises:
        EngineError: Spark or Java is missing, or it did not start.
    """
    try:
        import pyspark
    except ImportError as error:
        raise EngineError(
            "the package pyspark is not installed", hint="install sterna with the extra 'local'"
        ) from error
    folder = work / f"spark-{region}"
    (folder / "conf").mkdir(parents=True, exist_ok=True)
    (folder / "conf" / "log4j2.properties").write_text(_LOGGING)
    settings = {
        "spark.connect.grpc.binding.address": LOOPBACK,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m",
        "spark.driver.memory": memory,
        "spark.local.dir": str(folder / "tmp"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.ui.enabled": "false",
        # Declares the key that carries credentials to the workers, and so redacts it wherever settings are written.
        SECRETS_KEY: "{}",
    }
    options = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    command = [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), "--master", "local[2]", *options]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environ = {
        **os.environ,
        "JAVA_HOME": str(java_home_for_spark(find_java(SPARK_MINIMUM_JAVA), folder / "java")),
        "SPARK_CONF_DIR": str(folder / "conf"),
        "SPARK_LOCAL_IP": LOOPBACK,
        "PYSPARK_PYTHON": sys.executable,
    }
    log = work / f"spark-{region}.log"
    log_offset = log.stat().st_size if log.exists() else 0  # another server's words
    process = start_process(f"Spark Connect of {region}", command, log=log, env=environ)
    wait_until_ready(process, lambda: _READY_MESSAGE.encode() in log.read_bytes()[log_offset:], timeout=_START_SECONDS)
    return SparkConnect(f"sc://{LOOPBACK}:{port}", process)
