"""Writes clickhouse_position with ClickHouse, in chdb. README.md tells how it was run."""

from __future__ import annotations

import os

from chdb import session

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "ünï 日本"]
TABLE = "clickhouse_position"


def rows(first: int, last: int) -> str:
    return ", ".join(
        f"({i}, '{NAMES[i - 1]}', {i}.25, '2026-01-0{i}', '2026-01-0{i} 00:00:0{i}', {i % 3})"
        for i in range(first, last + 1)
    )


with session.Session() as clickhouse:
    ask = clickhouse.query
    ask("SET allow_insert_into_iceberg = 1")
    ask("SET allow_experimental_insert_into_iceberg = 1")
    ask("SET write_full_path_in_iceberg_metadata = 1")
    ask("SET mutations_sync = 2")
    ask(
        f"CREATE TABLE {TABLE} (id Int64, name Nullable(String), price Nullable(Decimal(9, 2)), day Nullable(Date32), "
        "seen Nullable(DateTime64(6)), part Int32) "
        f"ENGINE = IcebergS3('{os.environ['S3_ENDPOINT']}/us-lake/strangers/{TABLE}/', "
        f"'{os.environ['AWS_ACCESS_KEY_ID']}', '{os.environ['AWS_SECRET_ACCESS_KEY']}') PARTITION BY (part)"
    )
    ask(f"INSERT INTO {TABLE} VALUES {rows(1, 6)}")
    ask(f"INSERT INTO {TABLE} VALUES {rows(7, 9)}")
    ask(f"ALTER TABLE {TABLE} DELETE WHERE id IN (2, 8)")
    ask(f"INSERT INTO {TABLE} VALUES (10, NULL, NULL, NULL, NULL, 1)")
    print(ask(f"SELECT version(), * FROM {TABLE} ORDER BY id", "Pretty"))
