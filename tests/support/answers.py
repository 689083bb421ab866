"""What a table answers to Spark, its rows at every snapshot and ref and its metadata tables, and whether a replica
answers the same.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from pyiceberg.table import Table
from pyspark.sql import SparkSession

from sterna.config.mapping import Mapping
from sterna.config.near_places import WRITE_PATHS

METADATA_TABLES = ("files", "delete_files", "entries", "manifests", "partitions")
"""What is asked beside rows. Lists of files come in whatever order a manifest was read: each is compared as a bag."""
_PATH_ID = "2147483546"
_POSITION_DELETES = 1
_DELETED = 2
# What follows from a rewritten position delete file's own bytes.
_REWRITTEN = ("file_size_in_bytes", "column_sizes", "split_offsets")
# The catalog's own, and what is changed on purpose on every replica.
_OWN_PROPERTIES = ("nessie.commit.id", "nessie.gc.no-warning", "gc.enabled")
# Where a region's REST address has its clients write.
_PLACES = frozenset({"location", *WRITE_PATHS})
_TIME = "yyyy-MM-dd HH:mm:ss.SSSSSS"
_FORMAT = f"map('timestampFormat', '{_TIME}', 'timestampNTZFormat', '{_TIME}', 'ignoreNullFields', 'false')"

_LINEAGE = ("_row_id", "_last_updated_sequence_number")
_MAX_SHOWN_ROWS = 3  # rows of a difference, of each side

Row = dict[str, Any]


@dataclass(frozen=True)
class Answers:
    """What one table answers.

    Args:
        schema: its current schema as Spark's JSON.
        properties: its table properties.
        metadata: by metadata table, its rows.
        rows: "now", by snapshot id and by ref, the table's rows as sorted JSON.
    """

    schema: str
    properties: dict[str, str]
    metadata: dict[str, list[Row]]
    rows: dict[str, list[str]]


def ask(spark: SparkSession, table: str, without: Collection[str] = ()) -> Answers:
    """Ask a table everything, in two queries: each that Spark plans costs more than these small tables' rows.

    Args:
        spark: the session.
        table: its name with the catalog.
        without: metadata tables that aren't asked: Iceberg itself can't answer them for this table, or rows are enough.
    """
    table = _remembered(spark, table)
    properties = {row[0]: row[1] for row in spark.sql(f"SHOW TBLPROPERTIES {table}").collect()}
    metadata = _json_rows(_union(spark, {name: (f"{table}.{name}", "*") for name in ("snapshots", "refs", "history")}))
    staged = _staged(metadata)
    metadata["snapshots"] = [row for row in metadata["snapshots"] if row["snapshot_id"] not in staged]
    lineage = int(properties.get("format-version", "1")) >= 3
    columns = ", ".join(("*", *_LINEAGE)) if lineage else "*"
    wanted = {"now": (table, columns)}
    wanted |= {
        str(row["snapshot_id"]): (f"{table} VERSION AS OF {row['snapshot_id']}", columns)
        for row in metadata["snapshots"]
    }
    names = [row["name"] for row in metadata["refs"] if row["name"] != "main"]  # that is "now"
    wanted |= {f"ref {name}": (f"{table} VERSION AS OF '{name}'", columns) for name in names}
    rows = _union(
        spark, wanted | {f"#{name}": (f"{table}.{name}", "*") for name in METADATA_TABLES if name not in without}
    )
    metadata |= _json_rows({name: rows.pop(f"#{name}", []) for name in METADATA_TABLES})
    return Answers(spark.table(table).schema.json(), properties, metadata, rows)


def _remembered(spark: SparkSession, table: str) -> str:
    """Return a table's name in a catalog like its own that remembers tables: our queries name each a dozen times.

    It is forgotten here before it is asked.
    """
    catalog, _, rest = table.partition(".")
    own, other = f"spark.sql.catalog.{catalog}", f"spark.sql.catalog.{catalog}_asked"
    settings: Any = spark.conf
    if settings.get(other, None) is None:
        for name, value in settings.getAll.items():
            if name == own or name.startswith(f"{own}."):
                settings.set(name.replace(own, other, 1), value)
        settings.set(f"{other}.cache-enabled", "true")
    spark.sql(f"REFRESH TABLE {catalog}_asked.{rest}")
    return f"{catalog}_asked.{rest}"


def differences(main: Answers, replica: Answers, mapping: Mapping, *, pruned: bool = False) -> list[str]:
    """Return what a replica answers otherwise than main does, mapped; nothing when they are equal.

    Args:
        main: main's answers; what is staged there and not published (`wap.id`) isn't on a replica.
        replica: the replica's answers.
        mapping: the replica's region's.
        pruned: the replica keeps a part of main's history; what it keeps is compared.
    """
    if pruned:
        main, replica = _kept(main, replica), _without_history(replica)
    rewritten = {mapping.origin_uri(path) for path in _position_deletes(replica) if path != mapping.origin_uri(path)}
    mismatches = _compare("schema", [main.schema], [replica.schema])
    mismatches += _compare("properties", _properties(main, mapping), _properties(replica, mapping))
    for name in sorted(main.metadata | replica.metadata):
        wanted = [_normal(row, mapping, mapping.content_uri, rewritten) for row in main.metadata[name]]
        mismatches += _compare(name, wanted, [_normal(row, mapping, str, rewritten) for row in replica.metadata[name]])
    for name in sorted(main.rows | replica.rows):
        mismatches += _compare(f"rows {name}", main.rows.get(name), replica.rows.get(name))
    return mismatches


def without_places(answers: Answers) -> Answers:
    """Return what a table answers without the places that it is written to: an address serves its region's own."""
    kept = {name: text for name, text in answers.properties.items() if name not in _PLACES}
    return replace(answers, properties=kept)


def data_rows(answers: Answers) -> dict[str, list[str]]:
    """Return the rows now and at every snapshot, without the columns of row lineage, as `ask_pyiceberg` returns
    them.
    """
    rows = {
        name: [json.loads(text) for text in texts]
        for name, texts in answers.rows.items()
        if not name.startswith("ref ")
    }
    return {
        name: sorted(_text({key: value for key, value in row.items() if key not in _LINEAGE}) for row in table_rows)
        for name, table_rows in rows.items()
    }


def ask_pyiceberg(table: Table) -> dict[str, list[str]]:
    """Return a table's rows now and at every snapshot as PyIceberg reads them.

    Args:
        table: an open table, without columns of single precision: they have another text.
    """
    scans = {"now": table.scan()} | {
        str(item.snapshot_id): table.scan(snapshot_id=item.snapshot_id) for item in table.snapshots()
    }
    return {name: sorted(_text(row) for row in scan.to_arrow().to_pylist()) for name, scan in scans.items()}


def _text(row: Row) -> str:
    return json.dumps(row, sort_keys=True, default=str)


def _union(spark: SparkSession, wanted: dict[str, tuple[str, str]]) -> dict[str, list[str]]:
    """Return, by name, the sorted rows as JSON of some relations: (relation, columns)."""
    parts = [
        f"SELECT '{name}', to_json(struct({columns}), {_FORMAT}) FROM {relation}"
        for name, (relation, columns) in wanted.items()
    ]
    rows: dict[str, list[str]] = {name: [] for name in wanted}
    # In one task: each would be sent the plans of all parts, and take longer to read them than its few rows.
    for name, text in spark.sql(" UNION ALL ".join(parts)).coalesce(1).collect():
        rows[name].append(text)
    return {name: sorted(texts) for name, texts in rows.items()}


def _json_rows(rows: dict[str, list[str]]) -> dict[str, list[Row]]:
    return {name: [json.loads(text) for text in texts] for name, texts in rows.items()}


def _staged(metadata: dict[str, list[Row]]) -> Collection[int]:
    """Return the snapshots that were written under a `wap.id` and are published nowhere."""
    parents = {row["snapshot_id"]: row["parent_id"] for row in metadata["snapshots"]}
    published = {row["snapshot_id"] for row in metadata["history"]}
    for row in metadata["refs"]:
        snapshot = row["snapshot_id"]
        while snapshot in parents and snapshot not in published:
            published.add(snapshot)
            snapshot = parents[snapshot]
    return {row["snapshot_id"] for row in metadata["snapshots"] if "wap.id" in (row["summary"] or {})} - published


def _position_deletes(answers: Answers) -> set[str]:
    entries = (row["data_file"] for row in answers.metadata["entries"])
    return {file["file_path"] for file in entries if file.get("content") == _POSITION_DELETES}


def _properties(answers: Answers, mapping: Mapping) -> list[str]:
    return [
        f"{name}={mapping.origin_uri(value)}"
        for name, value in answers.properties.items()
        if name not in _OWN_PROPERTIES
    ]


def _normal(row: Row, mapping: Mapping, content: Callable[[str], str], rewritten: Collection[str]) -> Row:
    """Return a metadata table's row as it is compared.

    URIs of localized files as on main, those of content files as on the replica.
    """
    if "data_file" in row:
        file = _file(row["data_file"], mapping, content, rewritten)
        # Nobody opens a deleted file: it may keep its URI while the paths that it named are mapped.
        return row | {"data_file": _without_path_bounds(file) if row["status"] == _DELETED else file}
    if "file_path" in row:
        return _file(row, mapping, content, rewritten)
    if "path" in row:
        return row | {"path": mapping.origin_uri(row["path"]), "length": None}
    if "manifest_list" in row:
        summary = {name: mapping.origin_uri(value) for name, value in (row["summary"] or {}).items()}
        return row | {
            "manifest_list": row["manifest_list"] and mapping.origin_uri(row["manifest_list"]),
            "summary": summary,
        }
    return row


def _file(file: Row, mapping: Mapping, content: Callable[[str], str], rewritten: Collection[str]) -> Row:
    if file.get("content") != _POSITION_DELETES:
        return file | {"file_path": content(file["file_path"])}
    file = file | {"file_path": mapping.origin_uri(file["file_path"])}
    if file.get("referenced_data_file"):
        file["referenced_data_file"] = content(file["referenced_data_file"])
    if file["file_path"] in rewritten:
        file = _without_path_bounds(file) | dict.fromkeys(_REWRITTEN)
    return file


def _without_path_bounds(file: Row) -> Row:
    bounds = ("lower_bounds", "upper_bounds")
    return file | {
        name: {key: value for key, value in (file[name] or {}).items() if key != _PATH_ID} for name in bounds
    }


def _kept(main: Answers, replica: Answers) -> Answers:
    """Return main's answers without the snapshots that the replica doesn't keep."""
    snapshots = {row["snapshot_id"] for row in replica.metadata["snapshots"]}
    log = [(row["made_current_at"], row["snapshot_id"]) for row in replica.metadata["history"]]
    metadata = main.metadata | {
        "snapshots": [row for row in main.metadata["snapshots"] if row["snapshot_id"] in snapshots],
        "history": [row for row in main.metadata["history"] if (row["made_current_at"], row["snapshot_id"]) in log],
    }
    rows = {name: texts for name, texts in main.rows.items() if not name.isdigit() or int(name) in snapshots}
    return _without_history(Answers(main.schema, main.properties, metadata, rows))


def _without_history(answers: Answers) -> Answers:
    """Leave out what Iceberg looks up in snapshots that may be pruned."""
    aside = {
        "history": ("parent_id", "is_current_ancestor"),
        "partitions": ("last_updated_at", "last_updated_snapshot_id"),
    }
    metadata = answers.metadata | {
        name: [row | dict.fromkeys(columns) for row in answers.metadata[name]] for name, columns in aside.items()
    }
    return Answers(answers.schema, answers.properties, metadata, answers.rows)


def _compare(name: str, main: list[Any] | None, replica: list[Any] | None) -> list[str]:
    if main is None or replica is None:
        return [f"{name}: {'main' if main is None else 'the replica'} does not know it"]
    expected, actual = (Counter(json.dumps(row, sort_keys=True) for row in rows) for rows in (main, replica))
    only = (
        [f"only on main: {row}" for row in (expected - actual)],
        [f"only on the replica: {row}" for row in (actual - expected)],
    )
    lines = [line for side in only for line in sorted(side)[:_MAX_SHOWN_ROWS]]
    return [f"{name}: {expected.total()} on main, {actual.total()} on the replica", *lines] if lines else []
