"""Spark in the embedded deployment: one local session with Iceberg, and native Nessie catalogs on it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from sterna.edges.environment import environment
from sterna.edges.java import find_java, java_home_for_spark
from sterna.edges.spark.start import start_classic
from sterna.embedded.jars import ICEBERG_AWS, ICEBERG_SPARK, fetch_jars
from sterna.embedded.process import LOOPBACK
from sterna.embedded.s3 import Endpoint

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_EXTENSIONS = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"
# What the environment variables of `s3.CLIENT_ENVIRONMENT` say, as the properties that reach the JVM with its settings.
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


def spark_environment(work: Path, *, memory: str = "1g", console: Console | None = None) -> dict[str, str]:
    """Write the settings of a Spark with Iceberg into a folder and return the variables with which a Spark here
    takes them.

    They hold no secret: catalogs and their keys are set on the running session, see `add_catalog`.

    Args:
        work: the folder for settings and temporary files.
        memory: the heap of the one JVM, as Spark writes it.
        console: where the download of the Iceberg jars is shown; None for standard error.

    Raises:
        EngineError: Java or the jars can't be had.
    """
    folder = work / "spark"
    conf = folder / "conf"
    conf.mkdir(parents=True, exist_ok=True)
    _write_settings(conf, _settings(folder, memory, console))
    java_home = java_home_for_spark(find_java(), folder / "java")
    return {"JAVA_HOME": str(java_home), "SPARK_CONF_DIR": str(conf), "SPARK_LOCAL_IP": LOOPBACK}


def _write_settings(conf: Path, settings: Mapping[str, str]) -> None:
    lines = [f"{name} {value}" for name, value in settings.items()]
    (conf / "spark-defaults.conf").write_text("\n".join(lines) + "\n")
    (conf / "log4j2.properties").write_text(ERRORS_ONLY)


def start_session(
    environ: Mapping[str, str], *, cores: int = 2, name: str = "sterna", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Return a new session on this process's local Spark application, which is started if there is none yet.

    The JVM ends with this process; `stop()` on the session ends the application.

    Args:
        environ: what `spark_environment` returned.
        cores: how many tasks run at once.
        name: what the application calls itself.
        settings: settings beyond those of the environment; without secrets, they stand on the JVM's command line.

    Raises:
        EngineError: pyspark is missing or Spark did not start.
    """
    with environment(environ):
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
        spark: the session.
        name: as in `catalog_settings`.
        uri: as in `catalog_settings`.
        ref: as in `catalog_settings`.
        warehouse: as in `catalog_settings`.
        endpoint: as in `catalog_settings`.
    """
    for key, value in catalog_settings(name, uri, ref, warehouse, endpoint).items():
        spark.conf.set(key, value)


def _settings(folder: Path, memory: str, console: Console | None) -> dict[str, str]:
    jars = fetch_jars([ICEBERG_SPARK, ICEBERG_AWS], console=console)
    return {
        "spark.driver.memory": memory,
        "spark.driver.extraClassPath": os.pathsep.join(str(jar) for jar in jars),
        "spark.driver.extraJavaOptions": " ".join(_JAVA_OPTIONS),
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.extensions": _EXTENSIONS,
        "spark.sql.session.timeZone": "UTC",
        # Small tables on two cores: the 200 partitions of the default are 200 tasks of a few rows.
        "spark.sql.shuffle.partitions": "2",
    }
