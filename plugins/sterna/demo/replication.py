"""`sterna demo`: two regions on one machine, up to a region that answers while the other one is down."""

from __future__ import annotations

import time
import traceback
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.config.environment import temporary_environment
from sterna.config.registry import run_names
from sterna.config.secrets import environment_secrets
from sterna.demo import nyc, uploads
from sterna.demo.addresses import print_addresses
from sterna.demo.folder import work_folder
from sterna.demo.story import Listener, Story, trace_upload
from sterna.errors import SternaError
from sterna.libraries import pc
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.lag import measure_lag
from sterna.replication.replica.region import Progress, RegionContext, open_region
from sterna.replication.replica.run_folder import decompress, runs_folder
from sterna.replication.verify.run import verify_structure
from sterna.servers.airflow import Airflow
from sterna.servers.process import stop_all
from sterna.servers.spark import add_catalog, spark_environment, start_session
from sterna.servers.stack import Deployment, deployment
from sterna.servers.valkey import start_valkey

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAG_ID = "sterna_sync"
_CONVERGENCE_TIMEOUT_SECONDS = 600.0
_EU_MONTHS = range(7, 13)
_WIDE_ENDPOINT_DELAY_SECONDS = (
    1.5  # until the endpoint that serves all regions' buckets shows what was written at a region's own
)


@dataclass(frozen=True)
class RegionResult:
    """What the demo saw of one region.

    Args:
        tables: tables on its replica branch.
        files, bytes: copied from the other region.
        lag_seconds: from the last commit on `main` until this region had it.
        foreign_uris: URIs outside the region that its replica branch names; 0 is right.
        faults: number of `verify`'s findings.
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


def run_demo(work: Path | None, stay: bool, progress: Progress) -> DemoResult:
    """Run the demo.

    Args:
        work: a folder that is kept, new or empty; None: a temporary one.
        stay: leave everything running until Ctrl-C.
        progress: called with each line of the story.

    Returns:
        What was seen; `ok` when every check held.

    Raises:
        UsageError: the folder holds something, an earlier demo's data for example, or can't be made.
    """
    started = time.monotonic()
    outcome = DemoResult()
    with ExitStack() as stack:
        folder = stack.enter_context(work_folder(work, "sterna-demo-"))
        timed_progress = _with_timestamps(progress, started)
        try:
            _run_steps(stack, folder, stay, timed_progress, outcome)
        except KeyboardInterrupt:
            stop_all()  # what is still being started would be waited for
            raise
        except Exception as error:  # noqa: BLE001 - reported; the demo ends with its exit code, and stops all servers
            traceback.print_exc()
            outcome.failures.append(f"{type(error).__name__}: {error}".partition("\n")[0])
        outcome.ok = not outcome.failures
        outcome.seconds = time.monotonic() - started
        if stay and outcome.ok:
            with suppress(KeyboardInterrupt):
                progress("everything stays up; Ctrl-C ends it")
                while True:
                    time.sleep(3600)
    return outcome


def _with_timestamps(progress: Progress, started: float) -> Progress:
    return lambda text: progress(f"[{time.monotonic() - started:6.1f} s] {text}")


def _run_steps(stack: ExitStack, folder: Path, stay: bool, progress: Progress, outcome: DemoResult) -> None:
    progress(f"starting Postgres, Nessie and an S3 endpoint a region, in {folder}")
    pool = ThreadPoolExecutor()
    stack.callback(pool.shutdown)
    stage = stack.enter_context(deployment(folder, airflow=True))
    stack.enter_context(temporary_environment(stage.environment))
    contexts = {
        region: stack.enter_context(open_region(stage.registry, region, environment_secrets()))
        for region in stage.regions
    }
    progress("starting an Airflow a region, and a Spark for the writers")
    store = start_valkey(folder / "valkey")
    stack.callback(store.stop)
    planned_uploads = uploads.plan_uploads(stage, folder, store)
    starting = _start_airflows(pool, stage, folder, planned_uploads)
    spark = start_session(spark_environment(folder))
    stack.callback(spark.stop)
    _add_catalogs(spark, stage, contexts)
    airflows = {region: future.result() for region, future in starting.items()}
    list(pool.map(lambda airflow: airflow.wait_for_dag(DAG_ID), airflows.values()))
    served_uploads = stack.enter_context(uploads.run_gateways(stage, folder, planned_uploads))
    listener = stack.enter_context(Listener(served_uploads.urls["eu"]).listening())
    _write_tables(spark, stage, progress)
    uploads.post_files(served_uploads, contexts, progress)
    lags = _wait_for_convergence(contexts, airflows, progress)
    answers = nyc.run_queries(spark, "main_us")
    replicas = {region: nyc.run_queries(spark, f"replica_{region}") for region in stage.regions}
    for region, context in contexts.items():
        outcome.regions.append(
            _check_region(context, airflows[region], lags[region], answers, replicas[region], outcome.failures)
        )
        _print_region(outcome.regions[-1], progress)
    outcome.failures += uploads.check_uploads(served_uploads, spark, progress)
    outcome.story = trace_upload(contexts["eu"], spark, served_uploads, listener, airflows["eu"], progress)
    _check_outage(spark, stage, answers, progress, outcome.failures)
    if stay:
        print_addresses(stage, airflows, served_uploads, contexts["eu"].catalog.no_ancestor(), progress)


def _start_airflows(
    pool: ThreadPoolExecutor, stage: Deployment, folder: Path, planned_uploads: uploads.Uploads
) -> dict[str, Future[Airflow]]:
    dags = _write_dags(folder)
    return {
        region: pool.submit(stage.start_airflow, region, dags, env=_pages_environment(planned_uploads, region))
        for region in stage.regions
    }


def _add_catalogs(spark: SparkSession, stage: Deployment, contexts: dict[str, RegionContext]) -> None:
    for region, context in contexts.items():
        add_catalog(spark, f"main_{region}", stage.nessie.uri, "main", stage.warehouse(region), stage.combined_endpoint)
        # The replica's catalog has its own region's endpoint and key alone: it can't reach the other region.
        branch = context.region.replica_branch
        add_catalog(
            spark, f"replica_{region}", stage.nessie.uri, branch, stage.warehouse(region), stage.endpoints[region]
        )


def _write_tables(spark: SparkSession, stage: Deployment, progress: Progress) -> None:
    progress("us writes flights (January to June) and weather; eu writes planes, airports and airlines")
    flights = nyc.rows("flights")
    first_half = flights.filter(pc.less(flights.column("month"), _EU_MONTHS.start))
    nyc.create_table(spark, "main_us", "flights", first_half, partition="month")
    nyc.create_table(spark, "main_us", "weather", nyc.rows("weather"))
    for name in ("planes", "airports", "airlines"):
        nyc.create_table(spark, "main_eu", name, nyc.rows(name))
    _append_from_eu(spark, stage, flights, progress)
    progress("us corrects and deletes rows (merge-on-read), then compacts February")
    table = f"main_us.{nyc.NAMESPACE}.flights"
    spark.sql(f"UPDATE {table} SET dep_delay = dep_delay + 1 WHERE month IN (1, 8) AND day = 1")  # noqa: S608
    spark.sql(f"DELETE FROM {table} WHERE dep_time IS NULL")  # noqa: S608
    spark.sql(f"CALL main_us.system.rewrite_data_files(table => '{nyc.NAMESPACE}.flights', where => 'month = 2')")


def _append_from_eu(spark: SparkSession, stage: Deployment, flights: Any, progress: Progress) -> None:
    progress("eu appends July to December to us's flights, with the data files in eu's own bucket")
    incoming = {month: f"{stage.warehouse('eu')}/flights-from-eu/month={month}/part.parquet" for month in _EU_MONTHS}
    for month, uri in incoming.items():
        rows = flights.filter(pc.equal(flights.column("month"), month))
        nyc.write_region_file(stage.endpoints["eu"], uri, nyc.with_field_ids(rows))
    time.sleep(_WIDE_ENDPOINT_DELAY_SECONDS)
    for month, uri in incoming.items():
        nyc.register_file(spark, f"main_eu.{nyc.NAMESPACE}.flights", uri, f"month={month}")


def _wait_for_convergence(
    contexts: dict[str, RegionContext], airflows: dict[str, Airflow], progress: Progress
) -> dict[str, float]:
    """Wait until every region is at `main`.

    The commits have triggered the DAGs. Return the seconds it took, by region.
    """
    progress("waiting for both Airflows, which the commits have triggered, to bring the replicas up to main")
    started = time.monotonic()
    lags: dict[str, float] = {}
    while len(lags) < len(contexts):
        for region, context in contexts.items():
            if region not in lags and measure_lag(context) == 0.0:
                lags[region] = time.monotonic() - started
                progress(f"{context.region.replica_branch} is at main")
        if time.monotonic() - started > _CONVERGENCE_TIMEOUT_SECONDS:
            states = {region: _run_states(airflow) for region, airflow in airflows.items() if region not in lags}
            raise SternaError(f"not up to main after {_CONVERGENCE_TIMEOUT_SECONDS:.0f} s: runs {states}")
        time.sleep(0.5)
    return lags


def _run_states(airflow: Airflow) -> list[str]:
    return [
        run["state"] for run in airflow.get(f"/dags/{DAG_ID}/dagRuns", order_by="-start_date", limit=100)["dag_runs"]
    ]


def _check_region(
    context: RegionContext,
    airflow: Airflow,
    lag: float,
    answers: dict[str, Any],
    replica: dict[str, Any],
    failures: list[str],
) -> RegionResult:
    name, branch = context.region.name, context.region.replica_branch
    verified = verify_structure(context)
    count, size = _copied_totals(context)
    differing = [question for question, answer in answers.items() if replica[question] != answer]
    failures.extend(f"{name}: {question}: main and {branch} differ" for question in differing)
    failures.extend(
        f"{name}: {finding.table}: {finding.kind}: {finding.file}: {finding.message}" for finding in verified.findings
    )
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


def _copied_totals(context: RegionContext) -> tuple[int, int]:
    """Sum the runs' reports beside the replica."""
    count = size = 0
    for uri, _, _ in context.objects.list(runs_folder(context)):
        if uri.endswith(f"/{run_names.REPORT}"):
            copied = REPORT.loads(decompress(context.objects.read(uri))).copied
            count, size = count + copied.files, size + copied.bytes
    return count, size


def _print_region(region: RegionResult, progress: Progress) -> None:
    progress(
        f"{region.region}: {region.tables} tables, {region.files} files and {region.bytes} bytes copied in "
        f"{region.runs} runs, lag {region.lag_seconds:.1f} s after the last commit, foreign URIs left: "
        f"{region.foreign_uris}, faults: {region.faults}"
    )
    for table, (main, replica) in region.rows.items():
        progress(f"    {table:10} rows on main {main:>7}, on the replica {replica:>7}")


def _check_outage(
    spark: SparkSession, stage: Deployment, answers: dict[str, Any], progress: Progress, failures: list[str]
) -> None:
    progress("stopping us's object store, and the wide endpoint: eu is on its own")
    stage.combined_endpoint.suspend()
    stage.endpoints["us"].suspend()
    try:
        offline_answers = nyc.run_queries(spark, "replica_eu")
    finally:
        stage.endpoints["us"].start()
        stage.combined_endpoint.start()
    differing = [question for question, answer in answers.items() if offline_answers[question] != answer]
    failures.extend(f"eu with us dark: {question}: differs from main" for question in differing)
    progress(
        f"eu answered {len(offline_answers) - len(differing)} of {len(answers)} questions from main_replica_eu exactly "
        "as main did, with us dark"
    )


def _write_dags(folder: Path) -> Path:
    """Write the one DAG that this story needs: others of the project would do what the demo shows step by step.

    A run follows `main` for a while: commits that follow one another need no run each, which a small machine feels.
    """
    dags = folder / "dags"
    dags.mkdir(exist_ok=True)
    (dags / "sterna_sync.py").write_text(
        "# an airflow dag\nfrom sterna.airflow.dags import sync_dag\n\ndag = sync_dag(follow_for='90s')\n"
    )
    return dags


def _pages_environment(planned_uploads: uploads.Uploads, region: str) -> dict[str, str]:
    """Return settings for Airflow's pages: the services file, and the addresses of figures and features."""
    settings = {"SERVICES": str(planned_uploads.services)}
    settings |= dict.fromkeys(("GATEWAY_URL", "FEATURE_SERVICE_URL"), planned_uploads.urls[region])
    return {**{f"AIRFLOW__STERNA__{name}": value for name, value in settings.items()}, **planned_uploads.logins}
