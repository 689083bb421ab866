"""A flow's Spark: started when there is work, warm for the next step, with a session of its own for each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sterna.catalog.model import parse_key
from sterna.changes.region import stores_of
from sterna.edges.spark.main_tables import open_main, show_in_sql
from sterna.edges.spark.staged_changes import load_metadata, whole
from sterna.edges.spark.start import address, failures, is_connect, require_iceberg, require_pyspark, start_classic
from sterna.errors import NeedsClassicSpark
from sterna.flows.expressions import items
from sterna.replica.region import RegionContext
from sterna.services.flows import Flow
from sterna.wap.main_catalog import main_catalog
from sterna.wap.spark import SparkTable, java_errors, jvm

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

APP = "sterna-flow"
_CATALOG = "sterna_main"
# What decides rows: a step in one region and a rebuild in another have to make the same ones, whatever their defaults.
_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.caseSensitive": "false",
    "spark.sql.legacy.sizeOfNull": "false",
    "spark.sql.legacy.timeParserPolicy": "CORRECTED",
    "spark.sql.mapKeyDedupPolicy": "EXCEPTION",
    "spark.sql.storeAssignmentPolicy": "ANSI",
    "spark.sql.variable.substitute": "false",  # else `${env:…}` in a flow's SQL is what that worker's environment has
}
# Whatever else there is of what decides rows: a worker's own defaults count for nothing.
_OF_ROWS = (
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
_REWRITES = "spark.sql.catalog.default_rewrite_catalog"


@dataclass(frozen=True)
class Bench:
    """Where one step is made.

    Args:
        spark: a session of its own.
        table: the target, on `main`.
        name: the target's name in that session's SQL.
        source: the source, as the region's replica has it, in the JVM.
        key: the source's key name.
    """

    spark: SparkSession = field(repr=False)
    table: SparkTable = field(repr=False)
    name: str
    source: Any = field(repr=False)
    key: str

    def whole(self, snapshot: int) -> DataFrame:
        """Return all rows of the source at a snapshot."""
        with java_errors(self.key):
            return whole(self.spark, self.source, snapshot)


class FlowShop:
    """Makes places for steps; the Spark that it starts stays until it is closed."""

    def __init__(self) -> None:
        self._started: SparkSession | None = None

    @contextmanager
    def bench(self, context: RegionContext, flow: Flow, metadata: str) -> Iterator[Bench]:
        """Open a place for a step.

        Args:
            context: the region.
            flow: the flow.
            metadata: the source's metadata.json on the region's replica.

        Raises:
            NeedsClassicSpark: the region's Spark is a Spark Connect server.
            EngineError: Spark doesn't start.
            NoIceberg: its driver lacks Iceberg's runtime.
            CredentialError: one is missing.
        """
        spark = self.start_session(flow.spark or context.region.spark)
        stores = stores_of(context, metadata, own=True)
        catalog = main_catalog(context, flow.credential_id, APP)
        with java_errors(flow.into):
            opened = open_main(spark, catalog)
        try:
            with java_errors(flow.into):
                show_in_sql(spark, _CATALOG, opened)
                identifier = self._identifier(spark, flow.into)
            table = SparkTable(spark, flow.into, lambda: opened.loadTable(identifier))
            source = load_metadata(spark, flow.source, metadata, stores)
            name = ".".join(quoted(part) for part in (_CATALOG, *parse_key(flow.into)))
            yield Bench(spark, table, name, source, flow.source)
        finally:
            with suppress(*failures()):
                opened.close()

    def close(self) -> None:
        """End the Spark that was started here."""
        if self._started is not None:
            with suppress(*failures()):
                self._started.stop()
            self._started = None

    def start_session(self, master: str) -> SparkSession:
        """Return a Spark for flows, whose own defaults decide no row."""
        if is_connect(master):
            raise NeedsClassicSpark(
                f"the region's Spark, at {address(master)}, is a Spark Connect server, and a flow's step is planned "
                "and published in Spark's JVM",
                hint="name a master in the services file: flows[].spark, such as local[2]",
            )
        require_pyspark()
        spark, started = start_classic(master, APP, _SETTINGS)
        if started:
            self._started = spark
        require_iceberg(spark)
        forget_defaults(spark)
        for name, value in {**_SETTINGS, _REWRITES: "org.apache.iceberg.spark.SparkRewriteTableCatalog"}.items():
            spark.conf.set(name, value)
        return spark

    def _identifier(self, spark: SparkSession, key: str) -> Any:
        parts, gateway = parse_key(key), spark.sparkContext._gateway
        assert gateway is not None
        words = gateway.new_array(jvm(spark).java.lang.String, len(parts))
        for place, part in enumerate(parts):
            words[place] = part
        return jvm(spark).org.apache.iceberg.catalog.TableIdentifier.of(words)


def forget_defaults(spark: SparkSession) -> None:
    """Take from a session what a worker's own settings say of how rows come to be.

    Args:
        spark: a session of its own.
    """
    java: Any = spark
    settings = java._jsparkSession.sessionState().conf().getAllConfs()
    for name in [str(each._1()) for each in items(settings.toSeq())]:
        if name.startswith(_OF_ROWS) and spark.conf.isModifiable(name):
            spark.conf.unset(name)


def quoted(name: str) -> str:
    """Return a name as Spark's SQL takes it, whatever letters it has."""
    return "`" + name.replace("`", "``") + "`"
