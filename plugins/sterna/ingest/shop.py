"""A worker's place, opened: a region's ingestion, and a Spark of its own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from sterna.edges.spark.start import failures, is_connect, require_pyspark, start_classic
from sterna.errors import UsageError
from sterna.ingest.consolidate import Shop
from sterna.ingest.near import NearCatalog
from sterna.ingest.region import RegionIngest
from sterna.replica.region import RegionContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS = {"spark.sql.session.timeZone": "UTC", "spark.sql.shuffle.partitions": "8"}


@contextmanager
def open_shop(context: RegionContext, ingest: RegionIngest) -> Iterator[Shop]:
    """Open a worker's place; a Spark that is started for it ends with it.

    Args:
        context: the region.
        ingest: what it takes in.

    Raises:
        UsageError: the region's Spark is a Spark Connect server.
        EngineError: Spark doesn't start.
        CredentialError: one is missing.
    """
    ingest.prepare()
    with open_catalog(context, ingest) as catalog:
        yield Shop(
            context.mapping,
            ingest.settings,
            ingest.own.inbox,
            ingest.table,
            ingest.objects,
            ingest.queue,
            catalog,
        )


@contextmanager
def open_catalog(context: RegionContext, ingest: RegionIngest) -> Iterator[NearCatalog]:
    """Open the tables of `main` as a worker reaches them; a Spark that is started for it ends with it.

    Args:
        context: the region.
        ingest: what it takes in; its tracker isn't asked.

    Raises:
        UsageError, EngineError, CredentialError: as `open_shop`.
    """
    spark, owned = _session(ingest.own.spark or context.region.spark, context.region.name)
    try:
        yield NearCatalog(spark, context, ingest.own.catalog_credential_id)
    finally:
        if owned:
            with suppress(*failures()):
                spark.stop()


def _session(master: str, region: str) -> tuple[SparkSession, bool]:
    if is_connect(master):
        raise UsageError(
            "ingestion needs a classic Spark: through Spark Connect no file is written near, and no mark is set",
            hint=f"set ingest.regions.{region}.spark, such as local[2]",
        )
    require_pyspark()
    return start_classic(master, "sterna-ingest", _SETTINGS)
