"""Ingestion as operators: a worker that follows for a while, with its DAG, and adding existing files in place."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG

from sterna.airflow.base import SternaOperator
from sterna.airflow.dags import build_schedule, common_settings
from sterna.airflow.settings import get_float, get_option, get_timedelta, parse_follow_duration

if TYPE_CHECKING:
    from airflow.sdk import Context as TaskContext

    from sterna.pipelines.ingest.batch_publisher import BatchOutcome

_DOC = """\
### Publish the ingested files of region `{region}` on `main`

Each task is a worker: it takes closed batches, one after another, and publishes each on `main` once, as few files near
the writer. It runs for `[sterna] ingest_follow_for`. Workers share the work by the tracker's queue, and any of them may
be killed: another one continues.

Without `ingest` for this region in the services file it does nothing.

**When it fails**: a batch needs an operator. The reason is in the log, and in the tracker. For what to do see
docs/operations.md, *By what you see*.
"""


class SternaIngestOperator(SternaOperator):
    """Process closed batches for a while; return how many were settled, by state.

    Args:
        follow_for: for how long it polls for more.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "services")

    def __init__(self, *, follow_for: timedelta = timedelta(0), services: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.follow_for = follow_for
        self.services = services

    def execute(self, context: TaskContext) -> dict[str, int]:
        """Work, and log each batch."""
        from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException

        from sterna.config.services_file import read_services
        from sterna.pipelines.ingest.region import open_ingest
        from sterna.pipelines.ingest.worker_service import run_worker
        from sterna.text.ingest_worker import consolidated_text

        services, region = read_services(self.services or get_option("services") or None), self.open()
        if services.ingest is None or region.region.name not in services.ingest.regions:
            raise AirflowSkipException(f"the services file has no ingest.regions.{region.region.name}")
        counts: dict[str, int] = {}

        def on_batch_done(batch: BatchOutcome) -> None:
            counts[batch.state.value] = counts.get(batch.state.value, 0) + 1
            self.log_progress(consolidated_text(batch))

        ingest = open_ingest(region, services)
        try:
            summary = run_worker(
                region,
                ingest,
                on_batch_done,
                self.log_progress,
                self.follow_for.total_seconds(),
                once=not self.follow_for,
            )
        finally:
            ingest.close()
        if summary.stopped:
            raise AirflowFailException(f"{len(summary.stopped)} batches wait for an operator: {summary.stopped[0]}")
        return counts


class SternaIngestAddOperator(SternaOperator):
    """Add Parquet files to a table in place, in one commit, once; return the snapshot, or None: they were there.

    Args:
        table: the table's dotted key.
        uris: the files, in any region.
        services: path of the services file; None for `[sterna] services`.
        kwargs: see `SternaOperator`.
    """

    template_fields = (*SternaOperator.template_fields, "table", "uris", "services")

    def __init__(self, *, table: str, uris: Sequence[str], services: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.uris = uris
        self.services = services

    def execute(self, context: TaskContext) -> int | None:
        """Prove the files, and add them."""
        from sterna.config.services_file import read_services
        from sterna.pipelines.ingest.add_files import build_addition
        from sterna.pipelines.ingest.region import open_ingest
        from sterna.pipelines.ingest.step_context import open_catalog
        from sterna.text.ingest_worker import added_text

        region = self.open()
        ingest = open_ingest(region, read_services(self.services or get_option("services") or None))
        try:
            with open_catalog(region, ingest) as catalog:
                added = build_addition(ingest, region.mapping, catalog, self.table, self.uris).run(apply=True)
        finally:
            ingest.close()
        self.log_progress(added_text(added))
        return added.snapshot


def ingest_dag(
    *,
    region: str | None = None,
    registry: str | None = None,
    services: str | None = None,
    dag_id: str = "sterna_ingest",
    schedule: str | None = None,
    follow_for: str | None = None,
    workers: int | None = None,
    **kwargs: Any,
) -> DAG:
    """Return the DAG whose tasks publish a region's ingested files on `main`.

    Args:
        region: name of the region; None for `[sterna] region`.
        registry: path of the registry; None for `[sterna] registry`.
        services: path of the services file; None for `[sterna] services`.
        dag_id: the DAG's id; one a region.
        schedule: cron expression (UTC), "" for none; None for `[sterna] ingest_schedule`.
        follow_for: for how long a worker polls for more, such as `10m`; None for `[sterna] ingest_follow_for`.
        workers: how many work at once; None for `[sterna] ingest_workers`.
        kwargs: see `DAG`; they go before what is set here.

    Raises:
        UsageError: a setting is missing or wrong.
    """
    region, registry = region or get_option("region"), registry or get_option("registry")
    cron = get_option("ingest_schedule") if schedule is None else schedule
    duration = parse_follow_duration(get_option("ingest_follow_for") if follow_for is None else follow_for)
    settings: dict[str, Any] = {
        "description": f"Publish uploads of region {region} on main",
        "doc_md": _DOC.format(region=region),
        "schedule": build_schedule(cron),
        "is_paused_upon_creation": True,
        **common_settings(),
    }
    with DAG(dag_id, **{**settings, **kwargs}) as dag:
        for worker in range(1, (workers or int(get_float("ingest_workers"))) + 1):
            SternaIngestOperator(
                task_id=f"work_{worker}",
                region=region,
                registry=registry,
                services=services,
                follow_for=duration,
                execution_timeout=duration + get_timedelta("ingest_timeout"),
            )
    return dag
