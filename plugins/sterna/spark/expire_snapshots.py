"""Snapshots taken out of a table's metadata by Iceberg itself, in Spark's JVM: one commit to `main`, and no file is
deleted.

Iceberg's own expiry refuses a table with `gc.enabled=false`, which is how sterna's users keep theirs. So the metadata
is rebuilt without the snapshots, and committed by the table's own operations: these compare and swap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from sterna.catalog.model import Key, key_name
from sterna.errors import EngineError
from sterna.spark.java import java_array, java_map
from sterna.spark.start import (
    address,
    is_connect,
    require_iceberg,
    require_pyspark,
    spark_errors,
    start_classic,
    summarize_error,
)
from sterna.spark.worker import redact

# Another commit came first, or the outcome is unknown: the next read of the table decides.
_RETRYABLE_ERRORS = (
    "CommitFailedException",
    "CommitStateUnknownException",
    "NoSuchTableException",
    "AlreadyExistsException",
)
_SENSITIVE_NAMES = "key|secret|token|sas|connection-string|password"  # in names of properties that no log may show


class SparkSnapshots:
    """Takes snapshots out of tables of `main`, by the Spark of a region.

    Args:
        master: a classic Spark master; its JVM needs Iceberg's runtime and that of the kind of store.
    """

    def __init__(self, master: str) -> None:
        self._master = master
        self._jvm: Any = None
        self._configuration: Any = None
        self._gateway: Any = None

    def remove(self, key: Key, metadata: str, snapshots: Collection[int], properties: Mapping[str, str]) -> bool:
        """Expire snapshots if the table's metadata is still the expected one; return whether it was done.

        Args:
            metadata: the expected metadata.json.
            snapshots: ids of those that go.
            properties: how Iceberg's Nessie catalog and FileIO reach the catalog and the table's files; secret.

        Raises:
            EngineError: Spark can't be started, is Spark Connect, or lacks Iceberg (NoIceberg); or the commit was
                refused.
        """
        self._start()
        try:
            return self._commit(key, metadata, snapshots, properties)
        except spark_errors() as error:
            if _exception_class(error) in _RETRYABLE_ERRORS:
                return False
            message = redact(summarize_error(error), _secret_properties(properties))
            raise EngineError(
                f"Iceberg in Spark at {address(self._master)} failed: {message}", table=key_name(key)
            ) from None

    def _start(self) -> None:
        if self._jvm is not None:
            return
        require_pyspark()
        if is_connect(self._master):
            raise EngineError(
                "a Spark Connect server lends no JVM: snapshots are expired by a classic master alone",
                hint="run the command with a registry whose `spark` is such as local[2]",
            )
        spark: Any = start_classic(self._master, "sterna", {})[0]
        require_iceberg(spark)
        self._jvm, self._gateway = spark._jvm, spark.sparkContext._gateway
        self._configuration = spark._jsc.hadoopConfiguration()

    def _commit(self, key: Key, metadata: str, snapshots: Collection[int], properties: Mapping[str, str]) -> bool:
        iceberg = self._jvm.org.apache.iceberg
        catalog = iceberg.nessie.NessieCatalog()
        try:
            catalog.setConf(self._configuration)
            catalog.initialize("sterna", java_map(self._jvm, properties))
            names = java_array(self._gateway, self._jvm.java.lang.String, key)
            operations = catalog.loadTable(iceberg.catalog.TableIdentifier.of(names)).operations()
            base = operations.current()
            if base.metadataFileLocation() != metadata:
                return False
            removed_ids, removed = set(snapshots), self._jvm.java.util.ArrayList()
            for snapshot in base.snapshots():
                if snapshot.snapshotId() in removed_ids:
                    removed.add(snapshot)
            updated = iceberg.TableMetadata.buildFrom(base).removeSnapshots(removed).build()
            operations.commit(base, updated)
            return True
        finally:
            catalog.close()


def _secret_properties(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if re.search(_SENSITIVE_NAMES, name)}


def _exception_class(error: BaseException) -> str:
    exception: Any = getattr(error, "java_exception", None)
    return "" if exception is None else str(exception.getClass().getSimpleName())
