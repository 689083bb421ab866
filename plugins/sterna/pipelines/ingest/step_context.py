"""Opens what a worker needs: a region's ingestion, and a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sterna.errors import UsageError
from sterna.pipelines.ingest.batch_publisher import StepContext
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.replication.replica.region import RegionContext
from sterna.spark.start import is_connect, require_pyspark, spark_errors, start_classic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SPARK_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "8"}


@contextmanager
def open_step_context(context: RegionContext, ingest: RegionIngest) -> Iterator[StepContext]:
    """Open what a worker needs; a Spark that is started for it ends with it.

    Args:
        ingest: what it takes in.

    Raises:
        UsageError: the region's Spark is a Spark Connect server.
        EngineError: Spark doesn't start.
        CredentialError: one is missing.
    """
    ingest.prepare()
    with open_catalog(context, ingest) as catalog:
        yield StepContext(
            context.mapping,
            ingest.settings,
            ingest.region_settings.inbox,
            ingest.table,
            ingest.objects,
            ingest.queue,
            catalog,
        )


@contextmanager
def open_catalog(context: RegionContext, ingest: RegionIngest) -> Iterator[RegionalIcebergCatalog]:
    """Open the tables of `main` as a worker reaches them; a Spark that is started for it ends with it.

    Args:
        ingest: its ingestion; the tracker isn't used.

    Raises:
        UsageError, EngineError, CredentialError: as `open_step_context`.
    """
    spark, owned = _start_session(ingest.region_settings.spark or context.region.spark, context.region.name)
    try:
        yield RegionalIcebergCatalog(spark, context, ingest.region_settings.catalog_credential_id)
    finally:
        if owned:
            with suppress(*spark_errors()):
                spark.stop()


def _start_session(master: str, region: str) -> tuple[SparkSession, bool]:
    if is_connect(master):
        raise UsageError(
            "ingestion needs a classic Spark: through Spark Connect no file is written in the region, and no applied "
            "position is set",
            hint=f"set ingest.regions.{region}.spark, such as local[2]",
        )
    require_pyspark()
    return start_classic(master, "sterna-ingest", _SPARK_SETTINGS)
