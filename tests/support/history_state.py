"""What the generator of histories knows of a table.

Its metadata as it stands on main, and SQL for values of its types.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any

from pyspark.sql import SparkSession

from sterna.spark.changelog_scan import load_by_name

FEATURES = ("orc-avro", "v3", "wap")
"""What a history may use beside the ordinary; each can be left out while sterna holds tables that have it."""

KEY_ID = 1  # field id of the column that tells rows apart; it is never dropped
Operation = Callable[["Turn"], list[str]]


@dataclass(frozen=True)
class Column:
    """A top-level column; `kind` is its type as metadata.json writes it."""

    id: int
    name: str
    kind: Any
    required: bool

    @property
    def quoted(self) -> str:
        return f"`{self.name}`"

    @property
    def primitive(self) -> bool:
        return isinstance(self.kind, str)


@dataclass(frozen=True)
class Snapshot:
    """A snapshot that the table keeps."""

    id: int
    parent: int | None
    operation: str
    summary: Mapping[str, str]


@dataclass(frozen=True)
class State:
    """One metadata.json, as far as the choice of an operation depends on it; in the file's order, so that a replay
    finds the same.

    Args:
        version: the format version.
        columns: the current schema.
        spec: the current partition fields: name, transform and source column's id; those that v1 keeps as void are left
            out.
        used: ids of the columns that any partition spec or sort order names.
        identities: ids of those whose very values a partition spec takes.
        snapshots: by id.
        current: the current snapshot.
        branches: branch → snapshot, without main.
        tags: tag → snapshot.
        properties: the table's properties.
    """

    version: int
    columns: tuple[Column, ...]
    spec: tuple[tuple[str, str, int], ...]
    used: frozenset[int]
    identities: frozenset[int]
    snapshots: Mapping[int, Snapshot]
    current: int | None
    branches: Mapping[str, int]
    tags: Mapping[str, int]
    properties: Mapping[str, str]

    @property
    def key(self) -> Column:
        return next(column for column in self.columns if column.id == KEY_ID)

    @property
    def others(self) -> list[Column]:
        """All columns but the key."""
        return [column for column in self.columns if column.id != KEY_ID]

    def line(self, snapshot: int | None) -> list[int]:
        """A snapshot and its ancestors that are still kept, newest first."""
        lineage = []
        while snapshot in self.snapshots:
            lineage.append(snapshot)
            snapshot = self.snapshots[snapshot].parent
        return lineage

    def staged(self) -> dict[str, int]:
        """The snapshots that were written for an audit and not published yet, by their wap.id."""
        by_id = {
            snapshot.summary["wap.id"]: snapshot.id
            for snapshot in self.snapshots.values()
            if "wap.id" in snapshot.summary
        }
        published = {snapshot.summary.get("published-wap-id") for snapshot in self.snapshots.values()}
        readable = {id for ref in (self.current, *self.branches.values(), *self.tags.values()) for id in self.line(ref)}
        return {name: id for name, id in by_id.items() if name not in published and id not in readable}


def load_state(spark: SparkSession, table: str) -> State:
    """Read a table's metadata through Iceberg's own Java classes.

    One request, where SQL would need a query for each part.
    """
    java: Any = spark
    iceberg = java._jvm.org.apache.iceberg
    loaded = load_by_name(java, table)  # a catalog that wasn't used yet needs the thread's active session
    return _state(json.loads(iceberg.TableMetadataParser.toJson(loaded.operations().current())))


def _state(document: Mapping[str, Any]) -> State:
    schema = next(one for one in document["schemas"] if one["schema-id"] == document["current-schema-id"])
    specs = {one["spec-id"]: one["fields"] for one in document["partition-specs"]}
    orders = [field for order in document["sort-orders"] for field in order["fields"]]
    refs = document.get("refs", {})
    current = document.get("current-snapshot-id")
    return State(
        version=document["format-version"],
        columns=tuple(
            Column(field["id"], field["name"], field["type"], field["required"]) for field in schema["fields"]
        ),
        spec=tuple(
            (field["name"], field["transform"], field["source-id"])
            for field in specs[document["default-spec-id"]]
            if field["transform"] != "void"
        ),
        identities=frozenset(
            field["source-id"] for spec in specs.values() for field in spec if field["transform"] == "identity"
        ),
        used=frozenset(field["source-id"] for field in [*(one for spec in specs.values() for one in spec), *orders]),
        snapshots={one["snapshot-id"]: _snapshot(one) for one in document.get("snapshots", ())},
        current=None if current == -1 else current,
        branches={name: ref["snapshot-id"] for name, ref in refs.items() if ref["type"] == "branch" and name != "main"},
        tags={name: ref["snapshot-id"] for name, ref in refs.items() if ref["type"] == "tag"},
        properties=document["properties"],
    )


def _snapshot(document: Mapping[str, Any]) -> Snapshot:
    summary = document.get("summary", {})
    return Snapshot(document["snapshot-id"], document.get("parent-snapshot-id"), summary.get("operation", ""), summary)


@dataclass(frozen=True)
class Turn:
    """What one operation of a history is made from.

    Args:
        rng: the only source of chance, so that a seed replays.
        state: the table now.
        catalog: the writer's catalog: main_us, main_eu, or a region's address.
        table: the table's name, with its namespace.
        others: the history's other tables.
        namespaces: where the history's tables may live.
        number: how many operations went before: makes names that no other operation gave.
        warehouses: region → the URI of its warehouse.
        features: those of FEATURES that are on.
    """

    rng: Random
    state: State
    catalog: str
    table: str
    others: Mapping[str, State]
    namespaces: Sequence[str]
    number: int
    warehouses: Mapping[str, str]
    features: frozenset[str]

    @property
    def name(self) -> str:
        return f"{self.catalog}.{self.table}"

    def call(self, procedure: str, **arguments: str) -> str:
        """A CALL of one of Iceberg's procedures on the table."""
        rendered = "".join(f", {name} => {value}" for name, value in arguments.items())
        return f"CALL {self.catalog}.system.{procedure}(table => '{self.table}'{rendered})"

    def alter(self, change: str) -> str:
        return f"ALTER TABLE {self.name} {change}"

    def rows(self) -> str:
        return rows(self.rng, self.state.columns)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance


def rows(rng: Random, columns: Sequence[Column]) -> str:
    """A query for new rows: some keys are new, some are there already."""
    first, count, salt = rng.randrange(150), rng.randrange(5, 40), rng.randrange(100)
    values = ", ".join(f"{value(column, 'id', salt)} AS {column.quoted}" for column in columns)
    return f"SELECT {values} FROM range({first}, {first + count})"


def value(column: Column, key: str, salt: int) -> str:
    """SQL for a column's value, a function of the row's key and a salt, with few different results.

    They make partitions.
    """
    if column.id == KEY_ID:
        return f"CAST({key} AS {column.kind.replace('long', 'bigint')})"
    expression = _of_type(column.kind, f"({key} + {salt})")
    return expression if column.required else f"IF(({key} + {salt}) % 9 = 4, NULL, {expression})"


_STRINGS = "element_at(array('plain', 'a/b', 'sp ace', 'ü=1&x', '100%25', ''), CAST({} % 6 + 1 AS INT))"
_PRIMITIVES = {
    "int": "CAST({} % 3 AS INT)",
    "long": "CAST({} % 4 AS BIGINT)",
    "float": "CAST({} % 5 / 4 AS FLOAT)",
    "double": "CAST({} % 5 / 4 AS DOUBLE)",
    "string": _STRINGS,
    "binary": f"CAST({_STRINGS} AS BINARY)",
    "boolean": "({} % 2 = 0)",
    "date": "date_add(DATE'2024-01-15', CAST({} % 3 * 40 AS INT))",
    "timestamptz": "timestamp_seconds(1700000000 + {} % 3 * 3000000)",
    "timestamp": "CAST(timestamp_seconds(1700000000 + {} % 3 * 3000000) AS TIMESTAMP_NTZ)",
}


def _of_type(kind: Any, number: str) -> str:
    if isinstance(kind, str):
        template = f"CAST({{}} % 7 / 10 AS {kind})" if kind.startswith("decimal") else _PRIMITIVES[kind]
        return template.format(number)
    if kind["type"] == "struct":
        return f"named_struct({', '.join(_fields(kind['fields'], number))})"
    if kind["type"] == "list":
        return f"array({_of_type(kind['element'], number)}, {_of_type(kind['element'], f'({number} + 1)')})"
    return f"map('k', {_of_type(kind['value'], number)})"


def _fields(fields: Sequence[Mapping[str, Any]], number: str) -> Iterator[str]:
    for field in fields:
        yield f"'{field['name']}'"
        yield _of_type(field["type"], number)
