"""Opens what a worker needs: a region's ingestion, and a Spark session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

from sterna.pipelines.ingest.batch_publisher import StepContext
from sterna.pipelines.ingest.fetch import MessageReader
from sterna.pipelines.ingest.region import RegionIngest
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.replication.replica.region import RegionContext
from sterna.spark.application import BATCH_SETTINGS, SparkApplication


@contextmanager
def open_step_context(
    context: RegionContext, ingest: RegionIngest, read_messages: MessageReader | None = None
) -> Iterator[StepContext]:
    """Open what a worker needs; a Spark that is started for it ends with it.

    Args:
        ingest: what it takes in.
        read_messages: reads uploads whose messages are at their broker.

    Raises:
        NeedsClassicSpark: the region's Spark is a Spark Connect server.
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
            ingest.near_root,
            read_messages,
        )


@contextmanager
def open_catalog(
    context: RegionContext, ingest: RegionIngest, app_name: str = "sterna-ingest"
) -> Iterator[RegionalIcebergCatalog]:
    """Open the tables of `main` as a worker reaches them; a Spark that is started for it ends with it.

    Args:
        ingest: its ingestion; the tracker isn't used.
        app_name: what a Spark application calls itself that is started for it.

    Raises:
        NeedsClassicSpark, EngineError, CredentialError: as `open_step_context`.
    """
    with _application(context, app_name) as application:
        spark = application.open_session(_master(context, ingest))
        with closing(RegionalIcebergCatalog(spark, context, ingest.region_settings.catalog_credential_id)) as catalog:
            yield catalog


def require_classic(context: RegionContext, ingest: RegionIngest) -> None:
    """Refuse a Spark that can't write a region's batches.

    Raises:
        NeedsClassicSpark: it is a Spark Connect server.
    """
    _application(context, "").require_classic(_master(context, ingest))


def _master(context: RegionContext, ingest: RegionIngest) -> str:
    return ingest.region_settings.spark or context.region.spark


def _application(context: RegionContext, name: str) -> SparkApplication:
    return SparkApplication(
        name,
        "ingestion and change capture need a classic Spark: in its JVM files are written in the region, and applied "
        "positions are set in the commit",
        f"set ingest.regions.{context.region.name}.spark, such as local[2]",
        BATCH_SETTINGS,
    )
