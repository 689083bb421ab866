"""Spark for transforms: started when there is work, kept for the next step, with a session for each step."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import parse_key
from sterna.config.sections.transforms import Transform
from sterna.pipelines.changes.region import list_stores
from sterna.pipelines.publish.main_access import main_catalog
from sterna.pipelines.publish.spark import SparkTable, translate_java_errors
from sterna.replication.replica.region import RegionContext
from sterna.spark.application import SparkApplication
from sterna.spark.changelog_scan import load_metadata, read_snapshot
from sterna.spark.main_catalog import DriverCatalog
from sterna.sql_identifiers import quote_backtick

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP_NAME = "sterna-flow"
_CATALOG = "sterna_main"
# Settings that affect rows: a step in one region and a rebuild in another must produce the same ones.
_SPARK_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.variable.substitute": "false",  # otherwise `${env:…}` in the SQL reads the worker's environment
}
# All other settings that affect rows: a worker's defaults are unset.
_ROW_SETTINGS = (
    *(
        "spark.sql.ansi.",
        "spark.sql.legacy.",
        "spark.sql.parser.",
        "spark.sql.decimalOperations.",
        "spark.sql.session.",
    ),
    *("spark.sql.json", "spark.sql.csv.", "spark.sql.xml.", "spark.sql.variant", "spark.sql.collation"),
    *("spark.sql.timestampType", "spark.sql.datetime", "spark.sql.groupBy", "spark.sql.orderBy", "spark.sql.function"),
    *("spark.sql.charAsVarchar", "spark.sql.preserveCharVarcharTypeInfo", "spark.sql.readSideCharPadding"),
    *("spark.sql.lateralColumnAlias", "spark.sql.stableDerivedColumnAlias", "spark.sql.analyzer."),
    *("spark.sql.chunkBase64", "spark.sql.icu.", "spark.sql.fromJson", "spark.sql.columnNameOfCorruptRecord"),
    *("spark.sql.binaryOutputStyle", "spark.sql.mapZipWith", "spark.sql.enforceTypeCoercion", "spark.sql.mergeNested"),
)


@dataclass(frozen=True)
class StepContext:
    """Session and tables of one step.

    Args:
        spark: a session for this step alone.
        table: the target, on `main`.
        sql_name: the target's name in that session's SQL.
        source: the source, as the region's replica has it, in the JVM.
        source_name: the source's key name.
    """

    spark: SparkSession = field(repr=False)
    table: SparkTable = field(repr=False)
    sql_name: str
    source: Any = field(repr=False)
    source_name: str

    def read_source(self, snapshot: int) -> DataFrame:
        """Return all rows of the source at a snapshot."""
        with translate_java_errors(self.source_name):
            return read_snapshot(self.spark, self.source, snapshot)


class TransformSpark:
    """Opens steps in Spark, and keeps the application that it started until it is closed."""

    def __init__(self) -> None:
        self._application = SparkApplication(
            APP_NAME,
            "a transform's step is planned and published in Spark's JVM",
            "name a master in the services file: transforms[].spark, such as local[2]",
            _SPARK_SETTINGS,
            _ROW_SETTINGS,
        )

    @contextmanager
    def open_step(self, context: RegionContext, transform: Transform, metadata: str) -> Iterator[StepContext]:
        """Open a step.

        Args:
            metadata: the source's metadata.json on the region's replica.

        Raises:
            NeedsClassicSpark: the region's Spark is a Spark Connect server.
            EngineError: Spark doesn't start.
            NoIceberg: its driver lacks Iceberg's runtime.
            CredentialError: one is missing.
        """
        spark = self.start_session(transform.spark or context.region.spark)
        stores = list_stores(context, metadata, is_replica=True)
        catalog = main_catalog(context, transform.credential_id, APP_NAME)
        with translate_java_errors(transform.into):
            main_tables = DriverCatalog(spark, catalog)
        try:
            key = parse_key(transform.into)
            with translate_java_errors(transform.into):
                main_tables.register_in_sql(_CATALOG)
            table = SparkTable(spark, transform.into, partial(main_tables.load_table, key))
            source = load_metadata(spark, transform.source, metadata, stores)
            sql_name = ".".join(quote_backtick(part) for part in (_CATALOG, *key))
            yield StepContext(spark, table, sql_name, source, transform.source)
        finally:
            main_tables.close()

    def close(self) -> None:
        """Stop Spark if it was started here."""
        self._application.close()

    def start_session(self, master: str) -> SparkSession:
        """Return a session for a step; raises as `SparkApplication.open_session`."""
        return self._application.open_session(master)
