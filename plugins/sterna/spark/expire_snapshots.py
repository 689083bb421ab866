"""Snapshots taken out of a table's metadata by Iceberg itself, in Spark's JVM: one commit to `main`, and no file is
deleted.

Iceberg's own expiry refuses a table with `gc.enabled=false`, which is how sterna's users keep theirs. So the metadata
is rebuilt without the snapshots, and committed by the table's own operations: these compare and swap.
"""

from __future__ import annotations

from collections.abc import Collection

from sterna.catalog.model import Key, key_name
from sterna.errors import CatalogStateUnknown, EngineRefused
from sterna.spark.errors import causes
from sterna.spark.main_catalog import CommitConflict, MainTables, TableChanged
from sterna.spark.start import spark_errors


def remove_snapshots(tables: MainTables, key: Key, metadata: str, snapshots: Collection[int]) -> bool:
    """Expire snapshots if the table's metadata is still the expected one; return whether it was done.

    Args:
        metadata: the expected metadata.json.
        snapshots: ids of those that go.

    Raises:
        EngineRefused, StoreDenied: no later run will do better.
        EngineError: anything else.
    """
    try:
        return tables.call(lambda: _commit(tables, key, metadata, snapshots), key_name(key))
    except (CommitConflict, CatalogStateUnknown):
        return False  # another commit came first, or the outcome is unknown: the next read of the table decides
    except TableChanged as error:
        # A rewrite is validated against what others committed; this one only against the table itself.
        raise EngineRefused(
            f"Iceberg refuses to remove the snapshots: {error}",
            table=key_name(key),
            hint="see EngineRefused in the run book",
        ) from error


def _commit(tables: MainTables, key: Key, metadata: str, snapshots: Collection[int]) -> bool:
    try:
        operations = tables.load_table(key).operations()
    except spark_errors() as error:
        if any(name.endswith("NoSuchTableException") for name, _ in causes(error)):
            return False
        raise
    base = operations.current()
    if base.metadataFileLocation() != metadata:
        return False
    removed_ids, removed = set(snapshots), tables.jvm.java.util.ArrayList()
    for snapshot in base.snapshots():
        if snapshot.snapshotId() in removed_ids:
            removed.add(snapshot)
    updated = tables.jvm.org.apache.iceberg.TableMetadata.buildFrom(base).removeSnapshots(removed).build()
    operations.commit(base, updated)
    return True
