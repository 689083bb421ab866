"""Operations of a history that make a table, or change its schema, partitioning, order, properties, format or name."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

from tests.support.history_state import KEY_ID, Column, Operation, Turn, rows

_POOL = (
    ("txt", "STRING"),
    ("num", "INT"),
    ("big", "BIGINT"),
    ("ratio", "FLOAT"),
    ("price", "DECIMAL(9,2)"),
    ("day", "DATE"),
    ("moment", "TIMESTAMP"),
    ("wall clock", "TIMESTAMP_NTZ"),
    ("flag", "BOOLEAN"),
    ("blob", "BINARY"),
    ("place é", "STRUCT<city: STRING, `zip`: INT, deep: STRUCT<x: DOUBLE>>"),
    ("tags", "ARRAY<STRING>"),
    ("attrs", "MAP<STRING, BIGINT>"),
)
_NUMBERS = ("bucket(3, {})", "truncate(2, {})", "{}")
_DAYS = ("days({})", "months({})", "years({})")
_TRANSFORMS: Mapping[str, tuple[str, ...]] = {
    "int": _NUMBERS,
    "long": _NUMBERS,
    "string": ("bucket(2, {})", "truncate(2, {})", "{}"),
    "date": (*_DAYS, "{}"),
    "timestamptz": _DAYS,
    "timestamp": _DAYS,
    "boolean": ("{}",),
    "decimal": ("bucket(2, {})", "truncate(5, {})"),
}
_SQL_TYPES = {
    "INT": "int",
    "BIGINT": "long",
    "STRING": "string",
    "DATE": "date",
    "TIMESTAMP": "timestamptz",
    "TIMESTAMP_NTZ": "timestamp",
}
_MODES = ("merge-on-read", "merge-on-read", "copy-on-write")


def create(
    rng: Random, catalog: str, table: str, warehouses: Mapping[str, str], features: Collection[str]
) -> list[str]:
    """Make a table with a random schema, partitioning, format and properties."""
    columns = rng.sample(_POOL, rng.randrange(2, 6))
    version = rng.choice([1, 2, 2, 2, 3, 3] if "v3" in features else [1, 2, 2, 2])
    settings = {"format-version": str(version)}
    for choices in rng.sample(_properties(warehouses, table, version, features), rng.randrange(2, 8)):
        settings |= rng.choice(choices)
    key = rng.choice(["BIGINT", "INT NOT NULL", "BIGINT NOT NULL"])
    defined = ", ".join([f"id {key}", *(f"`{name}` {kind}" for name, kind in columns)])
    partitioned = [
        rng.choice(_TRANSFORMS[_SQL_TYPES[kind]]).format(f"`{name}`") for name, kind in columns if kind in _SQL_TYPES
    ]
    partitioned = rng.sample(partitioned, min(len(partitioned), rng.randrange(3)))
    by = f" PARTITIONED BY ({', '.join(partitioned)})" if partitioned else ""
    return [f"CREATE TABLE {catalog}.{table} ({defined}) USING iceberg{by} TBLPROPERTIES ({_listed(settings)})"]


def properties(turn: Turn) -> list[str]:
    mine = sorted(
        name
        for name in turn.state.properties
        if name.startswith(("write.data", "write.metadata.path", "owner.", "comment"))
    )
    if mine and turn.maybe(0.3):
        return [turn.alter(f"UNSET TBLPROPERTIES ('{turn.rng.choice(mine)}')")]
    pool = _properties(turn.warehouses, turn.table, turn.state.version, turn.features)
    chosen: dict[str, str] = {}
    for choices in turn.rng.sample(pool, turn.rng.randrange(1, 4)):
        chosen |= turn.rng.choice(choices)
    return [turn.alter(f"SET TBLPROPERTIES ({_listed(chosen)})")]


def upgrade(turn: Turn) -> list[str]:
    newest = 3 if "v3" in turn.features else 2
    return (
        [turn.alter(f"SET TBLPROPERTIES ('format-version'='{turn.state.version + 1}')")]
        if turn.state.version < newest
        else []
    )


def add_column(turn: Turn) -> list[str]:
    structs = [column for column in turn.state.columns if not column.primitive and column.kind["type"] == "struct"]
    name = f"c{turn.number}"
    if structs and turn.maybe(0.3):
        return [turn.alter(f"ADD COLUMN {turn.rng.choice(structs).quoted}.{name} STRING")]
    after = turn.rng.choice(["", " FIRST", f" AFTER {turn.rng.choice(turn.state.columns).quoted}"])
    return [turn.alter(f"ADD COLUMN {name} {turn.rng.choice(_POOL)[1]}{after}")]


def drop_column(turn: Turn) -> list[str]:
    # Iceberg refuses to drop a column that a spec or order names; of an old spec's column it can't delete merge-on-read
    # afterwards.
    free = [column for column in turn.state.others if column.id not in turn.state.used]
    return [turn.alter(f"DROP COLUMN {turn.rng.choice(free).quoted}")] if len(free) > 1 else []


def rename_column(turn: Turn) -> list[str]:
    column = turn.rng.choice(turn.state.columns)
    if not column.primitive and column.kind["type"] == "struct" and turn.maybe(0.5):
        return [
            turn.alter(
                f"RENAME COLUMN {column.quoted}.`{turn.rng.choice(column.kind['fields'])['name']}` TO `n {turn.number}`"
            )
        ]
    return [turn.alter(f"RENAME COLUMN {column.quoted} TO `n{turn.number}`")]


def promote(turn: Turn) -> list[str]:
    # Iceberg takes a partition's value in its newest type, and then can't read an older snapshot, whose schema has the
    # narrower one: `ClassCastException`, on main as on the replica.
    free = [column for column in turn.state.columns if column.id not in turn.state.identities]
    wider = [(column.quoted, new) for column in free if (new := _wider(column))]
    if not wider:
        return []
    name, new = turn.rng.choice(wider)
    return [turn.alter(f"ALTER COLUMN {name} TYPE {new}")]


def reorder(turn: Turn) -> list[str]:
    column, other = turn.rng.sample(turn.state.columns, 2)
    return [turn.alter(f"ALTER COLUMN {column.quoted} {turn.rng.choice(['FIRST', f'AFTER {other.quoted}'])}")]


def loosen(turn: Turn) -> list[str]:
    return [turn.alter(f"ALTER COLUMN {turn.state.key.quoted} DROP NOT NULL")] if turn.state.key.required else []


def partition(turn: Turn) -> list[str]:
    """Add, drop or replace a partition field."""
    taken = {source for _, _, source in turn.state.spec}
    free = [column for column in turn.state.columns if column.id not in taken and _transforms(column)]
    new = ""
    if free:
        column = turn.rng.choice(free)
        new = f"{turn.rng.choice(_transforms(column)).format(column.quoted)} AS p{turn.number}"
    old = f"`{turn.rng.choice(turn.state.spec)[0]}`" if turn.state.spec else ""
    changes = [f"ADD PARTITION FIELD {new}"] if new and len(turn.state.spec) < 3 else []
    changes += [f"DROP PARTITION FIELD {old}"] if old else []
    changes += [f"REPLACE PARTITION FIELD {old} WITH {new}"] if old and new else []
    return [turn.alter(turn.rng.choice(changes))] if changes else []


def order(turn: Turn) -> list[str]:
    columns = [column for column in turn.state.columns if column.primitive]
    chosen = turn.rng.sample(columns, min(len(columns), turn.rng.randrange(1, 3)))
    by = ", ".join(f"{column.quoted} {turn.rng.choice(['ASC NULLS LAST', 'DESC NULLS FIRST'])}" for column in chosen)
    forms = [
        f"ORDERED BY {by}",
        f"LOCALLY ORDERED BY {by}",
        f"DISTRIBUTED BY PARTITION LOCALLY ORDERED BY {by}",
        "UNORDERED",
    ]
    return [turn.alter(f"WRITE {turn.rng.choice(forms)}")]


def rename(turn: Turn) -> list[str]:
    new = f"{turn.rng.choice(turn.namespaces)}.t{turn.number}"
    return [turn.alter(f"RENAME TO {new}")]


def create_anew(turn: Turn) -> list[str]:
    """Drop the table and make another one under its name, from either region."""
    drop = [f"DROP TABLE {turn.name}"]
    if turn.maybe(0.3):
        drop = [turn.alter("SET TBLPROPERTIES ('gc.enabled'='true')"), f"DROP TABLE {turn.name} PURGE"]
    return drop + create(turn.rng, turn.catalog, turn.table, turn.warehouses, turn.features)


def replace(turn: Turn) -> list[str]:
    """Another table in the place of this one, which keeps its history."""
    # Without a column that an old spec names Iceberg can't write (v1 keeps its field as void) or delete merge-on-read
    # (v2, v3).
    kept = [
        column
        for column in turn.state.columns
        if column.id == KEY_ID or column.id in turn.state.used or turn.maybe(0.7)
    ]
    free = [column for column in kept if _transforms(column)]
    by = ""
    if turn.maybe(0.5):
        column = turn.rng.choice(free)
        by = f" PARTITIONED BY ({turn.rng.choice(_transforms(column)).format(column.quoted)})"
    return [f"CREATE OR REPLACE TABLE {turn.name} USING iceberg{by} AS {rows(turn.rng, kept)}"]


def commit_together(turn: Turn) -> list[str]:
    """Rows in two tables by one commit of main: what two writers did on a branch of the catalog."""
    if not turn.others:
        return []
    other = turn.rng.choice(sorted(turn.others))
    work = f"{turn.namespaces[0]}_{turn.number}"
    statements = [f"@branch {work}"]
    for table, columns in ((turn.table, turn.state.columns), (other, turn.others[other].columns)):
        namespace, _, name = table.rpartition(".")
        statements.append(f"INSERT INTO {turn.catalog}.{namespace}.`{name}@{work}` {rows(turn.rng, columns)}")
    return [*statements, f"@commit {work} {turn.table} {other}"]


def _properties(
    warehouses: Mapping[str, str], table: str, version: int, features: Collection[str]
) -> list[list[dict[str, str]]]:
    """Alternatives, each a list of settings of which one is taken."""
    formats = ["parquet", "orc", "avro"] if "orc-avro" in features else ["parquet"]
    elsewhere = [f"{warehouse}/elsewhere {table}" for warehouse in warehouses.values()]
    deletes = [
        *([{f"write.{change}.mode": mode} for mode in _MODES] for change in ("delete", "update", "merge")),
        [{"write.delete.granularity": granularity} for granularity in ("file", "partition")],
        [{"write.delete.format.default": name} for name in formats],
    ]
    return [
        *(deletes * 2 if version > 1 else []),
        [{"write.format.default": name} for name in formats],
        [{"write.data.path": path} for path in elsewhere],
        [{"write.metadata.path": f"{path}/metadata"} for path in elsewhere],
        [{"write.object-storage.enabled": answer} for answer in ("true", "false")],
        [{"write.metadata.compression-codec": codec} for codec in ("gzip", "none")],
        [{"write.avro.compression-codec": codec} for codec in ("gzip", "snappy", "zstd", "uncompressed")],
        [{"write.parquet.compression-codec": codec} for codec in ("gzip", "snappy", "zstd", "uncompressed")],
        [{"write.delete.parquet.compression-codec": codec} for codec in ("gzip", "snappy", "uncompressed")],
        [{"write.metadata.metrics.default": mode} for mode in ("none", "counts", "full", "truncate(1)")],
        [{"commit.manifest-merge.enabled": "false"}, {"commit.manifest.min-count-to-merge": "2"}],
        [{"write.distribution-mode": mode} for mode in ("none", "hash", "range")],
        [{"compatibility.snapshot-id-inheritance.enabled": "true"}, {"write.summary.partition-limit": "10"}],
        # A value that is a registered URI is mapped; one that only holds one stays; and JSON must escape what SQL need
        # not.
        [{"owner.home": elsewhere[0]}, {"owner.note": f"see {elsewhere[0]}"}, {"comment": 'a "quoted" \\\\ ü \\t'}],
    ]


def _listed(properties: Mapping[str, str]) -> str:
    return ", ".join(f"'{name}'='{text}'" for name, text in properties.items())


def _transforms(column: Column) -> Sequence[str]:
    if column.id == KEY_ID:
        return ("bucket(3, {})", "truncate(50, {})")
    return _TRANSFORMS.get(column.kind.partition("(")[0], ()) if column.primitive else ()


def _wider(column: Column) -> str:
    """The type that a column may be promoted to, or ""."""
    if column.primitive and column.kind.startswith("decimal"):
        precision, scale = column.kind.removeprefix("decimal(").removesuffix(")").split(",")
        return f"DECIMAL({int(precision) + 2},{scale.strip()})"
    return {"int": "BIGINT", "float": "DOUBLE"}.get(column.kind, "") if column.primitive else ""


SHAPE: Mapping[str, tuple[float, Operation]] = {
    "properties": (8, properties),
    "upgrade": (4, upgrade),
    "add column": (3, add_column),
    "drop column": (2, drop_column),
    "rename column": (2, rename_column),
    "promote": (2.5, promote),
    "reorder": (1, reorder),
    "loosen": (1, loosen),
    "partition": (5, partition),
    "order": (2, order),
    "rename": (2, rename),
    "create anew": (1.5, create_anew),
    "replace": (1.5, replace),
    "commit together": (2, commit_together),
}
"""Each operation by name, with its weight."""
