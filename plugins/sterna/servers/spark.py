"""Spark in the embedded deployment: one local session with Iceberg, and native Nessie catalogs on it."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sterna.config.environment import temporary_environment
from sterna.errors import EngineError
from sterna.jvm.class_data_sharing import archive_options
from sterna.jvm.java import find_java, java_home_for_spark
from sterna.servers.jars import ICEBERG_AWS, ICEBERG_SPARK, fetch_jars, pyspark_jars
from sterna.servers.process import LOOPBACK, start_process
from sterna.servers.s3 import Endpoint
from sterna.spark.start import start_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_WARM_UP_SECONDS = 300.0
_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
# The environment variables of `s3.CLIENT_ENVIRONMENT`, as the properties that reach the JVM with its settings.
_JAVA_OPTIONS = (
    "-Daws.requestChecksumCalculation=when_required",
    "-Daws.responseChecksumValidation=when_required",
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",  # what runs here is over before the optimizing compiler has paid for itself
    "-XX:ReservedCodeCacheSize=240m",  # which alone gets as little as 48 MB: a long session runs out of them
)
# Errors only: Iceberg's procedures warn with a stack trace whenever a table is named without its catalog.
ERRORS_ONLY = """\
rootLogger.level = error
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d{yy/MM/dd HH:mm:ss} %p %c{1}: %m%n%ex
"""


def spark_environment(
    work: Path, *, memory: str = "1g", archive: bool = True, console: Console | None = None
) -> dict[str, str]:
    """Write the settings of a Spark with Iceberg into a folder and return the variables with which a Spark here
    takes them.

    They hold no secret: catalogs and their keys are set on the running session, see `add_catalog`.

    Args:
        work: the folder for settings and temporary files.
        memory: the heap of the one JVM, as Spark writes it.
        archive: start it from a class archive, which is made where there is none.
        console: where the download of the Iceberg jars is shown; None for standard error.

    Raises:
        EngineError: Java or the jars can't be had.
    """
    console = console or Console(stderr=True)
    jars = _class_path(console)
    rehearse = partial(_warm_up, jars)
    options = archive_options("spark", find_java(), jars, rehearse, console.print) if archive else []
    return _environment(work / "spark", jars, memory, options)


def _class_path(console: Console) -> list[Path]:
    """Return all jars. Spark's own are among them, though it finds them itself: a class archive is for a beginning of
    the class path, and Spark puts the folder of its settings, which is another each time, before them.
    """
    return [*fetch_jars([ICEBERG_SPARK, ICEBERG_AWS], console=console), *pyspark_jars()]


def _environment(folder: Path, jars: Sequence[Path], memory: str, options: Sequence[str]) -> dict[str, str]:
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    lines = [f"{name} {value}" for name, value in _settings(folder, jars, memory, options).items()]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    (conf / "log4j2.properties").write_text(ERRORS_ONLY)
    java_home = java_home_for_spark(find_java(), folder / "java")
    return {"JAVA_HOME": str(java_home), "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": LOOPBACK}


def _warm_up(jars: Sequence[Path], options: Sequence[str], folder: Path) -> None:
    """Have another process do with Spark what is done with it here, and wait for its end."""
    environ = {**os.environ, **_environment(folder / "spark", jars, "1g", options), "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "sterna.servers.spark_warm_up", folder / "stage"]
    process = start_process("Spark's rehearsal", command, log=folder / "log", env=environ)
    process.wait(_WARM_UP_SECONDS)
    if process.popen.returncode:
        raise EngineError(f"Spark's rehearsal failed; the end of its log:\n{process.log_tail()}")


def start_session(
    environ: Mapping[str, str], *, cores: int = 2, name: str = "sterna", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a new session on this process's local Spark application, which is started if there is none yet.

    The JVM ends with this process; `stop()` on the session ends the application.

    Args:
        environ: what `spark_environment` returned.
        cores: how many tasks run at once.
        name: what the application calls itself.
        settings: settings beyond those of the environment; without secrets, as they are on the JVM's command line.

    Raises:
        EngineError: pyspark is missing or Spark did not start.
    """
    with temporary_environment(environ):
        spark, _ = start_classic(f"local[{cores}]", name, settings or {})
    return spark


def catalog_settings(name: str, uri: str, ref: str, warehouse: str, endpoint: Endpoint) -> dict[str, str]:
    """Return the settings of a native Nessie catalog whose files are read and written at one S3 endpoint.

    Args:
        name: the catalog's name in SQL.
        uri: Nessie's API v2.
        ref: the branch or tag; a name with a hash reads that commit.
        warehouse: the URI below which new tables are made.
        endpoint: where the files are; the wide one for tables with files in several regions.
    """
    prefix = f"spark.sql.catalog.{name}"
    return {
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
        f"{prefix}.uri": uri,
        f"{prefix}.ref": ref,
        f"{prefix}.warehouse": warehouse,
        **_file_settings(prefix, endpoint),
        # Commits of other engines show at once: a cached table would answer with its old snapshot.
        f"{prefix}.cache-enabled": "false",
    }


def _file_settings(prefix: str, endpoint: Endpoint) -> dict[str, str]:
    return {
        f"{prefix}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{prefix}.client.region": endpoint.region,
        f"{prefix}.s3.endpoint": endpoint.url,
        f"{prefix}.s3.path-style-access": "true",
        f"{prefix}.s3.access-key-id": endpoint.access_key,
        f"{prefix}.s3.secret-access-key": endpoint.secret_key,
    }


def add_catalog(spark: SparkSession, name: str, uri: str, ref: str, warehouse: str, endpoint: Endpoint) -> None:
    """Add a catalog to a running session; its name must not have been used in the session before.

    Args:
        name: as in `catalog_settings`.
        uri: as in `catalog_settings`.
        ref: as in `catalog_settings`.
        warehouse: as in `catalog_settings`.
        endpoint: as in `catalog_settings`.
    """
    for key, value in catalog_settings(name, uri, ref, warehouse, endpoint).items():
        spark.conf.set(key, value)


def _quote_option(option: str) -> str:
    return f'"{option}"' if " " in option else option


def _settings(folder: Path, jars: Sequence[Path], memory: str, options: Sequence[str]) -> dict[str, str]:
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
        "spark.driver.extraJavaOptions": " ".join(map(_quote_option, (*_JAVA_OPTIONS, *options))),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": _EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        # Small tables on two cores: the 200 partitions of the default are 200 tasks of a few rows.
        "spark.sql.shuffle.partitions": "2",
    }
