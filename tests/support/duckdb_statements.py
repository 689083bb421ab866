"""Runs statements in a DuckDB with its Iceberg extension: a program of the environment of `engines_python`.

Sterna's own environment has another version of DuckDB. Standard input: JSON with `statements`. Standard output: JSON,
the rows of the last one, or `error`, what DuckDB says.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path


def main() -> None:
    import duckdb

    connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
    for extension in ("avro", "httpfs", "iceberg"):
        folder = Path(str(import_module(f"duckdb_extension_{extension}").__file__)).parent
        connection.execute(f"LOAD '{next(folder.rglob('*.duckdb_extension'))}'")
    try:
        for statement in json.load(sys.stdin)["statements"]:
            rows = connection.execute(statement).fetchall()
    except duckdb.Error as error:
        json.dump({"error": str(error)}, sys.stdout)
    else:
        json.dump({"rows": rows}, sys.stdout, default=str)


if __name__ == "__main__":
    main()
