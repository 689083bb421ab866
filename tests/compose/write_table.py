"""Runs in a container of the image: appends rows to a table of a region's warehouse, as a writer would.

python - REGION ROWS PRIMARY
"""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog

region, rows, primary = sys.argv[1], int(sys.argv[2]), sys.argv[3]
catalogs = {"us": "http://nessie-us:19120", "eu": "http://nessie-eu:19121"}
store = {"us": "http://s3-us:9001", "eu": "http://s3-eu:9002"}[region]
keys = json.loads(os.environ[f"AIRFLOW_CONN_STERNA_{region.upper()}"])
catalog = load_catalog(
    "lake",
    type="rest",
    # Writers of both regions commit to the primary.
    uri=f"{catalogs[primary]}/iceberg/main",
    warehouse=region,
    **{
        "s3.endpoint": store,
        "s3.access-key-id": keys["login"],
        "s3.secret-access-key": keys["password"],
        "s3.region": "us-east-1",
        "s3.path-style-access": "true",
    },
)
catalog.create_namespace_if_not_exists("shop")
data = pa.table({"id": list(range(rows)), "name": [f"order-{number}" for number in range(rows)]})
table = catalog.create_table_if_not_exists(f"shop.orders_{region}", schema=data.schema)
table.append(data)
print(region, len(table.scan().to_arrow()))
