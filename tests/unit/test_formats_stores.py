"""Lists of files, signs of the large lane, and what brokers and the store of features hold, as of November 2026.

The bytes stand in `tests/data/written-2026-11/beside`. Others read them: a later stage or version, a clean-up
days after, a consumer of events. Of Parquet the table counts, columns in their order and with their types: its bytes
are the library's. Other things of the kind: an event of a commit without news, which a feed may tell again for months,
and values and columns in Valkey, which are read as "nothing there" if their form differs.
"""

from __future__ import annotations

import io
import json
import re
import tarfile
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sterna
from sterna.brokers.kafka import build_record
from sterna.brokers.message import Message
from sterna.catalog.model import Commit, Content, Delete, Put
from sterna.config.registry import run_names
from sterna.config.registry.folders import TRANSIT, state_folder
from sterna.config.registry.run_names import COPY_LIST_PREFIX
from sterna.maintenance.deletion.file_lists import Files
from sterna.maintenance.deletion.file_lists import to_table as listing
from sterna.maintenance.deletion.passes import read_passes, save_pass
from sterna.notifications.change_log.event import CommitDetails, build_events
from sterna.pipelines.cdc.change_buffer import own_fields
from sterna.pipelines.cdc.postgres import slot_name, slot_name_pattern
from sterna.pipelines.features import scripts
from sterna.pipelines.features.codec import row_bytes
from sterna.pipelines.features.model import (
    FIELDS,
    GONE,
    ROW,
    Column,
    Value,
    encode_columns,
    read_state,
    read_value,
    value_head,
)
from sterna.pipelines.ingest.read_rows import dead_schema
from sterna.postgres.term import REPLICATION_NAME, TERM_TABLE
from sterna.replication.replica.bulk_state import Heartbeat, begin_bulk_run, read_bulk_state
from sterna.replication.replica.change_record import TableHeld
from sterna.replication.replica.file_list import LOCALIZE_ORDER, concat_files, filter_roles, rows
from sterna.replication.replica.head import PLANNED_HASH, RUN_ID, SOURCE_HASH
from sterna.replication.replica.run_folder import encode_part, load_files, run_uri, save_plan
from tests.support.records import VALUES
from tests.support.small_world import make_world
from tests.unit.test_formats_beside import modules_with, with_current_drops

_BESIDE = Path(__file__).parents[1] / "data" / "written-2026-11" / "beside"
_BIG = 2**62


def bytes_of(name: str) -> bytes:
    return (_BESIDE / name).read_bytes()


def same_table(one: pa.Table, other: pa.Table) -> bool:
    """Types, names, order and nullability of columns, and all rows."""
    return bool(one.schema.equals(other.schema) and one.equals(other))


def _files() -> pa.Table:
    """The rows of `files.parquet`: two files of a batch, and one file of each role that is localized."""
    copied = rows("nyc.a", "content", [("s3://us/1", "s3://eu/1", 10), ("s3://us/2", "s3://eu/2", -1)], 3)
    roles = ["position-delete", "delete-manifest", "manifest", "inline-manifest", "manifest-list", "metadata"]
    localized = [
        rows("nyc.é", role, [(f"s3://us/{role}", f"s3://eu/{role}", 5)], -2 if role == "manifest" else -1)
        for role in (*roles, "view-metadata")
    ]
    return concat_files([copied, *localized])


def test_lists_of_files_have_the_columns_of_november_2026(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    written = pq.read_table(io.BytesIO(bytes_of("files.parquet")))
    assert same_table(_files(), written)
    run = save_plan(context, VALUES["plan"], _files())
    stored = {
        name: pq.read_table(io.BytesIO(context.objects.read(f"{run}/{name}")))
        for name in ("localize.parquet", f"{COPY_LIST_PREFIX}3.parquet")
    }
    assert same_table(stored["localize.parquet"].combine_chunks(), written.slice(2))
    assert same_table(stored[f"{COPY_LIST_PREFIX}3.parquet"].combine_chunks(), written.slice(0, 2))
    assert same_table(pq.read_table(io.BytesIO(encode_part("files/", _files())[1])), written)


def test_lists_of_files_are_read_as_they_were_written(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    run = run_uri(context, "20261101T020304Z-00000000")
    context.objects.write_new(f"{run}/localize.parquet", bytes_of("files.parquet"))
    read = load_files(context, run)
    assert same_table(read, _files())
    assert same_table(filter_roles(read, *LOCALIZE_ORDER).combine_chunks(), _files().slice(2))


def test_a_pass_has_the_columns_of_november_2026_and_is_read_again(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    folder = f"{context.region.replica_root}/_sterna/collect"
    moments = [datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, 2, 3, 4, 5, tzinfo=UTC)]
    files = listing([("s3://eu/a", 1, moments[0]), ("s3://eu/b é", 2**40, moments[1])])
    save_pass(context, folder, "one", Files([files]))
    written = pq.read_table(io.BytesIO(bytes_of("pass.parquet")))
    assert same_table(pq.read_table(io.BytesIO(context.objects.read(f"{folder}/one.parquet"))), written)
    context.objects.write_new(f"{folder}/two.parquet", bytes_of("pass.parquet"))
    passes = read_passes(context, folder, datetime.now(UTC) + timedelta(days=1))
    assert [part.to_pydict() for part in passes[-1].uris()] == [{"uri": ["s3://eu/a", "s3://eu/b é"]}]


def test_a_sign_of_the_large_lane_has_the_bytes_of_november_2026(tmp_path: Path) -> None:
    context = make_world(tmp_path).context()
    moving = VALUES["round"].tables[0]
    tables = tuple(replace(moving, key=key, bytes=100) for key in ("nyc.é", "nyc.a", "nyc.b"))
    begin_bulk_run(context, replace(VALUES["round"], tables=tables, finished=False))
    uri = f"{state_folder(context.region.replica_root, TRANSIT)}/run-1/3.json"
    Heartbeat(context, "run-1", 3, {"nyc.é": 10, "nyc.a": 2}).report(0.5, force=True)
    assert context.objects.read(uri) == bytes_of("beat.json")
    context.objects.overwrite(uri, bytes_of("beat.json"))
    transit = read_bulk_state(context.objects, context.region, count_remaining=True)
    assert transit is not None and transit.remaining_bytes == {"nyc.é": 95, "nyc.a": 99, "nyc.b": 100}


def test_a_record_of_kafka_has_the_bytes_of_november_2026() -> None:
    event = bytes_of("events.jsonl").splitlines()[0]
    written = json.loads(bytes_of("kafka.json"))
    body, key, headers = build_record(Message("x", written["key"], event))
    assert (body, key) == (written["body"].encode(), written["key"].encode())
    assert list(headers.items()) == [(name, value.encode()) for name, value in written["headers"].items()]


def test_a_message_of_amqp_has_the_attributes_that_kafka_s_has() -> None:
    proton = pytest.importorskip("proton")
    from sterna.brokers.amqp import encode_message

    written = json.loads(bytes_of("kafka.json"))
    read = proton.Message()
    read.decode(encode_message(Message("x", written["key"], bytes_of("events.jsonl").splitlines()[0])))
    assert bytes(read.body) == written["body"].encode() and read.content_type == "application/json"
    attributes = {name.removeprefix("ce_"): value for name, value in written["headers"].items() if name[:3] == "ce_"}
    assert read.properties == {f"cloudEvents:{name}": value for name, value in attributes.items()}


def test_sql_of_a_catalog_has_the_names_of_november_2026() -> None:
    """Statements spell names out: a publication that one makes and another doesn't look for is a copy without news."""
    folders = [Path(sterna.__file__).parent / "replication" / "failover", Path(sterna.__file__).parent / "postgres"]
    texts = [path.read_text() for folder in folders for path in folder.rglob("*") if path.suffix in (".py", ".sql")]
    code = "\n".join(texts)
    links = re.findall(r"(?:SUBSCRIPTION|PUBLICATION) ([a-z]\w*)|(?:sub|pub)name = '(\w+)'", code)
    assert len(links) > 6 and {one or other for one, other in links} == {REPLICATION_NAME} == {"sterna"}
    tables = re.findall(r"(?:FROM|INTO|EXISTS|ON refs2,|objs2,) (sterna_\w+)", code)
    assert len(tables) > 4 and set(tables) == {TERM_TABLE} == {"sterna_epoch"}
    slots = re.findall(r"slot_name LIKE '(\w+)\\\\_%", code)
    assert len(slots) == 2 and set(slots) == {REPLICATION_NAME}


def test_slots_of_a_source_are_those_that_a_resync_takes_away() -> None:
    assert slot_name("shop", 1793491384000) == "sterna_shop_1793491384000"
    assert re.search(slot_name_pattern("shop"), slot_name("shop", 1793491384000))
    assert not re.search(slot_name_pattern("shop"), slot_name("shop_2", 1))
    assert not re.search(slot_name_pattern("shop"), "sterna_shop")


def test_an_event_of_a_commit_without_news_has_the_bytes_of_november_2026() -> None:
    """Commits of before the news: what they say comes from their parent, and has neither sequence nor operations."""
    content = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": "s3://m", "snapshotId": 4, "id": "x"})
    gone = Content.of({"type": "ICEBERG_TABLE", "metadataLocation": "s3://m", "snapshotId": 9, "id": "y"})
    operations = (Put(("ns", "a"), content), Put(("ns", "é"), content), Delete(("ns", "c")), Delete(("ns", "d")))
    moment = datetime(2026, 11, 1, 2, 3, 4, 567890, tzinfo=UTC)
    properties = {RUN_ID: "run-1", PLANNED_HASH: "h1", SOURCE_HASH: "w1"}
    commit = Commit("ab" * 32, "cd" * 32, moment, "sterna", "m", properties, operations)
    facts = CommitDetails(None, {("ns", "c"): gone}, {"ns.e": TableHeld("SourceGone", 7)}, {"ns.f": 8})
    events = build_events(commit, facts, "eu", "main_replica_eu")
    assert b"".join(event.text + b"\n" for event in events) == with_current_drops(bytes_of("events-of-old.jsonl"))


def test_values_of_features_have_the_bytes_of_november_2026() -> None:
    place: tuple[Any, ...] = (1793491384000, 3, _BIG, 1793491385000)
    row = ["30", "Shanghai é"]
    written, gone = bytes_of("features-row.txt"), bytes_of("features-gone.txt")
    assert value_head(*place, gone=False) + row_bytes(row) == written
    assert value_head(*place, gone=True) == gone.partition(b"\n")[0] + b"\n"
    assert read_value(written) == Value(*place, row)
    assert read_value(gone) == Value(*place, None)


def test_columns_of_features_have_the_bytes_of_november_2026() -> None:
    columns, written = (
        (Column("city", 2, "string"), Column("seen é", 3, "timestamptz")),
        bytes_of("features-columns.json"),
    )
    assert encode_columns(columns).encode() == written
    assert read_state([written if name == "columns" else None for name in FIELDS]).columns == columns


@pytest.mark.parametrize("name", [*FIELDS, ROW, GONE])
def test_a_name_in_the_store_of_features_stands_in_one_module(name: str) -> None:
    """Scripts have it from there: a field that the scripts write and nobody reads would be a view that is never full.

    In scripts a field stands between quotes, and the last word of a value's first line before that line's end.
    """
    pattern = rf"^{name}$|'{name}'|\b{name}\\n"
    assert modules_with(pattern) & {"pipelines/features/model.py", "pipelines/features/scripts.py"} == {
        "pipelines/features/model.py"
    }


def test_scripts_use_the_fields_of_november_2026() -> None:
    texts = [scripts.BEGIN, scripts.PUT, scripts.FINISH, scripts.FILL, scripts.EXCLUDE, scripts.DELETE_OLDER]
    fields = set(json.loads((_BESIDE.parent / "names.json").read_text())["Fields of a view's hash in Valkey"])
    assert set(re.findall(r"'([a-z]+)'", "".join(texts))) == fields | {"full"}
    assert r"'^[^\n]* gone\n'" in scripts.PUT


def stored(pattern: str) -> dict[str, bytes]:
    """The objects of eu in the state that commit b5071db left, whose names match."""
    contents = {}
    with tarfile.open(_BESIDE.parent / "world" / "eu-lake.tar.xz") as archive:
        for item in archive:
            if item.isfile() and re.search(pattern, item.name):
                file = archive.extractfile(item)
                assert file is not None
                contents[item.name] = file.read()
    return contents


def test_names_in_runs_folders_are_those_of_november_2026() -> None:
    names = {name.partition("/runs/")[2].partition("/")[2] for name in stored(r"/_sterna/runs/")}
    digest = r"[0-9a-f]{32}"
    shapes = [
        run_names.PLAN,
        run_names.REPORT,
        run_names.CHANGE_RECORD,
        run_names.TO_LOCALIZE,
        run_names.COPY_STARTED_MARKER,
    ]
    shapes = [
        re.escape(name) for name in (*shapes, *map(run_names.copy_list_name, (0, 1)), run_names.batch_marker_name(1))
    ]
    shapes.append(run_names.fetched_name(digest))
    assert {shape for shape in shapes if any(re.fullmatch(shape, name) for name in names)} == set(shapes)
    assert [name for name in names if not any(re.fullmatch(shape, name) for shape in shapes)] == []
    working = {name for name in names if run_names.is_intermediate(name)}
    assert {name.partition("/")[0] for name in working} == {"copied", "fetched"}


def test_columns_of_files_of_ingestion_are_those_of_november_2026() -> None:
    (dead,) = stored(r"/_dead/.*parquet$").values()
    assert pq.read_table(io.BytesIO(dead)).schema.equals(dead_schema())
    parts = stored(r"/_cdc/drops/.*parquet$")
    assert len(parts) == 4
    for data in parts.values():
        schema = pq.read_table(io.BytesIO(data)).schema
        assert list(schema)[-len(own_fields()) :] == own_fields()
