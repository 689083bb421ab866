"""Tables of every kind that named queries are asked about, written by Spark and by Iceberg's own Java API."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.support.iceberg_java import a_record, commit_rows, data_file, equality_deletes, iceberg, load_table
from tests.support.world import World, merge_on_read

NAMESPACE = "asked"
PLAIN = "id BIGINT, name STRING, part BIGINT"
TYPED = (
    "id BIGINT, name STRING, part BIGINT, price DOUBLE, rough FLOAT, amount DECIMAL(12, 2), day DATE, seen TIMESTAMP, "
    "local TIMESTAMP_NTZ, good BOOLEAN, bytes BINARY, tags ARRAY<BIGINT>, place STRUCT<x: INT, y: STRING>, "
    "marks MAP<STRING, BIGINT>"
)
_ROWS = "SELECT id, concat('n', id), id % 2 FROM range({0}, {0} + 20)"
_TYPED_ROWS = """
SELECT id, if(id % 7 = 3, NULL, concat('n', id % 5)), id % 3,
  CASE WHEN id % 11 = 5 THEN double('NaN') WHEN id = 4 THEN double('Infinity')
    WHEN id % 7 = 3 THEN NULL ELSE id / 4 END,
  if(id = 6, float('NaN'), float(id / 2)), if(id % 7 = 3, NULL, cast((id - 20) / 8 AS DECIMAL(12, 2))),
  date_add(DATE '1969-12-20', int(id)), timestamp_micros(id * 3600000001 - 90000000000),
  cast(TIMESTAMP_NTZ '1582-10-01 00:00:00.000001' + make_interval(0, 0, 0, int(id), 1) AS TIMESTAMP_NTZ),
  if(id % 7 = 3, NULL, id % 2 = 0), if(id % 7 = 3, NULL, cast(concat('b', id) AS BINARY)),
  if(id % 7 = 3, NULL, array(id, NULL, 3)), if(id % 7 = 3, NULL, named_struct('x', int(id), 'y', CAST(NULL AS STRING))),
  if(id % 7 = 3, NULL, map('k', id))
FROM range(40)
"""
FIGURES = (
    "SELECT count(*) AS n, count(name) AS named, CAST(sum(id) AS BIGINT) AS total, min(id) AS low FROM {t}",
    "SELECT part, count(*) AS n, max(name) AS last FROM {t} GROUP BY part ORDER BY part NULLS FIRST",
    "SELECT count(*) AS n FROM {t} WHERE id > 3 AND id <> 21 AND (part = 1 OR part = 0)",
    "SELECT * FROM {t} ORDER BY id, name, part",
)
_OF_TYPES = (
    "SELECT min(price) AS low, max(price) AS high, count(price) AS n, max(rough) AS rough FROM {t}",
    "SELECT id FROM {t} WHERE price > 1e300 OR isnan(rough) ORDER BY id",
    "SELECT id FROM {t} WHERE price < 3 AND NOT good ORDER BY id",
    "SELECT CAST(sum(amount) AS DECIMAL(20, 2)) AS amount, min(amount) AS low FROM {t} WHERE amount < 1.25",
    "SELECT day, id FROM {t} WHERE day < DATE '1970-01-01' ORDER BY day",
    "SELECT min(seen) AS first, max(local) AS last FROM {t} WHERE local >= TIMESTAMP '1582-10-10 00:00:00'",
    "SELECT count(*) AS n FROM {t} WHERE seen < TIMESTAMP '1970-01-01 00:00:00'",
    "SELECT place.x AS x, count(*) AS n FROM {t} WHERE place.x > 30 GROUP BY place.x ORDER BY x",
    "SELECT count(*) AS n FROM {t} WHERE array_contains(tags, 12) OR name = 'n1' OR bytes IS NULL",
)


@dataclass(frozen=True)
class Kind:
    """A kind of table.

    Args:
        name: the table's, in the namespace.
        make: writes it.
        by_spark: Spark has to read it.
        figures: what is asked, with `{t}` for the table.
    """

    name: str
    make: Callable[[World, str], None]
    by_spark: bool = False
    figures: tuple[str, ...] = FIGURES


def _steps(*steps: str, columns: str = PLAIN, version: int = 2, partition: str = "") -> Callable[[World, str], None]:
    def make(world: World, table: str) -> None:
        world.sql(f"CREATE TABLE {table} ({columns}) USING iceberg {partition} {merge_on_read(version)}")
        for step in steps:
            world.sql(step.replace("{t}", table))

    return make


def _insert(start: int) -> str:
    return "INSERT INTO {t} " + _ROWS.replace("{0}", str(start))


def _formats(format: str) -> str:
    return f"ALTER TABLE {{t}} SET TBLPROPERTIES ('write.format.default'='{format}')"


def _upserted(world: World, table: str) -> None:
    _steps(_insert(0), _insert(20))(world, table)
    loaded = load_table(world.spark, table)
    deletes = equality_deletes(world.spark, loaded, ["id"], [{"id": 3}, {"id": 25}, {"id": 26}])
    rows = data_file(world.spark, loaded, [{"id": 3, "name": "upserted", "part": 1}])
    commit_rows(loaded, data=[rows], deletes=[deletes])
    # A column that is compared in the deletes, and that no query needs.
    by_name = equality_deletes(world.spark, loaded, ["name", "part"], [{"name": "n7", "part": 1}])
    commit_rows(loaded, deletes=[by_name])


def _of_java_alone(world: World, table: str) -> None:
    """UUIDs and bytes of a fixed length, which Spark reads and doesn't write."""
    jvm: Any = world.spark._jvm
    api = iceberg(world.spark)
    types = api.types.Types
    world.sql(f"CREATE TABLE {table} (id BIGINT, name STRING, part BIGINT) USING iceberg {merge_on_read(2)}")
    loaded = load_table(world.spark, table)
    change = loaded.updateSchema().addColumn("key", types.UUIDType.get())
    change.addColumn("code", types.FixedType.ofLength(3)).commit()
    loaded.refresh()
    factory = getattr(api.data, "GenericFileWriterFactory$Builder")(loaded)
    writer = factory.dataFileFormat(api.FileFormat.PARQUET).dataSchema(loaded.schema()).build()
    files = api.io.OutputFileFactory.builderFor(loaded, 1, 1).format(api.FileFormat.PARQUET).build()
    rows = writer.newDataWriter(files.newOutputFile(), loaded.spec(), None)
    for number in range(1, 4):
        record = a_record(world.spark, loaded.schema(), {"id": number})
        record.setField("key", jvm.java.util.UUID.fromString(f"00000000-0000-4000-8000-00000000000{number}"))
        record.setField("code", bytes([number, 0, 255]))
        rows.write(record)
    rows.close()
    commit_rows(loaded, data=[rows.toDataFile()])


_EVOLVED = _steps(
    _insert(0),
    "ALTER TABLE {t} ADD COLUMN extra INT",
    "ALTER TABLE {t} RENAME COLUMN name TO label",
    "ALTER TABLE {t} ADD COLUMN name STRING",
    "INSERT INTO {t} SELECT id, 'old', id % 2, id, concat('new', id) FROM range(20, 30)",
    "ALTER TABLE {t} ALTER COLUMN extra TYPE BIGINT",
    "ALTER TABLE {t} DROP COLUMN label",
    "INSERT INTO {t} SELECT id, id % 3, 5000000000 + id, NULL FROM range(30, 40)",
)
_PARTITIONED = _steps(
    _insert(0),
    "ALTER TABLE {t} ADD PARTITION FIELD bucket(3, id)",
    _insert(20),
    "ALTER TABLE {t} DROP PARTITION FIELD part",
    _insert(40),
    "DELETE FROM {t} WHERE id IN (1, 22, 43)",
    partition="PARTITIONED BY (part)",
)
KINDS = (
    Kind("plain", _steps(_insert(0), _insert(20))),
    Kind("positions", _steps(_insert(0), _insert(20), "DELETE FROM {t} WHERE id IN (2, 3, 21)")),
    Kind("vectors", _steps(_insert(0), _insert(20), "DELETE FROM {t} WHERE id IN (2, 3, 21)", version=3)),
    Kind("upserted", _upserted, by_spark=True),
    Kind("orc", _steps(_formats("orc"), _insert(0), "DELETE FROM {t} WHERE id = 5"), by_spark=True),
    Kind("mixed", _steps(_insert(0), _formats("avro"), _insert(20), "DELETE FROM {t} WHERE id = 5"), by_spark=True),
    Kind("evolved", _EVOLVED),
    Kind("partitioned", _PARTITIONED),
    Kind("typed", _steps("INSERT INTO {t} " + _TYPED_ROWS, columns=TYPED), figures=FIGURES + _OF_TYPES),
    Kind(
        "typed_avro",
        _steps(_formats("avro"), "INSERT INTO {t} " + _TYPED_ROWS, columns=TYPED),
        by_spark=True,
        figures=FIGURES + _OF_TYPES,
    ),
    Kind("empty", _steps()),
    # Its older snapshot is asked, too.
    Kind("emptied", _steps(_formats("orc"), _insert(0), "DELETE FROM {t} WHERE id < 20"), by_spark=True),
    Kind("of_java", _of_java_alone, by_spark=True),
)
