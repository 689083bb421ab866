"""What `changes` says of two snapshots of a table, compared with their rows as Iceberg reads them, one by one."""

from __future__ import annotations

import json
import os
import uuid
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import Row, SparkSession

from sterna.pipelines.changes import CHANGE, between
from tests.support.iceberg_java import iceberg, load_table

_OLD = ("delete", "update_before")


def canonical(value: Any) -> Any:
    """A value as something to compare and to count, with -0.0 and NaN as they are."""
    if isinstance(value, Row | list | tuple):
        return tuple(canonical(element) for element in value)
    if isinstance(value, dict):
        return ("map", *sorted((repr(canonical(key)), canonical(element)) for key, element in value.items()))
    return repr(value) if isinstance(value, float) else bytes(value) if isinstance(value, bytearray) else str(value)


def counted(rows: Iterable[Any]) -> Counter[Any]:
    return Counter(canonical(row) for row in rows)


class Oracle:
    """The rows of a table's snapshots, read as a whole by Iceberg's own reader: no plan, no difference of ours.

    Args:
        spark: the session.
        folder: for copies of metadata.json, in which another snapshot and schema are current.
        properties: how FileIO reaches the tables' files.
    """

    def __init__(self, spark: SparkSession, folder: Path, properties: dict[str, str] | None = None) -> None:
        self._spark, self._folder = spark, folder
        self._seen: dict[tuple[str, int, int], Counter[Any]] = {}
        java: Any = spark
        java._jvm.java.lang.System.setProperty("derby.stream.error.file", os.devnull)
        self._catalog = f"changes_oracle_{uuid.uuid4().hex[:8]}"
        prefix = f"spark.sql.catalog.{self._catalog}"
        settings = {
            prefix: "org.apache.iceberg.spark.SparkCatalog",
            f"{prefix}.catalog-impl": "org.apache.iceberg.jdbc.JdbcCatalog",
            f"{prefix}.uri": f"jdbc:derby:memory:oracle-{uuid.uuid4().hex};create=true",
            f"{prefix}.io-impl": "org.apache.iceberg.io.ResolvingFileIO",
            f"{prefix}.warehouse": str(folder),
            **{f"{prefix}.{name}": text for name, text in (properties or {}).items()},
        }
        for name, text in settings.items():
            spark.conf.set(name, text)

    def rows(self, table: str, snapshot: int, end: int) -> Counter[Any]:
        """Return a snapshot's rows by the schema that another one was written with."""
        loaded = load_table(self._spark, table)
        api = iceberg(self._spark)
        document = json.loads(api.TableMetadataParser.toJson(loaded.operations().current()))
        schema = next(one.get("schema-id") for one in document["snapshots"] if one["snapshot-id"] == end)
        schema = document["current-schema-id"] if schema is None else schema
        key = (str(document["table-uuid"]), snapshot, schema)
        if key not in self._seen:
            document |= {"current-snapshot-id": snapshot, "current-schema-id": schema}
            document["refs"] = {"main": {"snapshot-id": snapshot, "type": "branch"}}
            document["snapshot-log"] = []
            # The current spec and order may need a column that the schema of that time lacks; reading needs neither.
            unpartitioned = 1 + max(spec["spec-id"] for spec in document["partition-specs"])
            document["partition-specs"].append({"spec-id": unpartitioned, "fields": []})
            document |= {"default-spec-id": unpartitioned, "default-sort-order-id": 0}
            document["sort-orders"] = [{"order-id": 0, "fields": []}]
            if "schema" in document:
                document["schema"] = next(one for one in document["schemas"] if one["schema-id"] == schema)
            self._seen[key] = counted(self._read(document))
        return self._seen[key]

    def _read(self, document: dict[str, Any]) -> list[Row]:
        path = self._folder / f"{uuid.uuid4()}.metadata.json"
        path.write_text(json.dumps(document))
        name = f"made.t{uuid.uuid4().hex}"
        self._spark.sql(
            f"CALL {self._catalog}.system.register_table(table => '{name}', metadata_file => '{path.as_uri()}')"
        ).collect()
        return self._spark.table(f"{self._catalog}.{name}").collect()


def net(spark: SparkSession, table: str, start: int | None, end: int) -> tuple[Counter[Any], Counter[Any]]:
    """What is taken away between two snapshots, and what is added."""
    changes = between(spark, table, start, end).collect()
    for change in changes:
        assert change[CHANGE] in (*_OLD, "insert", "update_after")
    old = counted(row[1:] for row in changes if row[0] in _OLD)
    new = counted(row[1:] for row in changes if row[0] not in _OLD)
    return old, new


def check(spark: SparkSession, oracle: Oracle, table: str, start: int, end: int) -> None:
    """See that the changes, applied to the rows at the start, make those at the end, and are as few as can be."""
    before, after = oracle.rows(table, start, end), oracle.rows(table, end, end)
    old, new = net(spark, table, start, end)
    assert old <= before, f"{table} {start} → {end}: rows are deleted that weren't there: {old - before}"
    applied = before - old + new
    assert applied == after, f"{table} {start} → {end}: too many {applied - after}, missing {after - applied}"
    assert not old & new, f"{table} {start} → {end}: deleted and inserted again: {old & new}"


def line(spark: SparkSession, table: str) -> list[tuple[int, int | None]]:
    """The current snapshot and its ancestors that are kept, oldest first, each with its schema."""
    loaded = load_table(spark, table)
    snapshots = []
    snapshot = loaded.currentSnapshot()
    while snapshot is not None:
        snapshots.append((snapshot.snapshotId(), snapshot.schemaId()))
        snapshot = loaded.snapshot(snapshot.parentId()) if snapshot.parentId() is not None else None
    return snapshots[::-1]
