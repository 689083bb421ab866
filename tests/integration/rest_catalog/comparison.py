"""Whether `main`, eu's address and eu's replica have the same of a table, and `main` nothing of a replica."""

from __future__ import annotations

import json
from typing import Any

from sterna.catalog.model import Key
from tests.support.world import World, merge_on_read


def make(world: World, name: str, version: int, region: str = "us", namespace: str = "rest_write") -> str:
    """A table with some rows, which this region has."""
    table = f"{namespace}.{name}"
    world.sql(f"CREATE TABLE main_{region}.{table} (id BIGINT, name STRING) USING iceberg {merge_on_read(version)}")
    world.sql(f"INSERT INTO main_{region}.{table} SELECT id, concat('n', id) FROM range(0, 30, 1, 1)")
    world.sync()
    return table


def rows(world: World, table: str, columns: str = "*") -> list[tuple[Any, ...]]:
    return sorted(world.sql(f"SELECT {columns} FROM {table}"), key=repr)


def main_metadata(world: World, table: str) -> dict[str, Any]:
    key: Key = tuple(table.split("."))
    document: dict[str, Any] = json.loads(world.context().objects.read(world.content(key).metadata_location or ""))
    return document


def compare(world: World, table: str, home: str = "us") -> list[tuple[Any, ...]]:
    """See that `main`, the address and the replica have the same, and `main` its own names; return the rows.

    Args:
        home: the region that the table was born in.
    """
    served = rows(world, f"rest_eu.{table}")
    assert served == rows(world, f"main_us.{table}")
    assert world.snapshots(f"rest_eu.{table}") == world.snapshots(f"main_us.{table}")
    world.sync()
    assert rows(world, f"replica_eu.{table}") == served
    document = main_metadata(world, table)
    root = world.context().region.replica_root
    files = world.sql(f"SELECT file_path FROM main_us.{table}.all_files")
    manifests = world.sql(f"SELECT path FROM main_us.{table}.all_manifests")
    for text in (json.dumps(document), *(row[0] for row in (*files, *manifests))):
        assert root not in text
    assert "near" not in str(document.get("properties"))
    assert document["properties"].get("write.data.path") is None
    assert document["properties"].get("write.metadata.path") is None
    assert document["location"].startswith(f"s3://{home}-lake/")
    return served
