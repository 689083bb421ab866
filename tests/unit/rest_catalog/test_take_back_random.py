"""Random tables and random commits: what is taken back is what the client would have written on `main` itself."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile, read_manifest_list
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.typedef import Record
from pyiceberg.types import LongType, NestedField, StringType

from tests.support.small_world import make_world, run
from tests.unit.rest_catalog.near_client import NearCatalog
from tests.unit.rest_catalog.tampering import read_avro

T = ("ns", "t")
SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "part", StringType()))
SPEC = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
ARROW = pa.schema([pa.field("id", pa.int64()), pa.field("part", pa.string())])
PARTS = st.sampled_from(["a", "b", "c/d"])
ROWS = st.lists(st.tuples(st.integers(0, 9), PARTS), min_size=1, max_size=5)
OPERATIONS = st.one_of(
    st.tuples(st.just("append"), ROWS),
    st.tuples(st.just("delete"), st.integers(0, 9)),
    st.tuples(st.just("drop"), PARTS),
    st.tuples(st.just("overwrite"), ROWS),
    st.tuples(st.just("partitions"), ROWS),
    st.tuples(st.just("merge"), ROWS),
)


def change(table: Table, operation: tuple[str, Any]) -> None:
    """Commit one operation to a table."""
    kind, argument = operation
    if kind == "delete":
        table.delete(f"id = {argument}")
        return
    if kind == "drop":
        table.delete(f"part = '{argument}'")
        return
    rows = pa.Table.from_pylist([{"id": id, "part": part} for id, part in argument], schema=ARROW)
    if kind == "append":
        table.append(rows)
    elif kind == "overwrite":
        table.overwrite(rows)
    elif kind == "partitions":
        table.dynamic_partition_overwrite(rows)
    else:
        with table.transaction() as transaction:
            transaction.set_properties(
                {"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"}
            )
            transaction.append(rows)


def entries(list_uri: str, replace: tuple[str, str]) -> list[tuple[Any, ...]]:
    """All that PyIceberg reads in a snapshot's files, but for the names of its manifests and their lengths."""
    io = PyArrowFileIO()
    manifests: list[ManifestFile] = list(read_manifest_list(io.new_input(list_uri)))
    rows: list[tuple[Any, ...]] = []
    for manifest in manifests:
        row = values(manifest)[2:]
        files = [
            (
                entry.status,
                entry.snapshot_id,
                entry.sequence_number,
                entry.file_sequence_number,
                str(values(entry.data_file)).replace(*replace),
            )
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=False)
        ]
        rows.append((str(row), files))
    return rows


def values(record: Record) -> list[Any]:
    """All values of a record; maps in full."""
    every = [record[at] for at in range(len(record))]
    return [sorted(value.items()) if isinstance(value, Mapping) else value for value in every]


@settings(phases=(Phase.generate,), max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(history=st.lists(OPERATIONS, min_size=0, max_size=4), operation=OPERATIONS)
def test_what_is_taken_back_is_what_the_client_would_have_written_on_main(
    history: list[tuple[str, Any]], operation: tuple[str, Any]
) -> None:
    with TemporaryDirectory() as folder:
        world = make_world(Path(folder))
        table = world.writer.create_table(T, SCHEMA, location=f"file://{folder}/us/lake/t", partition_spec=SPEC)
        for earlier in [("append", [(1, "a"), (2, "b"), (3, "c/d")]), *history]:
            change(table, earlier)
        world.commit(t=world.writer.load_table(T).metadata_location)
        run(world)
        near = NearCatalog(world)
        change(near.load_table(T), operation)
        replace = (f"file://{folder}/eu/replica/us-lake/", f"file://{folder}/us/lake/")
        for commit in near.commits:
            expected = entries(commit.snapshot["manifest-list"], replace)
            taken = commit.taken.snapshot["manifest-list"]
            assert entries(taken, ("", "")) == expected
            for uri in commit.taken.replaced:
                assert "/eu/replica/" not in str(read_avro(uri)[2])
        assert rows_of(world.writer.load_table(T)) == rows_of(near.load_table(T))


def rows_of(table: Table) -> list[str]:
    return sorted(map(str, table.scan().to_arrow().to_pylist()))
