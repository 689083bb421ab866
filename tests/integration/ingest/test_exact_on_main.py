"""What came in is on `main` exactly, by the real worker: columns that Spark has no type for, and fields inside others.

What falls under it, and is tried here: tables with columns of type `time`, `fixed` and `uuid`, also inside of structs,
lists and maps, partitioned and sorted by them, audited, and made by a batch; each type at its edges, each way to nest
them, and lines for a table of all types; tables with a column that ingestion can't write, beside others that go on;
fields that a batch adds inside of structs, lists and maps.
PyIceberg and Spark say what is there.
"""

from __future__ import annotations

import datetime as dt
import uuid
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from pyiceberg.expressions import GreaterThan
from pyiceberg.table import StaticTable

from sterna.config.registry.policy import matching_pattern
from sterna.config.sections.ingest import IngestTable, TenantLimits
from sterna.errors import BadDrop
from sterna.pipelines.ingest.batch_publisher import BatchOutcome
from sterna.pipelines.ingest.columns import METADATA_COLUMNS, Column
from sterna.pipelines.ingest.fetch import dead_letters_uri
from sterna.pipelines.ingest.model import Format, State
from sterna.pipelines.ingest.validate import check
from sterna.pipelines.publish.spark import jvm
from tests.integration.ingest.test_worker import WorkerFixture, create, room
from tests.support.bodies import DEAD, JSON_COLUMNS, LEAVES, Body, files, lines, plain_rows, written
from tests.support.bodies import read as read_body
from tests.support.ingest import destination
from tests.support.world import pyiceberg_properties

__all__ = ["room"]
UUID = "01234567-89ab-cdef-0123-456789abcdef"


def declared(room: WorkerFixture, columns: tuple[Column, ...], table: str, **properties: str) -> None:
    room.step_context.catalog.create(
        room.key(table), columns, f"s3://eu-lake/tables/{room.namespace}/{table}", properties
    )


def send_table(room: WorkerFixture, rows: pa.Table, table: str, format: Format = Format.PARQUET) -> None:
    sink = pa.BufferOutputStream()
    if format is Format.PARQUET:
        pq.write_table(rows, sink)
    else:
        with pa.ipc.new_stream(sink, rows.schema) as writer:
            writer.write_table(rows)
    sent = room.door.sent(sink.getvalue().to_pybytes(), to=destination(room.key(table)))
    room.door.box.accept(replace(sent, format=format, rows=rows.num_rows))


def scanned(room: WorkerFixture, table: str) -> pa.Table:
    """The rows of a table on `main`, as PyIceberg reads them."""
    location = room.world.content(tuple(room.key(table).split("."))).metadata_location or ""
    endpoint = room.world.stage.endpoints["eu"]
    return StaticTable.from_metadata(location, pyiceberg_properties(endpoint)).scan().to_arrow()


def read(room: WorkerFixture, table: str) -> list[dict[str, Any]]:
    """The same in their order by `id`."""
    return sorted(scanned(room, table).to_pylist(), key=lambda row: int(row["id"]))


def ruled(room: WorkerFixture, rule: IngestTable) -> None:
    settings = room.step_context.settings.model_copy(update={"tables": [rule, *room.step_context.settings.tables]})
    room.step_context = replace(
        room.step_context, settings=settings, table=lambda key: settings.table_rule(key, matching_pattern)
    )


def partition_by(room: WorkerFixture, table: str, *terms: str) -> None:
    """Partition a table by Java's own interface: Spark's SQL can't name one that has a column of type `time`."""
    loaded = room.step_context.catalog.table(room.key(table)).load()
    update, expressions = (
        loaded.updateSpec(),
        jvm(room.step_context.catalog.spark).org.apache.iceberg.expressions.Expressions,
    )
    for term in terms:
        update = update.addField(expressions.bucket(term, 4)) if term == "key" else update.addField(term)
    update.commit()
    sort_by(room, loaded, "at")


def sort_by(room: WorkerFixture, loaded: Any, *names: str) -> None:
    """Sort a table that Java has loaded by columns."""
    iceberg = jvm(room.step_context.catalog.spark).org.apache.iceberg
    update = loaded.replaceSortOrder()
    for name in names:
        update = update.asc(iceberg.expressions.Expressions.ref(name), iceberg.NullOrder.NULLS_FIRST)
    update.commit()


INNER = {
    "type": "struct",
    "fields": [
        {"name": "at", "type": "time"},
        {"name": "ats", "type": {"type": "list", "element": "time"}},
        {"name": "by", "type": {"type": "map", "key": "string", "value": "time"}},
        {"name": "code", "type": "fixed[2]"},
    ],
}
COLUMNS = (
    Column("id", "long"),
    Column("at", "time"),
    Column("code", "fixed[2]"),
    Column("key", "uuid"),
    Column("more", INNER),
)
WHOLE = {
    "id": 1,
    "at": dt.time(23, 59, 59, 999_999),
    "code": b"\0\1",
    "key": uuid.UUID(UUID),
    "more": {"at": dt.time(0), "ats": [dt.time(1), None], "by": [("k", dt.time(2))], "code": b"ab"},
}


def send_times(room: WorkerFixture, table: str) -> None:
    more = {"at": "00:00:00", "ats": ["01:00:00", None], "by": {"k": "02:00"}, "code": "YWI="}
    room.send({"id": 1, "at": "23:59:59.999999", "code": "AAE=", "key": UUID, "more": more}, {"id": 2}, table=table)
    room.send({"id": 3, "at": "10:00:00.0000001"}, {"id": 4, "code": "AA=="}, {"id": 5, "at": "12:00"}, table=table)
    times = pa.table(
        {"id": [6, 7], "at": pa.array([1_000, 1], pa.time64("ns")), "code": pa.array([b"ab"] * 2, pa.binary(2))}
    )
    send_table(room, times, table)
    send_table(room, pa.table({"id": [8], "key": pa.array([uuid.UUID(UUID).bytes], pa.uuid())}), table, Format.ARROW)


def test_columns_of_time_fixed_and_uuid_are_on_main_as_they_came(room: WorkerFixture) -> None:
    rule = IngestTable.model_validate(
        {"match": ["**.timed", "**.parted"], "max_bad": 10, "audit": ["min(id) >= 0", "max(at) < 86400000000"]}
    )
    ruled(room, rule)
    for table in ("timed", "parted"):
        declared(room, COLUMNS, table, **({"write.format.default": "avro"} if table == "timed" else {}))
        send_times(room, table)
    partition_by(room, "parted", "at", "key")
    room.close()
    done = {outcome.table: outcome for outcome in room.work()}
    for table in ("timed", "parted"):
        assert (done[room.key(table)].state, done[room.key(table)].rows, done[room.key(table)].bad) == (
            State.PUBLISHED,
            5,
            3,
        )
        rows = read(room, table)
        assert [row["id"] for row in rows] == [1, 2, 5, 6, 8]
        assert rows[0] == WHOLE
        assert [row["at"] for row in rows[1:]] == [None, dt.time(12), dt.time(0, 0, 0, 1), None]
        assert (rows[3]["code"], rows[4]["key"]) == (b"ab", uuid.UUID(UUID))
        dead = pq.read_table(
            pa.BufferReader(
                room.step_context.objects.read(
                    dead_letters_uri(room.step_context.inbox, room.batch(done[room.key(table)].batch))
                )
            )
        )
        assert [(row["offset"], row["error"]) for row in dead.to_pylist()] == [
            (0, "column 'at': more than microseconds"),
            (1, "column 'code': 1 bytes, and the column takes 2"),
            (1, "column 'at': more than microseconds"),
        ]


@pytest.mark.parametrize(("length", "bounded"), [(5_000, {1, 2}), (1, {1, 2, 3})])
def test_readers_skip_no_row_of_a_file_that_gets_times(room: WorkerFixture, length: int, bounded: set[int]) -> None:
    """Spark writes it, its names spelled as Avro has them. Arrow writes it again: without bounds of a row group with a
    long value, and with bounds that leave NaN out."""
    columns = (Column("id", "long"), Column("at", "time"), Column("x.name", "string"), Column("x-d", "double"))
    declared(room, columns, "t", **{"write.parquet.row-group-size-bytes": "1"})
    loaded, ids = room.step_context.catalog.table(room.key()).load(), range(1_000)
    sort_by(room, loaded, "at", "x.name", "x-d")
    names = ["a" if number < 500 else "z" * length + str(number) for number in ids]
    values = [float("nan") if number % 7 == 3 else 1.0 for number in ids]
    times = pa.array([dt.time(1) if number < 500 else dt.time(2) for number in ids], pa.time64("us"))
    send_table(room, pa.table({"id": ids, "at": times, "x.name": names, "x-d": values}), "t")
    room.close()
    assert [outcome.state for outcome in room.work()] == [State.PUBLISHED]
    location = room.world.content(tuple(room.key().split("."))).metadata_location or ""
    table = StaticTable.from_metadata(location, pyiceberg_properties(room.world.stage.endpoints["eu"]))
    (task,) = table.scan(row_filter=GreaterThan("x.name", "b")).plan_files()
    metadata = pq.read_metadata(pa.BufferReader(room.context.objects.read(task.file.file_path)))
    assert metadata.num_row_groups > 1 and metadata.created_by.startswith("parquet-cpp-arrow")
    assert set(task.file.lower_bounds) == set(task.file.upper_bounds) == bounded


def test_a_column_that_ingestion_lacks_costs_its_own_batches_alone(room: WorkerFixture) -> None:
    declared(room, (Column("id", "long"), Column("at", "timestamp_ns")), "nanos", **{"format-version": "3"})
    create(room, "id BIGINT")
    declared(room, COLUMNS, "by_fixed")
    partition_by(room, "by_fixed", "code")
    room.send({"id": 1}, table="nanos")
    room.send({"id": 1, "code": "AAE="}, table="by_fixed")
    room.send({"id": 1})
    room.close()
    done = {outcome.table: outcome for outcome in room.work()}
    assert done[room.key("nanos")].state is State.REJECTED
    assert "column 'at': columns of type timestamp_ns can't be written" in done[room.key("nanos")].reason
    # Iceberg's own writer makes a manifest of it that neither PyIceberg nor fastavro reads.
    assert done[room.key("by_fixed")].state is State.REJECTED
    assert "partitioned by 'code', of type fixed[2]" in done[room.key("by_fixed")].reason
    assert room.rows("id") == [(1,)]


def struct_of(**fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": [{"name": name, "type": type} for name, type in fields.items()]}


GROWING = (
    Column("place", struct_of(city="string", at=struct_of(x="int"))),
    Column("items", {"type": "list", "element": struct_of(a="int")}),
    Column("by", {"type": "map", "key": "string", "value": struct_of(v="float")}),
)


def test_no_drop_adds_a_column_that_iceberg_has_of_each_table(room: WorkerFixture) -> None:
    """Spark would read none of the table's columns any more."""
    of_java = jvm(room.step_context.catalog.spark).org.apache.iceberg.MetadataColumns
    of_changes = {of_java.CHANGE_TYPE.name(), of_java.CHANGE_ORDINAL.name(), of_java.COMMIT_SNAPSHOT_ID.name()}
    assert of_changes < METADATA_COLUMNS
    assert all(of_java.isMetadataColumn(name) for name in METADATA_COLUMNS - of_changes)
    create(room, "id BIGINT")
    ruled(room, IngestTable.model_validate({"match": "**.t", "evolve": "add"}))
    room.send({"id": 1}, {"id": 2, "_file": "a"}, {"id": 3, "_Deleted": True}, {"id": 4, "files": 1, "_": {"_pos": 2}})
    room.close()
    (done,) = room.work()
    assert dead_of(room, done) == [1, 2]
    assert room.rows("id, files, _._pos") == [(1, None, None), (4, 1, 2)]


def test_a_field_inside_is_added_and_widened_on_main(room: WorkerFixture) -> None:
    declared(room, (Column("id", "long"), *GROWING), "t")
    room.send({"id": 1, "place": {"city": "a", "at": {"x": 1}}, "items": [{"a": 1}], "by": {"k": {"v": 0.5}}})
    room.send({"id": 2, "place": {"zip": "b", "at": {"y": [1]}}, "items": [{"b": True}], "by": {"k": {"u": "c"}}})
    room.close()
    assert [(outcome.state, outcome.rows) for outcome in room.work()] == [(State.PUBLISHED, 2)]
    x = pa.struct([("y", pa.list_(pa.int64())), ("x", pa.int64())])
    place = pa.array([{"at": {"x": 2**40}, "zip": "d"}], pa.struct([("at", x), ("zip", pa.string())]))
    send_table(room, pa.table({"id": [3], "place": place}), "t")
    room.close()
    assert [(outcome.state, outcome.rows) for outcome in room.work()] == [(State.PUBLISHED, 1)]
    # By Spark: PyIceberg shows a list that isn't there as an empty one, where a field was added inside of it.
    wanted = [
        (1, ("a", (1, None), None), [(1, None)], {"k": (0.5, None)}),
        (2, (None, (None, [1]), "b"), [(None, True)], {"k": (None, "c")}),
        (3, (None, (2**40, None), "d"), None, None),
    ]
    assert room.rows("id, place, items, by") == wanted
    assert [(row["id"], row["place"]["at"]["x"]) for row in read(room, "t")] == [(1, 1), (2, None), (3, 2**40)]


def decisive() -> dict[str, Body]:
    """A body with each type at its edges, one with each way to nest them, and lines for a table of all types."""
    kinds = {str(kind): kind for kind, _ in LEAVES if not str(kind).endswith("_view")}
    inexact = {name for name in kinds if "[ns" in name or name == "uint64"}
    flat = edges_of([kind for name, kind in kinds.items() if name not in inexact])
    fine = edges_of([kind for name, kind in kinds.items() if name in inexact])
    nanos, big, clocks = pa.timestamp("ns"), pa.uint64(), pa.list_(pa.time64("ns"))
    inner = pa.struct([("x", nanos)])
    nested = pa.table(
        {
            "id": list(range(4)),
            "l": pa.array([[1_000, None], [1], [], None], pa.large_list(nanos)),
            "fixed": pa.array([[1, 2], [3, 4], None, [None, 2**63]], pa.list_(big, 2)),
            "m": pa.array([[("a", {"x": 1_000})], None, [("b", None)], []], pa.map_(pa.string(), inner)),
            "s": pa.array([{"t": [1_000]}, {"t": None}, None, {"t": []}], pa.struct([("t", clocks)])),
            "d": pa.array(["a", "b", "a", None]).dictionary_encode(),
        }
    )  # fmt: skip
    texts, data = pa.array(["a", None], pa.string_view()), pa.array([b"x", b""], pa.binary_view())
    views = pa.table({"id": [0, 1], "v": texts, "b": data})
    sent = {
        "flat": (flat, "parquet"),
        "stream": (flat, "arrow"),
        "fine": (fine, "parquet"),
        "nested": (nested, "parquet"),
        "views": (views, "parquet"),
    }
    bodies = {name: Body(format, written(table, format), []) for name, (table, format) in sent.items()}
    for body in bodies.values():
        body.rows = plain_rows(read_body(body.content, body.format))
    dead = {name: [place for place, row in enumerate(body.rows) if row is DEAD] for name, body in bodies.items()}
    assert dead == {"flat": [], "stream": [], "fine": [1, 2, 3, 4, 5], "nested": [1, 3], "views": []}
    return bodies


def edges_of(kinds: list[pa.DataType]) -> pa.Table:
    values = [at_edges(kind) for kind in kinds]
    count = max(map(len, values))
    arrays = [pa.array([*some, *[None] * (count - len(some))], kind) for kind, some in zip(kinds, values, strict=True)]
    return pa.table({"id": list(range(count)), **{f"c{place}": array for place, array in enumerate(arrays)}})


def at_edges(kind: pa.DataType) -> list[Any]:
    if pa.types.is_integer(kind) or pa.types.is_timestamp(kind):
        bits, signed = kind.bit_width, not str(kind).startswith("uint")
        most = ((1 << (bits - signed)) - 1) // (1_000 if "[ms" in str(kind) else 1)
        return [0, 1, 1_000, most, -1, -most] if signed and bits > 8 else [0, 1, most]
    if pa.types.is_time(kind):
        return [0, 1, 1_000, {"s": 86_399, "ms": 86_399_999, "us": 86_399_999_999, "ns": 86_399_999_999_999}[kind.unit]]
    if pa.types.is_floating(kind):
        return [0.0, -0.0, 1.5, float("inf"), float("-inf")]
    if pa.types.is_decimal(kind):
        return [Decimal(0), Decimal(-1), Decimal(1234)]
    return [True, False] if pa.types.is_boolean(kind) else _few(kind)


def _few(kind: pa.DataType) -> list[Any]:
    if pa.types.is_date(kind):
        return [0, -719_162, 2_932_896]
    if isinstance(kind, pa.BaseExtensionType):
        return [bytes(16), bytes(range(16))]
    if pa.types.is_fixed_size_binary(kind):
        return [b"abc", bytes(3)]
    return ["", "\u00e9\U0001f600", "\0"] if "string" in str(kind) else [b"", bytes(range(8))]


LINES = b"""{"id": 0, "d": 9007199254740993}
{"id": 1, "d": 0.1, "n": "7.25", "day": "2026-11-23", "at": "2026-11-23T10:00:00.000001000", "clock": "10:00:00"}
{"id": 2, "n": " 7 "}
{"id": 3, "day": "2026-W48-4"}
{"id": 4, "at": "2026-11-23T10:00:00.0000001"}
{"id": 5, "zoned": "2026-11-23T10:00:00+01:00", "m": {"7": 1}, "deep": {"days": ["2026-11-23", null]}, "fx": "AAE="}
{"id": 6, "deep": {"days": ["20261123"]}}
{"id": 7, "l": 9223372036854775807, "u": "01234567-89AB-cdef-0123-456789abcdef", "x": "AAE="}
"""


def test_each_row_that_is_taken_is_on_main_or_dead_by_its_line(room: WorkerFixture) -> None:
    ruled(room, IngestTable.model_validate({"match": "**.any*", "create": "auto", "max_bad": 1_000}))
    bodies = decisive()
    for name, body in bodies.items():
        send_body(room, body, f"any_{name}")
    columns = tuple(Column(name, type) for name, type in {"id": "long", **JSON_COLUMNS}.items())
    declared(room, columns, "any_lines")
    room.send(content=LINES, table="any_lines")
    create(room, "id BIGINT", table="others")
    room.send({"id": 1}, table="others")
    room.close()
    done = {outcome.table: outcome for outcome in room.work()}
    assert {outcome.state for outcome in done.values()} == {State.PUBLISHED}
    assert set(done) == {room.key(table) for table in (*(f"any_{name}" for name in (*bodies, "lines")), "others")}
    for name, body in bodies.items():
        became(room, body, f"any_{name}", done)
    assert dead_of(room, done[room.key("any_lines")]) == [0, 2, 3, 4, 6]
    assert read(room, "any_lines")[0]["n"] == Decimal("7.250")
    assert [row["id"] for row in read(room, "any_lines")] == [1, 5, 7]


def send_body(room: WorkerFixture, body: Body, table: str) -> None:
    formats = {"json": Format.JSON_LINES, "arrow": Format.ARROW, "parquet": Format.PARQUET}
    sent = room.door.sent(body.content, to=destination(room.key(table)))
    taken = check(formats[body.format], sent.path, TenantLimits(ratio=100_000))
    room.door.box.accept(replace(sent, format=formats[body.format], rows=taken))


def became(room: WorkerFixture, body: Body, table: str, done: dict[str, BatchOutcome]) -> None:
    """See that a body became what is to become of it."""
    dead = [place for place, row in enumerate(body.rows) if row is DEAD]
    if len(dead) == len(body.rows) and done[room.key(table)].state is State.REJECTED:
        return  # no table is made of no row
    assert dead_of(room, done[room.key(table)]) == dead
    rows = sorted(plain_rows(scanned(room, table)), key=lambda row: int(row["id"]))
    assert rows == [row for row in body.rows if row is not DEAD]


def dead_of(room: WorkerFixture, done: BatchOutcome) -> list[int]:
    uri = dead_letters_uri(room.step_context.inbox, room.batch(done.batch))
    if room.step_context.objects.size(uri) is None:
        return []
    return [row["offset"] for row in pq.read_table(pa.BufferReader(room.step_context.objects.read(uri))).to_pylist()]


@pytest.mark.rare
@settings(max_examples=15, suppress_health_check=list(HealthCheck))
@given(files() | lines())
def test_any_body_is_on_main_or_dead_by_its_line(room: WorkerFixture, body: Body) -> None:
    ruled(room, IngestTable.model_validate({"match": "**.any*", "create": "auto", "max_bad": 1_000}))
    table = f"any_{uuid.uuid4().hex}"
    if body.columns:
        declared(room, tuple(Column(name, type) for name, type in body.columns.items()), table)
    try:
        send_body(room, body, table)
    except BadDrop:
        assert body.refused or body.overlapping
        return
    room.close()
    became(room, body, table, {outcome.table: outcome for outcome in room.work()})
