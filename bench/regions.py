"""Two real regions to measure in: catalog, an S3 endpoint each, and one Spark that runs both sides."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import yaml

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.config.environment import temporary_environment
from sterna.config.secrets import environment_secrets
from sterna.replication.execution.spark_executor import Engine
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.region import RegionContext, open_region
from sterna.replication.sync.run import sync
from sterna.servers.spark import add_catalog, spark_environment, start_session
from sterna.servers.stack import Deployment, deployment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MAIN = "main_us"
"""The catalog of `main` in Spark, over us's own endpoint: no proxy is between Spark and the store."""
_QUICK_START = "-XX:TieredStopAtLevel=1"
_STORE_SEES_SECONDS = 1.5  # until an endpoint lists what was put into its folder


@dataclass(frozen=True)
class Pair:
    """Regions us and eu; tables are born in us and replicated to eu."""

    stage: Deployment
    catalog: NessieCatalog

    def context(self, localize: Literal["auto", "spark", "here"] = "auto") -> RegionContext:
        """Return eu, as a command or a task opens it; where it localizes is as in the registry."""
        opened = open_region(self.stage.registry, "eu", environment_secrets())
        return replace(opened, region=opened.region.model_copy(update={"localize": localize}))

    def path(self, uri: str) -> Path:
        """Return the path of a URI's object on disk."""
        if uri.startswith("file:"):
            return Path("/", uri.removeprefix("file:").lstrip("/"))  # Hadoop writes one slash
        bucket, _, key = uri.removeprefix("s3://").partition("/")
        folder = self.stage.endpoints[bucket.removesuffix("-lake")].folder
        assert folder is not None
        return folder / bucket / key

    def keep_on_disk(self, region: str) -> str:
        """Let a region's store be a folder, which takes no processor time of a server; return its URI."""
        document = yaml.safe_load(self.stage.registry.read_text())
        prefix = f"file://{self.stage.work}/{region}-lake"
        for section in document["regions"]:
            if section["name"] == region:
                section["replica_root"] = f"{prefix}/replica"
        for location in document["locations"]:
            if location["region"] == region:
                location |= {"prefix": prefix, "remote": {"type": "local"}}
                del location["credential_id"]
        self.stage.registry.write_text(yaml.safe_dump(document))
        return prefix

    def start_stores(self) -> None:
        """Start both stores anew, with ETags as object stores have them: at hand, and not by reading each file."""
        for endpoint in self.stage.endpoints.values():
            endpoint.start("--etag-hash", "")

    def remove(self, *uris: str) -> None:
        """Delete everything below some URIs."""
        for uri in uris:
            shutil.rmtree(self.path(uri), ignore_errors=True)
        for bucket in {uri.removeprefix("s3://").partition("/")[0] for uri in uris if uri.startswith("s3://")}:
            # An endpoint caches objects that were written through it, and misses their deletion on disk.
            self.stage.endpoints[bucket.removesuffix("-lake")].start()


@dataclass(frozen=True)
class Regions(Pair):
    """The two regions, and a Spark.

    Args:
        spark: the session; its application is also the one that sterna localizes with.
        environ: variables with which another process finds the same Spark.
    """

    spark: SparkSession
    environ: dict[str, str]


def settle() -> None:
    """Wait until the endpoints see what was put into their folders."""
    time.sleep(_STORE_SEES_SECONDS)


@contextmanager
def pair(
    work: Path | None, *, postgres: bool = True, airflow: bool = False, count_requests: bool = False
) -> Iterator[Pair]:
    """Start both regions.

    Args:
        work: a folder for everything, new or empty; None for a temporary one, removed at the end.
        postgres: keep the catalog in Postgres, as a real one is; else in memory.
        airflow: prepare Airflow's tables.
        count_requests: let the endpoints count requests; costs some speed.
    """
    with (
        folder_of(work) as folder,
        deployment(folder, postgres=postgres, airflow=airflow, count_requests=count_requests) as stage,
        temporary_environment(stage.environment),
        NessieCatalog(stage.nessie.uri) as catalog,
    ):
        yield Pair(stage, catalog)


@contextmanager
def regions(
    work: Path | None, *, cores: int = 2, memory: str = "4g", postgres: bool = False, count_requests: bool = False
) -> Iterator[Regions]:
    """Bring up both regions and Spark.

    Args:
        work, postgres, count_requests: see `pair`.
        cores: how many tasks Spark runs at once.
        memory: the heap of Spark's JVM.
    """
    with pair(work, postgres=postgres, count_requests=count_requests) as world:
        environ = spark_environment(world.stage.work, memory=memory)
        # The embedded deployment starts quickly; a rival that runs for a minute gets the whole compiler.
        settings = Path(environ["SPARK_CONF_DIR"], "spark-defaults.conf")
        text = settings.read_text()
        assert _QUICK_START in text
        settings.write_text(text.replace(_QUICK_START, ""))
        with temporary_environment(environ):
            spark = start_session(environ, cores=cores, name="bench")
            try:
                add_catalog(
                    spark,
                    MAIN,
                    world.stage.nessie.uri,
                    "main",
                    world.stage.warehouse("us"),
                    world.stage.endpoints["us"],
                )
                yield Regions(world.stage, world.catalog, spark, environ)
            finally:
                spark.stop()


def sync_one_file(context: RegionContext, engine: Engine | None = None) -> float:
    """Sync a commit of one file in this process; return the seconds."""
    started = time.monotonic()
    done = sync(context, SyncOptions(), lambda line: None, engine=engine)
    seconds = time.monotonic() - started
    assert done.outcome == "published" and done.copied.files == 1, done
    return seconds


def run_sterna(*arguments: str) -> str:
    """Run the command line as a process of its own, and return its output.

    Raises:
        CalledProcessError: it failed.
    """
    return subprocess.run(
        [sys.executable, "-m", "sterna.cli.main", *arguments], check=True, capture_output=True, text=True
    ).stdout


def report_progress(line: str) -> None:
    """Print progress to stderr; standard output is for the result."""
    print(line, file=sys.stderr, flush=True)


@contextmanager
def folder_of(work: Path | None) -> Iterator[Path]:
    """Yield a folder for everything: the one that was named, or a temporary one that is removed at the end."""
    if work is not None:
        yield work
        return
    folder = tempfile.mkdtemp(prefix="sterna-bench-")
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
