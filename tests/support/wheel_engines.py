"""Reads tables with engines that sterna's own environment can't have: a program of another environment.

DuckDB with its own extension is another version than the gateway's, and chdb takes 530 MB. Standard input: JSON with
`store`, PyIceberg's properties of an S3 endpoint, and `locations`, the URI of each table's metadata.json. Standard
output: JSON, by engine and table the rows, or what the engine says instead.
"""

from __future__ import annotations

import io
import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any


def duckdb_rows(location: str, store: dict[str, str]) -> Any:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in ("avro", "httpfs", "iceberg"):
        folder = Path(str(import_module(f"duckdb_extension_{extension}").__file__)).parent
        connection.execute(f"LOAD '{next(folder.rglob('*.duckdb_extension'))}'")
    connection.execute(
        f"CREATE SECRET (TYPE s3, KEY_ID '{store['s3.access-key-id']}', SECRET '{store['s3.secret-access-key']}', "
        f"ENDPOINT '{store['s3.endpoint'].removeprefix('http://')}', USE_SSL false, URL_STYLE 'path', "
        f"REGION '{store['s3.region']}')"
    )
    return connection.execute(f"SELECT * FROM iceberg_scan('{location}')").to_arrow_table()


def clickhouse_rows(location: str, store: dict[str, str]) -> Any:
    import chdb
    import pyarrow as pa

    bucket, _, key = location.removeprefix("s3://").partition("/")
    answer = chdb.query(
        f"SELECT * FROM icebergS3('{store['s3.endpoint']}/{bucket}/', '{store['s3.access-key-id']}', "
        f"'{store['s3.secret-access-key']}', SETTINGS iceberg_metadata_file_path='{key}') "
        "SETTINGS output_format_arrow_string_as_string=1, session_timezone='UTC'",
        "Arrow",
    )
    return pa.ipc.open_file(io.BytesIO(answer.bytes())).read_all()


def read_rows(reader: Any, location: str, store: dict[str, str]) -> Any:
    try:
        rows = [[as_json(value) for value in row.values()] for row in reader(location, store).to_pylist()]
    except Exception as error:  # noqa: BLE001 - it is compared
        return f"{type(error).__name__}: {error}"
    return sorted(rows, key=lambda row: row[0])


def as_json(value: Any) -> Any:
    return value if value is None or isinstance(value, int) else str(value).removesuffix("+00:00")


def main() -> None:
    request = json.load(sys.stdin)
    readers = {"duckdb": duckdb_rows, "clickhouse": clickhouse_rows}
    answers = {
        engine: {table: read_rows(reader, uri, request["store"]) for table, uri in request["locations"].items()}
        for engine, reader in readers.items()
    }
    json.dump(answers, sys.stdout)


if __name__ == "__main__":
    main()
