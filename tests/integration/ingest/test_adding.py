"""Files that lie in some region become a table's where they are: real stores, a real catalog, Spark."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sterna.config.mapping import Mapping
from sterna.config.registry.policy import Residency
from sterna.errors import (
    BadDrop,
    BatchRejected,
    NotResident,
    ObjectMissing,
    SternaError,
    UnregisteredUri,
    UnsafeUri,
    Unsupported,
    UsageError,
)
from sterna.pipelines.ingest import add_files
from sterna.pipelines.ingest.add_files import FileAddition, FileAdditionOutcome
from sterna.pipelines.ingest.regional_writer import RegionalIcebergCatalog
from sterna.pipelines.publish.spark import SparkTable
from sterna.replication.replica.region import RegionContext
from tests.support.world import World


@dataclass
class TableFixture:
    """Tables that are born in us, and files in both regions."""

    world: World
    context: RegionContext
    catalog: RegionalIcebergCatalog
    namespace: str
    mapping: Mapping | None = None

    def name(self, table: str = "t") -> str:
        return f"main_us.{self.namespace}.{table}"

    def create(self, columns: str, more: str = "", table: str = "t") -> None:
        self.world.sql(f"CREATE TABLE {self.name(table)} ({columns}) USING iceberg {more}")

    def put(self, rows: pa.Table, bucket: str = "eu-lake", content: bytes | None = None, **options: Any) -> str:
        sink = pa.BufferOutputStream()
        pq.write_table(rows, sink, **options)
        uri = f"s3://{bucket}/landing/{self.namespace}/{uuid.uuid4().hex}.parquet"
        self.context.objects.write_new(uri, content if content is not None else sink.getvalue().to_pybytes())
        return uri

    def add(self, *uris: str, table: str = "t", act: bool = True, rules: Sequence[str] = ()) -> FileAdditionOutcome:
        target = self.catalog.table(f"{self.namespace}.{table}")
        files = FileAddition(
            self.mapping or self.context.mapping, self.context.objects, target, uris, rules, ["s3://eu-lake/inbox"]
        )
        return files.run(apply=act)

    def rows(self, what: str = "*", where: str = "true", table: str = "t") -> list[tuple[Any, ...]]:
        return self.world.sql(f"SELECT {what} FROM {self.name(table)} WHERE {where} ORDER BY 1")


@pytest.fixture
def yard(world: World) -> Iterator[TableFixture]:
    namespace = f"adding_{uuid.uuid4().hex[:8]}"
    spark = world.spark.newSession()
    with world.namespace(namespace), world.context("eu") as context:
        yield TableFixture(world, context, RegionalIcebergCatalog(spark, context), namespace)


def ids(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64())})


def test_files_of_both_regions_are_added_once_and_read(yard: TableFixture) -> None:
    yard.create("id BIGINT NOT NULL, name STRING, tags ARRAY<STRING>")
    first = yard.put(pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["a", "b"], "tags": [["x"], []]}))
    second = yard.put(pa.table({"name": ["c"], "id": pa.array([3], pa.int32())}), "us-lake")
    preview = yard.add(first, second, act=False)
    assert (preview.done, preview.rows, len(preview.files)) == (False, 3, 2)
    assert yard.rows() == []
    done = yard.add(first, second)
    assert done.done and done.snapshot is not None and done.rows == 3
    # By name, since the files have no field ids; and each where it lies.
    assert yard.rows("id, name, tags") == [(1, "a", ["x"]), (2, "b", []), (3, "c", None)]
    assert sorted(row[0] for row in yard.world.sql(f"SELECT file_path FROM {yard.name()}.files")) == sorted(
        [first, second]
    )
    again = yard.add(second.replace("s3://", "s3a://"), first)
    assert (again.known, again.done, again.commit) == (2, True, "")
    third = yard.put(pa.table({"id": pa.array([4], pa.int64())}))
    with pytest.raises(BadDrop, match="1 of the 2 files are the table's already"):
        yard.add(first, third)
    assert yard.add(third).rows == 1
    assert yard.rows("count(*)") == [(4,)]
    # Sizes and statistics are the files' own: a filter that leaves files out finds what is there.
    assert yard.rows("name", "id = 3") == [("c",)]
    # Taken away by its owner, and added again: that isn't the same thing as said twice.
    yard.world.sql(f"DELETE FROM {yard.name()} WHERE id = 4")
    assert yard.add(third).rows == 1


METRICS = "write.metadata.metrics"
EXPLICIT = {f"{METRICS}.column.{name}": "full" for name in ("name", "d", "nested.name", "nested.d", "x.name", 'x"d')}
TABLE_METRICS = [
    pytest.param("", 0, "", {}, id="default"),
    pytest.param("name, d", 0, "", {}, id="sorted"),
    pytest.param("name, d, nested.name, nested.d", 0, "", {f"{METRICS}.default": "none"}, id="sorted, none"),
    pytest.param("name, d", 0, "PARTITIONED BY (part)", {f"{METRICS}.default": "counts"} | EXPLICIT, id="explicit"),
    pytest.param("name, d", 120, "PARTITIONED BY (part)", {}, id="wide"),
    pytest.param("", 0, "", {f"{METRICS}.default": "full"}, id="full", marks=pytest.mark.rare),
    pytest.param("name", 0, "", {f"{METRICS}.max-inferred-column-defaults": "1"}, id="first", marks=pytest.mark.rare),
]


@pytest.mark.parametrize(("order", "columns", "partitions", "properties"), TABLE_METRICS)
def test_readers_skip_no_row_for_what_a_footer_does_not_tell(
    yard: TableFixture, order: str, columns: int, partitions: str, properties: dict[str, str]
) -> None:
    """Arrow's footers have no bounds of a row group with a long value, and don't count NaN, however a table measures
    its columns: by default it has bounds of those that it sorts by, and of its first hundred."""
    more = "".join(f", c{number} INT" for number in range(columns))
    nested = "nested STRUCT<name: STRING, d: DOUBLE>"
    yard.create(
        f'id BIGINT, part INT{more}, d DOUBLE, name STRING, {nested}, `x.name` STRING, `x"d` DOUBLE', partitions
    )
    pairs = ", ".join(f"'{name}'='{value}'" for name, value in {**properties, "a": "b"}.items())
    yard.world.sql(f"ALTER TABLE {yard.name()} SET TBLPROPERTIES ({pairs})")
    if order:
        yard.world.sql(f"ALTER TABLE {yard.name()} WRITE ORDERED BY {order}")
    long = "z" * 5000
    names, values = ["a"] * 100 + [long] * 100, [float("nan") if n % 7 == 3 else 1.0 for n in range(200)]
    table = pa.table(
        {"id": pa.array(range(200), pa.int64()), "part": pa.array([7] * 200, pa.int32())}
        | {"d": values, "name": names, "x.name": names, 'x"d': values}
        | {"nested": [{"name": name, "d": d} for name, d in zip(names, values, strict=True)]}
    )
    yard.add(yard.put(table, row_group_size=100))
    nan = [(number,) for number in range(200) if number % 7 == 3]
    for name in ("name", "nested.name", "`x.name`"):
        assert yard.rows("count(*)", f"{name} = '{long}'") == [(100,)], name
    for name in ("d", "nested.d", '`x"d`'):
        assert yard.rows("id", f"{name} = double('NaN')") == nan, name
    # A filter that all bounds match drops a file without reading it.
    for where, left in (("d < 5", nan), ("nested.name < 'b'", [row for row in nan if row[0] >= 100])):
        yard.world.sql(f"DELETE FROM {yard.name()} WHERE {where}")
        assert yard.rows("id") == left, where


def test_a_column_whose_footer_tells_of_all_rows_keeps_its_bounds(yard: TableFixture) -> None:
    yard.create("id BIGINT, name STRING, `x.name` STRING, more STRUCT<name: STRING, other: STRING>")
    names, others = ["a", "z" * 5000], ["b", "c"]
    more = [{"name": name, "other": other} for name, other in zip(names, others, strict=True)]
    columns = {"id": pa.array([1, 2], pa.int64()), "name": others, "x.name": names, "more": more}
    yard.add(yard.put(pa.table(columns), row_group_size=1))
    (row,) = yard.world.sql(f"SELECT map_keys(lower_bounds), map_keys(upper_bounds) FROM {yard.name()}.files")
    schema = yard.catalog.table(f"{yard.namespace}.t").refresh().base.metadata.schema()
    kept = sorted(schema.findField(name).fieldId() for name in ("id", "name", "more.other"))
    assert [sorted(ids) for ids in row] == [kept, kept]


@pytest.mark.parametrize("dictionary", [True, False])
def test_narrower_values_are_read_as_the_wider_columns_have_them(yard: TableFixture, dictionary: bool) -> None:
    yard.create("id BIGINT, f DOUBLE, d DECIMAL(22, 2)")
    rows = [(-(2**31) + n, 0.25 * (n % 3), Decimal(n % 5) / 4) for n in range(6_000)]
    kinds = {"id": pa.int32(), "f": pa.float32(), "d": pa.decimal128(5, 2)}
    columns = zip(kinds.items(), zip(*rows, strict=True), strict=True)
    sink = pa.BufferOutputStream()
    table = pa.table({name: pa.array(values, kind) for (name, kind), values in columns})
    pq.write_table(table, sink, use_dictionary=dictionary, store_decimal_as_integer=True)
    assert yard.add(yard.put(table, content=sink.getvalue().to_pybytes())).rows == 6_000
    yard.world.sql(f"INSERT INTO {yard.name()} VALUES (5000000000, 0.1D, 12345678901234567890.25)")
    assert yard.rows() == [*rows, (5_000_000_000, 0.1, Decimal("12345678901234567890.25"))]


NOON = dt.datetime(2026, 3, 4, 12, 30, tzinfo=dt.UTC)
OLD = dt.datetime(1969, 12, 31, 23, 30, tzinfo=dt.UTC)
SPECS: list[tuple[str, str, pa.Array, str]] = [
    ("part", "part STRING", pa.array(["a'b", "a'b"]), "part = 'a\\'b'"),
    ("part", "part BIGINT", pa.array([7, 7], pa.int64()), "part = 7"),
    ("part", "part DECIMAL(38, 2)", pa.array([Decimal("-1.20")] * 2, pa.decimal128(38, 2)), "part = -1.20"),
    ("part", "part DATE", pa.array([NOON.date()] * 2), "part = DATE'2026-03-04'"),
    ("part", "part BOOLEAN", pa.array([True, True]), "part"),
    ("part", "part STRING", pa.array([None, None], pa.string()), "part IS NULL"),
    ("bucket(16, part)", "part BIGINT", pa.array([34, 34], pa.int64()), "part = 34"),
    ("bucket(16, part)", "part STRING", pa.array(["iceberg"] * 2), "part = 'iceberg'"),
    ("bucket(5, part)", "part DECIMAL(9, 2)", pa.array([Decimal("14.20")] * 2, pa.decimal128(9, 2)), "part = 14.20"),
    ("bucket(5, part)", "part TIMESTAMP", pa.array([NOON] * 2, pa.timestamp("us", "UTC")), "part IS NOT NULL"),
    ("truncate(2, part)", "part STRING", pa.array(["añb", "añc"]), "part >= 'añb'"),
    ("truncate(10, part)", "part INT", pa.array([-5, -1], pa.int32()), "part < 0"),
    ("years(part)", "part DATE", pa.array([NOON.date()] * 2), "part > DATE'2026-01-01'"),
    ("months(part)", "part TIMESTAMP", pa.array([OLD] * 2, pa.timestamp("us", "UTC")), "part < TIMESTAMP'1970-01-01'"),
    ("days(part)", "part TIMESTAMP", pa.array([NOON] * 2, pa.timestamp("us", "Asia/Tokyo")), "part IS NOT NULL"),
    ("hours(part)", "part TIMESTAMP", pa.array([OLD] * 2, pa.timestamp("us", "UTC")), "part IS NOT NULL"),
]
_EVERY_RUN = (
    ("part", "part STRING"),
    ("part", "part DECIMAL(38, 2)"),
    ("bucket(5, part)", "part DECIMAL(9, 2)"),
    ("truncate(2, part)", "part STRING"),
    ("years(part)", "part DATE"),
    ("days(part)", "part TIMESTAMP"),
    ("hours(part)", "part TIMESTAMP"),
)
"""Each transform in a type whose bytes differ most between writers; `months` is counted as `hours` is."""


@pytest.mark.parametrize(
    "specs",
    [
        pytest.param([spec for spec in SPECS if spec[:2] in _EVERY_RUN], id="decisive"),
        pytest.param([spec for spec in SPECS if spec[:2] not in _EVERY_RUN], id="others", marks=pytest.mark.rare),
    ],
)
def test_every_kind_of_partition_is_that_which_spark_writes(
    yard: TableFixture, specs: list[tuple[str, str, pa.Array, str]]
) -> None:
    for number, (spec, column, values, where) in enumerate(specs):
        table = f"t{number}"
        yard.create(f"id BIGINT, {column}", f"PARTITIONED BY ({spec})", table)
        rows = pa.table({"id": pa.array([1, 2], pa.int64()), "part": values})
        uri = yard.put(rows)
        assert yard.add(uri, table=table).rows == 2, spec
        # Spark writes the same rows: its partition has to be the very same one.
        yard.world.sql(f"INSERT INTO {yard.name(table)} SELECT * FROM {yard.name(table)}")
        partitions = yard.world.sql(f"SELECT file_count, record_count FROM {yard.name(table)}.partitions")
        assert partitions == [(2, 4)], (spec, column)
        assert yard.rows("count(*)", where, table) == [(4,)], (spec, column)


def refusals(yard: TableFixture) -> Iterator[tuple[str, type[SternaError], str]]:
    good = ids(1)
    yield (
        yard.put(pa.table({"id": pa.array([1, 2], pa.int64()), "part": ["a", "b"]})),
        Unsupported,
        "several partitions",
    )
    yield (
        yard.put(pa.table({"id": pa.array([1, 2], pa.int64()), "part": ["a", None]})),
        Unsupported,
        "several partitions",
    )
    yield yard.put(pa.table({"id": ["1"]})), BadDrop, "can't be read in place as long"
    yield yard.put(pa.table({"id": pa.array([None], pa.int64())})), BadDrop, "without a value"
    yield yard.put(pa.table({"part": ["a"]})), BadDrop, "'id' is required"
    hollow = pa.array([{"x": None}], pa.struct([("x", pa.int64())]))
    yield yard.put(pa.table({"id": [1], "place": hollow})), BadDrop, "'place.x' is required, and has rows without"
    yield yard.put(pa.table({"id": [1], "more": [1]})), BadDrop, "no column 'more'"
    yield yard.put(pa.table({"id": [1], "at": pa.array([NOON], pa.timestamp("ns", "UTC"))})), BadDrop, "can't be read"
    field = pa.field("id", pa.int64(), metadata={"PARQUET:field_id": "7"})
    yield yard.put(pa.table([pa.array([1])], pa.schema([field]))), BadDrop, "has field id 7"
    yield yard.put(good.slice(0, 0)), BadDrop, "no rows"
    yield yard.put(good, content=b"PAR1" + b"\0" * 100), BadDrop, "cut"
    yield yard.put(good, content=b"id\n1\n" * 9), BadDrop, "no Parquet file"
    yield "s3://eu-lake/landing/none.parquet", ObjectMissing, "no such object"
    yield "s3://elsewhere/a.parquet", UnregisteredUri, "no location"
    yield "s3://eu-lake/inbox/acme/a.parquet", UnsafeUri, "files there are deleted"
    root = yard.context.region.replica_root
    yield f"{root}/a.parquet", UnsafeUri, "files there are deleted"


def test_what_is_refused_is_named_and_nothing_changes(yard: TableFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    columns = "id BIGINT NOT NULL, part STRING, at TIMESTAMP, place STRUCT<x: BIGINT NOT NULL>"
    yard.create(columns, "PARTITIONED BY (part)")
    good = yard.put(pa.table({"id": pa.array([1], pa.int64()), "part": ["a"]}))
    for uri, kind, text in refusals(yard):
        with pytest.raises(kind, match=text) as raised:
            yard.add(good, uri)
        assert raised.value.file == uri
    with pytest.raises(UsageError, match="named twice"):
        yard.add(good, good.replace("s3://", "s3a://"))
    with pytest.raises(BatchRejected, match="min"):
        yard.add(good, rules=["min(id) > 1"])
    assert yard.rows() == []
    # Meanwhile the table became another one, or somebody else has added the file.
    real = SparkTable.stage_files

    def moved(self: SparkTable, *args: Any) -> None:
        monkeypatch.setattr(SparkTable, "stage_files", real)
        real(self, *args)
        yard.world.sql(f"INSERT INTO {yard.name()} VALUES (5, 'z', NULL, NULL)")

    monkeypatch.setattr(SparkTable, "stage_files", moved)
    assert yard.add(yard.put(pa.table({"id": pa.array([1], pa.int64()), "part": ["b"]}))).done
    assert yard.rows("id") == [(1,), (5,)]
    other = yard.put(pa.table({"id": pa.array([9], pa.int64()), "part": ["a"]}))

    def overtaken(*args: Any) -> Any:
        monkeypatch.undo()
        yard.add(other)
        return data_files(*args)

    data_files = add_files.build_data_files
    monkeypatch.setattr(add_files, "build_data_files", overtaken)
    assert yard.add(other).done  # as somebody else's, once
    assert yard.rows("id") == [(1,), (5,), (9,)]


def test_a_file_of_a_region_that_may_not_have_the_table(yard: TableFixture) -> None:
    yard.create("id BIGINT")
    uri = yard.put(ids(1))
    registry = yard.context.registry.model_copy(
        update={"residency": [Residency(tables=[f"{yard.namespace}.*"], never=["eu"])]}
    )
    yard.mapping = Mapping(registry, "eu")
    with pytest.raises(NotResident):
        yard.add(uri)


class Strike(BaseException):
    """The process dies here."""


@pytest.mark.parametrize("where", ["stage_files", "commit"])
def test_one_that_dies_says_it_again(yard: TableFixture, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    yard.create("id BIGINT")
    uri, real = yard.put(ids(1, 2)), getattr(SparkTable, where)

    def dying(*args: Any) -> None:
        real(*args)
        raise Strike

    monkeypatch.setattr(SparkTable, where, dying)
    with pytest.raises(Strike):
        yard.add(uri)
    monkeypatch.undo()
    assert yard.add(uri).done
    assert yard.rows("id") == [(1,), (2,)]
