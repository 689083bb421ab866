"""Writes spark_vectors and spark_position with Iceberg's Java, in a Spark that sterna starts. README.md tells how."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from sterna.servers.spark import spark_environment, start_session

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "ünï 日本"]
MODES = ", ".join(f"'write.{mode}.mode'='merge-on-read'" for mode in ("delete", "update", "merge"))


def rows(first: int, last: int) -> str:
    return ", ".join(
        f"({i}, '{NAMES[i - 1]}', {i}.25, DATE '2026-01-0{i}', TIMESTAMP_NTZ '2026-01-0{i} 00:00:0{i}', {i % 3})"
        for i in range(first, last + 1)
    )


spark = start_session(spark_environment(Path(sys.argv[1])), settings={"spark.ui.enabled": "false"})
settings = {
    "": "org.apache.iceberg.spark.SparkCatalog",
    ".catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
    ".uri": os.environ["NESSIE"],
    ".ref": "main",
    ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    ".warehouse": "s3://us-lake/strangers",
    ".s3.endpoint": os.environ["S3_ENDPOINT"],
    ".s3.path-style-access": "true",
    ".client.region": "us-east-1",
    ".cache-enabled": "false",
}
for key, value in settings.items():
    spark.conf.set(f"spark.sql.catalog.lake{key}", value)
spark.sql("CREATE NAMESPACE IF NOT EXISTS lake.ns")
for name, version in (("spark_vectors", 3), ("spark_position", 2)):
    table = f"lake.ns.{name}"
    spark.sql(
        f"CREATE TABLE {table} (id BIGINT NOT NULL, name STRING, price DECIMAL(9, 2), day DATE, seen TIMESTAMP_NTZ, "
        f"part INT) USING iceberg PARTITIONED BY (part, months(day)) LOCATION 's3://us-lake/strangers/{name}' "
        f"TBLPROPERTIES ('format-version'='{version}', {MODES}, 'write.metadata.compression-codec'='gzip')"
    )
    spark.sql(f"INSERT INTO {table} SELECT * FROM VALUES {rows(1, 6)}")
    spark.sql(f"INSERT INTO {table} SELECT * FROM VALUES {rows(7, 9)}")
    spark.sql(f"DELETE FROM {table} WHERE id = 2")
    spark.sql(f"UPDATE {table} SET name = 'anew' WHERE id = 3")
    spark.sql(f"DELETE FROM {table} WHERE id = 8")
    spark.sql(f"ALTER TABLE {table} CREATE BRANCH aside")
    spark.sql(f"INSERT INTO {table} VALUES (10, NULL, NULL, NULL, NULL, 1)")
    spark.sql(f"CALL lake.system.compute_table_stats('ns.{name}')")
    spark.sql(f"CALL lake.system.compute_partition_stats('ns.{name}')")
    spark.sql(f"SELECT * FROM {table} ORDER BY id").show()
