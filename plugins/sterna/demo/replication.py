"""`sterna demo`: two regions on one machine, from nothing to a region that answers while the other one is dark."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.demo import nyc, uploads
from sterna.demo.addresses import addresses
from sterna.demo.folder import work_folder
from sterna.demo.story import Listener, Story, follow_story
from sterna.edges.environment import environment
from sterna.edges.secrets import environment_secrets
from sterna.embedded.airflow import Airflow
from sterna.embedded.process import stop_all
from sterna.embedded.spark import add_catalog, spark_environment, start_session
from sterna.embedded.stack import Deployment, deployment
from sterna.embedded.valkey import start_valkey
from sterna.errors import SternaError
from sterna.registry import run_names
from sterna.replica.codecs import REPORT
from sterna.replica.lag import measure_lag
from sterna.replica.region import RegionContext, open_region
from sterna.replica.run_folder import runs_folder, unpacked
from sterna.verify.structure import verify_structure

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Say = Callable[[str], None]
DAG = "sterna_sync"
_CONVERGE_SECONDS = 600.0
_EU_MONTHS = range(7, 13)
_WIDE_SECONDS = 1.5  # until the endpoint that serves all regions' buckets shows what was written at a region's own


@dataclass(frozen=True)
class RegionResult:
    """What the demo saw of one region.

    Args:
        region: its name.
        tables: tables on its replica branch.
        files, bytes: copied from the other region.
        lag_seconds: from the last commit on `main` until this region stood for it.
        foreign_uris: URIs outside the region that its replica branch names; 0 is right.
        faults: what `verify` found.
        rows: by table, rows on `main` and on the replica.
        runs: how many runs of the DAG there were.
    """

    region: str
    tables: int
    files: int
    bytes: int
    lag_seconds: float
    foreign_uris: int
    faults: int
    rows: dict[str, tuple[int, int]]
    runs: int


@dataclass
class DemoResult:
    """How the demo ended."""

    ok: bool = False
    seconds: float = 0.0
    regions: list[RegionResult] = field(default_factory=list)
    story: Story | None = None
    failures: list[str] = field(default_factory=list)


def run_demo(work: Path | None, stay: bool, say: Say) -> DemoResult:
    """Run the demo.

    Args:
        work: a folder that stays, new or empty; None: a temporary one that goes.
        stay: leave everything running until Ctrl-C.
        say: called with each line of the story.

    Returns:
        What was seen; `ok` when every check held.

    Raises:
        UsageError: the folder holds something, an earlier demo's data for example, or can't be made.
    """
    started = time.monotonic()
    result = DemoResult()
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(work, "sterna-demo-"))
        clock = _clock(say, started)
        try:
            _play(stack, folder, stay, clock, result)
        except KeyboardInterrupt:
            stop_all()  # what is still being started would be waited for
            raise
        except Exception as error:  # noqa: BLE001 - whatever it is, the demo says so, ends with its exit code, and stops all it started
            traceback.print_exc()
            result.failures.append(f"{type(error).__name__}: {error}".partition("\n")[0])
        result.ok = not result.failures
        result.seconds = time.monotonic() - started
        if stay and result.ok:
            with suppress(KeyboardInterrupt):
                say("everything stays up; Ctrl-C ends it")
                while True:
                    time.sleep(3600)
    return result


def _clock(say: Say, started: float) -> Say:
    return lambda text: say(f"[{time.monotonic() - started:6.1f} s] {text}")


def _play(stack: ExitStack, folder: Path, stay: bool, say: Say, result: DemoResult) -> None:
    say(f"starting Postgres, Nessie and an S3 endpoint a region, in {folder}")
    pool = ThreadPoolExecutor()
    stack.callback(pool.shutdown)
    stage = stack.enter_context(deployment(folder, airflow=True))
    stack.enter_context(environment(stage.environment))
    contexts = {
        region: stack.enter_context(open_region(stage.registry, region, environment_secrets()))
        for region in stage.regions
    }
    say("starting an Airflow a region, and a Spark for the writers")
    store = start_valkey(folder / "valkey")
    stack.callback(store.stop)
    planned = uploads.uploads_in(stage, folder, store)
    starting = _starting(pool, stage, folder, planned)
    spark = start_session(spark_environment(folder))
    stack.callback(spark.stop)
    _add_catalogs(spark, stage, contexts)
    airflows = {region: future.result() for region, future in starting.items()}
    list(pool.map(lambda airflow: airflow.wait_for_dag(DAG), airflows.values()))
    posted = stack.enter_context(uploads.gateways(stage, folder, planned))
    listener = stack.enter_context(Listener(posted.urls["eu"]).listening())
    _write(spark, stage, say)
    uploads.post(posted, contexts, say)
    lags = _wait(contexts, airflows, say)
    answers = nyc.ask(spark, "main_us")
    replicas = {region: nyc.ask(spark, f"replica_{region}") for region in stage.regions}
    for region, context in contexts.items():
        result.regions.append(
            _look(context, airflows[region], lags[region], answers, replicas[region], result.failures)
        )
        _tell(result.regions[-1], say)
    result.failures += uploads.where_is_it(posted, spark, say)
    result.story = follow_story(contexts["eu"], spark, posted, listener, airflows["eu"], say)
    _go_dark(spark, stage, answers, say, result.failures)
    if stay:
        addresses(stage, airflows, posted, contexts["eu"].catalog.no_ancestor(), say)


def _starting(
    pool: ThreadPoolExecutor, stage: Deployment, folder: Path, planned: uploads.Uploads
) -> dict[str, Future[Airflow]]:
    dags = _dags(folder)
    return {
        region: pool.submit(stage.start_airflow, region, dags, env=_pages(planned, region)) for region in stage.regions
    }


def _add_catalogs(spark: SparkSession, stage: Deployment, contexts: dict[str, RegionContext]) -> None:
    for region, context in contexts.items():
        add_catalog(spark, f"main_{region}", stage.nessie.uri, "main", stage.warehouse(region), stage.wide)
        # The replica's catalog knows its own region's endpoint and key alone: it can't reach the other region.
        branch = context.region.replica_branch
        add_catalog(
            spark, f"replica_{region}", stage.nessie.uri, branch, stage.warehouse(region), stage.endpoints[region]
        )


def _write(spark: SparkSession, stage: Deployment, say: Say) -> None:
    import pyarrow.compute as pc

    say("us writes flights (January to June) and weather; eu writes planes, airports and airlines")
    flights = nyc.rows("flights")
    first_half = flights.filter(pc.less(flights.column("month"), _EU_MONTHS.start))
    nyc.create_table(spark, "main_us", "flights", first_half, partition="month")
    nyc.create_table(spark, "main_us", "weather", nyc.rows("weather"))
    for name in ("planes", "airports", "airlines"):
        nyc.create_table(spark, "main_eu", name, nyc.rows(name))
    _append_from_eu(spark, stage, flights, say)
    say("us corrects and deletes rows (merge-on-read), then compacts February")
    table = f"main_us.{nyc.NAMESPACE}.flights"
    spark.sql(f"UPDATE {table} SET dep_delay = dep_delay + 1 WHERE month IN (1, 8) AND day = 1")  # noqa: S608
    spark.sql(f"DELETE FROM {table} WHERE dep_time IS NULL")  # noqa: S608
    spark.sql(f"CALL main_us.system.rewrite_data_files(table => '{nyc.NAMESPACE}.flights', where => 'month = 2')")


def _append_from_eu(spark: SparkSession, stage: Deployment, flights: Any, say: Say) -> None:
    import pyarrow.compute as pc

    say("eu appends July to December to us's flights, with the data files in eu's own bucket")
    incoming = {month: f"{stage.warehouse('eu')}/flights-from-eu/month={month}/part.parquet" for month in _EU_MONTHS}
    for month, uri in incoming.items():
        rows = flights.filter(pc.equal(flights.column("month"), month))
        nyc.write_at_home(stage.endpoints["eu"], uri, nyc.with_field_ids(rows))
    time.sleep(_WIDE_SECONDS)
    for month, uri in incoming.items():
        nyc.register_file(spark, f"main_eu.{nyc.NAMESPACE}.flights", uri, f"month={month}")


def _wait(contexts: dict[str, RegionContext], airflows: dict[str, Airflow], say: Say) -> dict[str, float]:
    """Wait until every region stands for `main`.

    The commits have triggered the DAGs. Return the seconds it took, by region.
    """
    say("waiting for both Airflows, which the commits have triggered, to bring the replicas up to main")
    started = time.monotonic()
    lags: dict[str, float] = {}
    while len(lags) < len(contexts):
        for region, context in contexts.items():
            if region not in lags and measure_lag(context) == 0.0:
                lags[region] = time.monotonic() - started
                say(f"{context.region.replica_branch} stands for main")
        if time.monotonic() - started > _CONVERGE_SECONDS:
            states = {region: _run_states(airflow) for region, airflow in airflows.items() if region not in lags}
            raise SternaError(f"not up to main after {_CONVERGE_SECONDS:.0f} s: runs {states}")
        time.sleep(0.5)
    return lags


def _run_states(airflow: Airflow) -> list[str]:
    return [run["state"] for run in airflow.get(f"/dags/{DAG}/dagRuns", order_by="-start_date", limit=100)["dag_runs"]]


def _look(
    context: RegionContext,
    airflow: Airflow,
    lag: float,
    answers: dict[str, Any],
    replica: dict[str, Any],
    failures: list[str],
) -> RegionResult:
    name, branch = context.region.name, context.region.replica_branch
    verified = verify_structure(context)
    count, size = _copied(context)
    differing = [question for question, answer in answers.items() if replica[question] != answer]
    failures.extend(f"{name}: {question}: main and {branch} differ" for question in differing)
    failures.extend(f"{name}: {item.table}: {item.kind}: {item.file}: {item.message}" for item in verified.findings)
    return RegionResult(
        region=name,
        tables=verified.tables,
        files=count,
        bytes=size,
        lag_seconds=lag,
        foreign_uris=verified.foreign,
        faults=len(verified.findings),
        rows={table: (answers[f"rows in {table}"][0][0], replica[f"rows in {table}"][0][0]) for table in nyc.TABLES},
        runs=len(_run_states(airflow)),
    )


def _copied(context: RegionContext) -> tuple[int, int]:
    """Add up what the runs' reports beside the replica say."""
    count = size = 0
    for uri, _, _ in context.objects.list(runs_folder(context)):
        if uri.endswith(f"/{run_names.REPORT}"):
            copied = REPORT.loads(unpacked(context.objects.read(uri))).copied
            count, size = count + copied.files, size + copied.bytes
    return count, size


def _tell(region: RegionResult, say: Say) -> None:
    say(
        f"{region.region}: {region.tables} tables, {region.files} files and {region.bytes} bytes copied in "
        f"{region.runs} runs, lag {region.lag_seconds:.1f} s after the last commit, foreign URIs left: "
        f"{region.foreign_uris}, faults: {region.faults}"
    )
    for table, (main, replica) in region.rows.items():
        say(f"    {table:10} rows on main {main:>7}, on the replica {replica:>7}")


def _go_dark(spark: SparkSession, stage: Deployment, answers: dict[str, Any], say: Say, failures: list[str]) -> None:
    say("stopping us's object store, and the wide endpoint: eu is on its own")
    stage.wide.go_dark()
    stage.endpoints["us"].go_dark()
    try:
        dark = nyc.ask(spark, "replica_eu")
    finally:
        stage.endpoints["us"].start()
        stage.wide.start()
    wrong = [question for question, answer in answers.items() if dark[question] != answer]
    failures.extend(f"eu with us dark: {question}: differs from main" for question in wrong)
    say(
        f"eu answered {len(dark) - len(wrong)} of {len(answers)} questions from main_replica_eu exactly as main did, "
        "with us dark"
    )


def _dags(folder: Path) -> Path:
    """Write the one DAG that this story needs: others of the project would do what the demo shows step by step."""
    dags = folder / "dags"
    dags.mkdir(exist_ok=True)
    (dags / "sterna_sync.py").write_text(
        "# an airflow dag\nfrom sterna.airflow.dags import sync_dag\n\ndag = sync_dag()\n"
    )
    return dags


def _pages(planned: uploads.Uploads, region: str) -> dict[str, str]:
    """Return what Airflow's pages are to know: the services file, and who tells figures and features."""
    settings = {"SERVICES": str(planned.services)}
    settings |= dict.fromkeys(("GATEWAY_URL", "FEATURE_SERVICE_URL"), planned.urls[region])
    return {**{f"AIRFLOW__STERNA__{name}": value for name, value in settings.items()}, **planned.logins}
