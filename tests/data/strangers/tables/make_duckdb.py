"""Writes duckdb_position and duckdb_v3 with DuckDB's own extension, over make_catalog.py. README.md tells how."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from pathlib import Path

import duckdb

NAMES = ["one", "two", "three", "four", "five", "six", "seven", "eight", "ünï 日本"]


def rows(first: int, last: int) -> str:
    return ", ".join(
        f"({i}, '{NAMES[i - 1]}', {i}.25, DATE '2026-01-0{i}', TIMESTAMP '2026-01-0{i} 00:00:0{i}', {i % 3})"
        for i in range(first, last + 1)
    )


def main(catalog: str, name: str, more: str) -> None:
    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in ("avro", "httpfs", "iceberg"):
        folder = Path(str(import_module(f"duckdb_extension_{extension}").__file__)).parent
        connection.execute(f"LOAD '{next(folder.rglob('*.duckdb_extension'))}'")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{os.environ['AWS_ACCESS_KEY_ID']}', REGION 'us-east-1', "
        f"SECRET '{os.environ['AWS_SECRET_ACCESS_KEY']}', URL_STYLE 'path', USE_SSL false, "
        f"ENDPOINT '{os.environ['S3_ENDPOINT'].removeprefix('http://')}')"
    )
    connection.execute(
        f"ATTACH 'us' AS lake (TYPE iceberg, ENDPOINT '{catalog}', AUTHORIZATION_TYPE 'none', "
        "ACCESS_DELEGATION_MODE 'none')"
    )
    connection.execute("CREATE SCHEMA IF NOT EXISTS lake.ns")
    table = f"lake.ns.{name}"
    connection.execute(
        f"CREATE TABLE {table} (id BIGINT, name VARCHAR, price DECIMAL(9,2), day DATE, seen TIMESTAMP, part INTEGER) "
        f"{more}"
    )
    connection.execute(f"INSERT INTO {table} VALUES {rows(1, 6)}")
    connection.execute(f"INSERT INTO {table} VALUES {rows(7, 9)}")
    connection.execute(f"DELETE FROM {table} WHERE id IN (2, 8)")
    connection.execute(f"INSERT INTO {table} VALUES (10, NULL, NULL, NULL, NULL, 1)")
    print(connection.execute(f"SELECT * FROM {table} ORDER BY id").fetchall())


main(*sys.argv[1:])
