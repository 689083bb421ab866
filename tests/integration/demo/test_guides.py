"""The guides that begin with two empty regions, as they stand in `docs/`: what is typed, and what then appears.

One `demo --empty` serves them all. Each configures its own services file, and has a namespace of its own.
"""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from sterna.servers.jars import ICEBERG_AWS, ICEBERG_SPARK, fetch_jars
from sterna.servers.process import free_port
from tests.support.command import STERNA
from tests.support.guides import LAKE, Block, read_blocks, run_guide
from tests.support.newcomer import with_browser

_REST_ADDRESS = ("rest-catalog.md", "## A first table")
_QUICK = (
    ("installation.md", "### On one machine"),
    ("restore.md", "## A first restore"),
    _REST_ADDRESS,
    ("queries.md", "## A first figure"),
    ("events.md", "## A first event"),
)
_WITH_SPARK = (
    ("cdc.md", "## From nothing to a followed database"),
    ("transforms.md", "## Three layers in ten minutes"),
    ("features.md", "## From nothing to a served feature"),
)
_INGESTION = ("ingest.md", "## A first start")
_REST_ADDRESS_IN_SPARK = ("rest-catalog.md", "## A first table in Spark")
_AIRFLOW = ("installation.md", "### An Airflow on one machine")
GUIDES = (*_QUICK, *_WITH_SPARK, _INGESTION, _REST_ADDRESS_IN_SPARK, _AIRFLOW)
"""All that are run: the page, and the heading of what is run of it."""
_START = f"python3 run.py demo --empty --work {LAKE}\n"
_START_SECONDS = 600.0
_END_SECONDS = 60
_AIRFLOW_LOG_PORTS = ("LOGGING__WORKER_LOG_SERVER_PORT", "LOGGING__TRIGGER_LOG_SERVER_PORT")
_FETCHED = "https://repo1.maven.org/maven2/org/apache/iceberg/$jar/1.12.0/"


def first_steps() -> list[Block]:
    """What every guide begins with, but for the command that runs in a terminal of its own."""
    return read_blocks("demo.md", "## Regions to try things with")


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Two empty regions, started as the page says."""
    folder = tmp_path_factory.mktemp("guides") / "lake"
    log = folder.with_name("log")
    assert _START in [block.text for block in first_steps()]
    with log.open("wb") as stream:
        process = subprocess.Popen([*STERNA, "demo", "--empty", "--work", str(folder)], stdout=stream, stderr=stream)
    try:
        end = time.monotonic() + _START_SECONDS
        while "ready" not in log.read_text():
            assert process.poll() is None and time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        yield folder
    finally:
        process.terminate()
        process.wait(_END_SECONDS)
    assert (folder / "variables.sh").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize(("page", "heading"), _QUICK)
def test_a_guide_does_what_it_says(lake: Path, tmp_path: Path, page: str, heading: str) -> None:
    run_guide([*first_steps(), *read_blocks(page, heading)], lake, tmp_path)


@pytest.mark.spark
@pytest.mark.rare
@pytest.mark.parametrize(("page", "heading"), _WITH_SPARK)
def test_a_guide_with_spark_does_what_it_says(lake: Path, tmp_path: Path, page: str, heading: str) -> None:
    run_guide([*first_steps(), *read_blocks(page, heading)], lake, tmp_path)


def iceberg_runtime() -> Block:
    """How a Spark of one's own gets Iceberg's runtime."""
    return next(block for block in read_blocks("installation.md", "## The package") if _FETCHED in block.text)


def test_the_page_names_the_jars_that_are_tested() -> None:
    text = iceberg_runtime().text
    for jar in (ICEBERG_SPARK, ICEBERG_AWS):
        assert jar.name in text and f"/{jar.revision}/$jar-{jar.revision}.jar" in text


@pytest.mark.spark
@pytest.mark.rare
def test_ingestion_leads_to_a_row_on_main(lake: Path, tmp_path: Path) -> None:
    """With a Spark whose jars come as the installation says, from this machine's cache."""
    jars = fetch_jars([ICEBERG_SPARK, ICEBERG_AWS])[0].parent
    replaced = {_FETCHED: f"file://{jars}/", "/opt/iceberg": str(lake / "jars")}
    blocks = [*first_steps(), iceberg_runtime(), *read_blocks(*_INGESTION)]
    output = run_guide(blocks, lake, tmp_path, replaced)
    assert "HTTP/1.1 201 Created" in output
    assert "1 batches settled; nothing waits" in output and '"state":"published"' in output
    assert "+ id: 1\n+ id: 2\n" in output


@pytest.mark.spark
@pytest.mark.rare
def test_the_address_has_a_first_table_in_spark(lake: Path, tmp_path: Path) -> None:
    """The settings are added to a copy of Spark's own, for other guides have no address."""
    conf = shutil.copytree(lake / "spark" / "conf", tmp_path / "conf")
    start = read_blocks(*_REST_ADDRESS)[:2]
    blocks = [*first_steps(), *start, *read_blocks(*_REST_ADDRESS_IN_SPARK)]
    output = tmp_path / "output"
    output.mkdir()
    run_guide(blocks, lake, output, {"$SPARK_CONF_DIR": str(conf), "spark-sql ": f"SPARK_CONF_DIR={conf} spark-sql "})


@pytest.mark.airflow
@pytest.mark.spark
@pytest.mark.rare
def test_a_new_airflow_replicates_and_has_an_alarm_that_is_cured(lake: Path, tmp_path: Path) -> None:
    """In an environment of its own, from a new `airflow standalone` on SQLite; only its ports are others.

    A browser goes along: it sees on the pages what is typed, and does there what can be done there. The last test
    here, for it leaves a table that the other guides' registry would hold.
    """
    home = "export AIRFLOW_HOME="
    settings = "".join(f"export AIRFLOW__{name}={free_port()}\n" for name in _AIRFLOW_LOG_PORTS)
    port = free_port()
    url = f"export AIRFLOW__API__PORT={port}\nexport AIRFLOW__API__BASE_URL=http://localhost:{port}\n"
    blocks = [*first_steps(), *with_browser(read_blocks(*_AIRFLOW), f"http://localhost:{port}")]
    output = run_guide(blocks, lake, tmp_path, {home: f"{settings}{url}{home}"})
    assert "eu holds 1 tables for more than 60 s" in output
    assert "UnregisteredUri" in output and "rail.stops in eu: fresh" in output
