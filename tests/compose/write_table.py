"""Runs in a container of the image: appends rows to a table of a region's warehouse, as a writer would.

python - REGION ROWS TAG
"""

from __future__ import annotations

import json
import os
import sys

import pyarrow as pa
from pyiceberg.catalog import load_catalog

region, rows, tag = sys.argv[1], int(sys.argv[2]), sys.argv[3]
store = {"us": "http://s3-us:9001", "eu": "http://s3-eu:9002"}[region]
keys = json.loads(os.environ[f"AIRFLOW_CONN_STERNA_{region.upper()}"])
catalog = load_catalog(
    "lake",
    type="rest",
    # us's Nessie is the primary: writers of both regions commit there.
    uri="http://nessie-us:19120/iceberg/main",
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
data = pa.table({"id": list(range(rows)), "name": [f"{tag}-{number}" for number in range(rows)]})
table = catalog.create_table_if_not_exists(f"shop.orders_{region}", schema=data.schema)
table.append(data)
print(region, len(table.scan().to_arrow()))
