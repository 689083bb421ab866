"""The real servers that the suites run against, each started once a session and stopped at its end."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyspark.sql import SparkSession

from sterna.catalog.nessie.catalog import NessieCatalog
from sterna.catalog.writer import CatalogWriter
from sterna.servers.nessie import Nessie, start_nessie
from sterna.servers.spark import spark_environment, start_session
from sterna.servers.stack import deployment
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.stores import Stores, file_stores, moto_stores, rclone_stores
from tests.support.world import World, world_of

# A query of a few rows is over before its code were compiled. And Spark writes down each plan for its web UI: in full
# that takes a tenth of all that Spark does here.
_FEW_ROWS = {
    "spark.sql.ui.explainMode": "simple",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


@pytest.fixture(scope="session")
def nessie_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nessie]:
    """A Nessie that keeps its catalog in memory; tests share it, so each makes its own branches."""
    server = start_nessie(tmp_path_factory.mktemp("nessie"))
    yield server
    server.stop()


@pytest.fixture(params=["nessie", "double"])
def catalog(request: pytest.FixtureRequest) -> Iterator[CatalogWriter]:
    """The real Nessie, and the in-memory double."""
    if request.param == "double":
        yield InMemoryCatalog()
        return
    # Pages of 3, so that every list in these tests has several.
    with NessieCatalog(request.getfixturevalue("nessie_server").uri, page_size=3) as real:
        yield real


@pytest.fixture
def branch(catalog: CatalogWriter) -> str:
    """An empty branch of this test's own."""
    return catalog.create_branch(f"test-{uuid.uuid4().hex}").name


@pytest.fixture(scope="session")
def spark_environ(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables with which a Spark is as small, and has as much, as the one below."""
    return spark_environment(tmp_path_factory.mktemp("spark"), memory="2g")


@pytest.fixture(scope="session")
def spark(spark_environ: dict[str, str], pytestconfig: pytest.Config) -> SparkSession:
    """The one Spark session of this process: it writes tables, and sterna localizes with it."""
    # Hundreds of queries, each of a whole table's history, would fill the heap with what the web UI could show of them.
    kept = {
        f"spark.{name}": "10"
        for name in ("sql.ui.retainedExecutions", "ui.retainedJobs", "ui.retainedStages", "ui.retainedTasks")
    }
    few = {} if pytestconfig.getoption("long") else _FEW_ROWS  # at length as Spark is elsewhere
    return start_session(spark_environ, settings={**kept, **few, "spark.ui.enabled": "false"})


@pytest.fixture(scope="session")
def world(tmp_path_factory: pytest.TempPathFactory, spark: SparkSession) -> Iterator[World]:
    """Two regions with real servers; tests share them, so each module uses a namespace of its own."""
    with (
        deployment(tmp_path_factory.mktemp("world"), postgres=False, count_requests=True) as stage,
        world_of(stage, spark) as session_world,
    ):
        yield session_world


@pytest.fixture(scope="module", params=["rclone", "moto", "file"])
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Two regions' stores of each kind."""
    kind = request.param
    folder = tmp_path_factory.mktemp(kind)
    with (
        moto_stores()
        if kind == "moto"
        else rclone_stores(folder)
        if kind == "rclone"
        else file_stores(folder) as opened
    ):
        yield opened


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stores]:
    """Two regions' stores behind endpoints that can be made to fail."""
    with rclone_stores(tmp_path_factory.mktemp("served")) as opened:
        yield opened
