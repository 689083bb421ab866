"""Statements of Spark that aren't about rows, by eu's address: columns, partitions, history, views; what is refused.

After them `main`, the address and the replica branch have the same, and `main` names nothing of a replica.
"""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as parquet
import pytest
from pyiceberg.exceptions import BadRequestError, ForbiddenError

from tests.integration.rest_catalog.comparison import compare, main_metadata, make, rows
from tests.integration.rest_catalog.conftest import Address

NAMESPACE = "rest_statements"


def test_columns_partitions_order_properties_and_refs(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "shape", 2, namespace=ns)
    home = f"rest_eu.{table}"
    for change in (
        "ADD COLUMN more INT",
        "ALTER COLUMN more TYPE BIGINT",
        "RENAME COLUMN name TO title",
        "ADD PARTITION FIELD bucket(4, id)",
        "ADD PARTITION FIELD more",
        "DROP PARTITION FIELD more",
        "REPLACE PARTITION FIELD bucket(4, id) WITH truncate(10, id)",
        "WRITE ORDERED BY title",
        "SET TBLPROPERTIES ('comment' = 'from eu', 'unset' = 'x')",
        "UNSET TBLPROPERTIES ('unset')",
        "CREATE TAG kept",
        "CREATE TAG dropped",
        "DROP TAG dropped",
        "CREATE BRANCH work",
        "DROP COLUMN more",
    ):
        world.sql(f"ALTER TABLE {home} {change}")
    world.sql(f"INSERT INTO {home}.branch_work VALUES (50, 'branch')")
    world.sql(f"CALL rest_eu.system.fast_forward('{table}', 'main', 'work')")
    world.spark.conf.set("spark.sql.sources.partitionOverwriteMode", "dynamic")
    try:
        world.sql(f"INSERT OVERWRITE {home} VALUES (55, 'dynamic')")
    finally:
        world.spark.conf.unset("spark.sql.sources.partitionOverwriteMode")
    after = compare(world, table)
    assert (55, "dynamic") in after and (50, "branch") not in after and (29, "n29") in after
    document = main_metadata(world, table)
    assert [field["transform"] for field in document["partition-specs"][-1]["fields"]] == ["truncate[10]"]
    assert document["sort-orders"][-1]["fields"][0]["source-id"] == 2
    assert document["properties"]["comment"] == "from eu" and "unset" not in document["properties"]
    assert set(document["refs"]) == {"main", "kept", "work"}


def test_manifests_are_rewritten_and_history_is_rolled_back(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "history", 2, namespace=ns)
    home = f"rest_eu.{table}"
    world.sql(f"INSERT INTO {home} VALUES (100, 'first')")
    first = world.snapshots(home)[-1]
    world.sql(f"DELETE FROM {home} WHERE id < 10")
    world.sql(f"CALL rest_eu.system.rewrite_manifests('{table}')")
    assert len(compare(world, table)) == 21
    world.sql(f"CALL rest_eu.system.rollback_to_snapshot('{table}', {first})")
    assert len(compare(world, table)) == 31


def test_what_would_delete_or_compact_is_refused(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "kept", 2, namespace=ns)
    world.sql(f"INSERT INTO rest_eu.{table} VALUES (100, 'eu')")
    before = compare(world, table)
    for call, message in (
        (f"expire_snapshots(table => '{table}', older_than => TIMESTAMP '2100-01-01')", "GC is disabled"),
        (f"remove_orphan_files(table => '{table}')", "GC is disabled"),
        (f"rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))", "compacted in the region"),
    ):
        with pytest.raises(Exception, match=message):
            world.sql(f"CALL rest_eu.system.{call}")
    with pytest.raises(Exception, match="GC is disabled"):
        world.sql(f"DROP TABLE rest_eu.{table} PURGE")
    loaded = address.pyiceberg().load_table(table)
    first = loaded.metadata.snapshots[0].snapshot_id
    with pytest.raises(ForbiddenError, match="by maintenance alone"):
        loaded.maintenance.expire_snapshots().by_id(first).commit()
    assert compare(world, table) == before


def test_files_are_added_where_the_table_has_its_own(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "added", 2, namespace=ns)
    loaded = address.pyiceberg().load_table(table)
    buffer = io.BytesIO()
    parquet.write_table(pa.table({"id": pa.array([100], pa.int64()), "name": ["added"]}), buffer)
    inside = f"{loaded.properties['write.data.path']}/added.parquet"
    outside = "s3://eu-lake/elsewhere/added.parquet"
    with world.context() as context:
        for uri in (inside, outside):
            context.objects.write_new(uri, buffer.getvalue())
    with pytest.raises(BadRequestError, match="elsewhere/added"):
        loaded.add_files([outside])
    address.pyiceberg().load_table(table).add_files([inside])
    assert (100, "added") in compare(world, table)


def test_views(address: Address, ns: str) -> None:
    world = address.world
    table = make(world, "seen", 2, namespace=ns)
    view = f"rest_eu.{ns}.few"
    world.sql(f"CREATE VIEW {view} AS SELECT id FROM rest_eu.{table} WHERE id < 3")
    assert rows(world, view) == [(0,), (1,), (2,)]
    world.sql(f"CREATE OR REPLACE VIEW {view} AS SELECT id FROM rest_eu.{table} WHERE id < 2")
    world.sql(f"ALTER VIEW {view} SET TBLPROPERTIES ('comment' = 'few')")
    assert rows(world, view) == [(0,), (1,)]
    world.sync()
    assert f"{ns}.few" in world.replica()
    world.sql(f"ALTER VIEW {view} RENAME TO rest_eu.{ns}.renamed")
    assert rows(world, f"rest_eu.{ns}.renamed") == [(0,), (1,)]
    world.sql(f"DROP VIEW rest_eu.{ns}.renamed")
    world.sync()
    assert not {f"{ns}.few", f"{ns}.renamed"} & world.replica().keys()
