"""Snapshots taken out of a table's metadata by Iceberg itself, in Spark's JVM: one commit to `main`, and no file is
deleted.

Iceberg's own expiry refuses a table with `gc.enabled=false`, which is how sterna's users keep theirs. So the metadata
is built anew without the snapshots, and committed by the table's own operations: these compare and swap.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any

from sterna.catalog.model import Key, key_name
from sterna.edges.spark.start import (
    address,
    failures,
    is_connect,
    require_iceberg,
    require_pyspark,
    start_classic,
    summary,
)
from sterna.edges.spark.worker import redact
from sterna.errors import EngineError

# Others committed first; or nobody knows whether this was: the next look tells.
_AGAIN = ("CommitFailedException", "CommitStateUnknownException", "NoSuchTableException", "AlreadyExistsException")
_TOLD = "key|secret|token|sas|connection-string|password"  # to nobody: in the names of properties


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
        """Take snapshots out of a table's metadata if it is what the caller looked at; tell whether it was done.

        Args:
            key: the table.
            metadata: the metadata.json that the caller looked at.
            snapshots: ids of those that go.
            properties: how Iceberg's Nessie catalog and FileIO reach the catalog and the table's files; secret.

        Raises:
            EngineError: Spark can't be started, is Spark Connect, or lacks Iceberg (NoIceberg); or the commit was
                refused.
        """
        self._start()
        try:
            return self._commit(key, metadata, snapshots, properties)
        except failures() as error:
            if _class_of(error) in _AGAIN:
                return False
            said = redact(summary(error), _secret(properties))
            raise EngineError(
                f"Iceberg in Spark at {address(self._master)} failed: {said}", table=key_name(key)
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
            settings = self._jvm.java.util.HashMap()
            for name, value in properties.items():
                settings.put(name, value)
            catalog.initialize("sterna", settings)
            names = self._gateway.new_array(self._jvm.java.lang.String, len(key))
            for number, name in enumerate(key):
                names[number] = name
            operations = catalog.loadTable(iceberg.catalog.TableIdentifier.of(names)).operations()
            base = operations.current()
            if base.metadataFileLocation() != metadata:
                return False
            wanted, gone = set(snapshots), self._jvm.java.util.ArrayList()
            for each in base.snapshots():
                if each.snapshotId() in wanted:
                    gone.add(each)
            changed = iceberg.TableMetadata.buildFrom(base).removeSnapshots(gone).build()
            operations.commit(base, changed)
            return True
        finally:
            catalog.close()


def _secret(properties: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if re.search(_TOLD, name)}


def _class_of(error: BaseException) -> str:
    thrown: Any = getattr(error, "java_exception", None)
    return "" if thrown is None else str(thrown.getClass().getSimpleName())
