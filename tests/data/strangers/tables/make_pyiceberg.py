"""Writes pyiceberg_overwrite with PyIceberg; README.md tells how it was run."""

from __future__ import annotations

import os
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.transforms import BucketTransform, MonthTransform

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "ünï 日本"]
SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("name", pa.large_string()),
        pa.field("price", pa.decimal128(9, 2)),
        pa.field("day", pa.date32()),
        pa.field("seen", pa.timestamp("us")),
        pa.field("part", pa.int32()),
    ]
)


def rows(first: int, last: int) -> pa.Table:
    made = [
        (i, NAMES[i - 1], Decimal(f"{i}.25"), date(2026, 1, i), datetime(2026, 1, i, 0, 0, i), i % 3)
        for i in range(first, last + 1)
    ]
    return pa.Table.from_pylist([dict(zip(SCHEMA.names, row, strict=True)) for row in made], SCHEMA)


catalog = SqlCatalog(
    "strangers",
    uri="sqlite:///:memory:",
    warehouse="s3://us-lake/strangers",
    **{
        "s3.endpoint": os.environ["S3_ENDPOINT"],
        "s3.access-key-id": os.environ["AWS_ACCESS_KEY_ID"],
        "s3.secret-access-key": os.environ["AWS_SECRET_ACCESS_KEY"],
        "s3.region": "us-east-1",
    },
)
catalog.create_namespace("ns")
table = catalog.create_table("ns.t", SCHEMA, location="s3://us-lake/strangers/pyiceberg_overwrite")
table.append(rows(1, 6))
with table.update_spec() as spec:  # the second spec of the table
    spec.add_field("day", MonthTransform(), "month")
    spec.add_field("id", BucketTransform(4), "bucket")
table.append(rows(7, 9))
table.delete("id in (2, 8)")
with table.update_schema() as schema:
    schema.rename_column("part", "third")
table.append(pa.Table.from_pylist([{"id": 10, "third": 1}], SCHEMA.set(5, pa.field("third", pa.int32()))))
snapshot = table.current_snapshot()
assert snapshot is not None
with table.manage_snapshots() as refs:
    refs.create_tag(snapshot.snapshot_id, "kept")
print(table.metadata_location)
