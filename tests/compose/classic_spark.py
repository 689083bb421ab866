"""Runs in an Airflow's container: reads a table of `main` by a classic Spark with Iceberg, in this process.

python - TABLE
"""

from __future__ import annotations

import json
import os
import sys

from sterna.spark.start import start_classic

keys = json.loads(os.environ["AIRFLOW_CONN_STERNA_US"])
spark, _ = start_classic("local[1]", "compose", {})
settings = {
    "": "org.apache.iceberg.spark.SparkCatalog",
    ".catalog-impl": "org.apache.iceberg.nessie.NessieCatalog",
    ".uri": "http://nessie-us:19120/api/v2",
    ".ref": "main",
    ".warehouse": "s3://us-lake",
    ".io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
    ".client.region": "us-east-1",
    ".s3.endpoint": "http://s3-us:9001",
    ".s3.path-style-access": "true",
    ".s3.access-key-id": keys["login"],
    ".s3.secret-access-key": keys["password"],
}
for name, value in settings.items():
    spark.conf.set(f"spark.sql.catalog.lake{name}", value)
print(spark.table(f"lake.{sys.argv[1]}").count())
spark.stop()
