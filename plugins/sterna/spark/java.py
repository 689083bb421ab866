"""Java collections, and the active session, of a classic Spark's driver: what py4j lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_FILE_IO = "org.apache.iceberg.io.ResolvingFileIO"


def java_map(jvm: Any, values: Mapping[str, str]) -> Any:
    """Return a `java.util.HashMap`, to which neither py4j nor JPype converts a dict by itself.

    Args:
        jvm: py4j's view of a JVM, or the module `jpype`.
        values: the map's entries.
    """
    mapping = jvm.java.util.HashMap()
    for name, value in values.items():
        mapping.put(name, value)
    return mapping


def with_properties(jvm: Any, metadata: Any, properties: Mapping[str, str]) -> Any:
    """Return Iceberg's `TableMetadata` with other properties, which is committed nowhere.

    Args:
        jvm: py4j's view of a JVM.
        properties: those that are set; others stay.
    """
    builder = jvm.org.apache.iceberg.TableMetadata.buildFrom(metadata).setProperties(java_map(jvm, properties))
    return builder.discardChanges().build()


def java_array(gateway: Any, kind: Any, values: Sequence[Any]) -> Any:
    """Return a Java array.

    Args:
        gateway: py4j's, of the JVM.
        kind: the class of its elements, by its JVM name.
    """
    array = gateway.new_array(kind, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def activate_session(spark: Any) -> None:
    """Make a classic session the thread's active one: Iceberg and Spark's catalogs use that."""
    spark._jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(spark._jsparkSession)


def open_file_io(spark: Any, stores: Mapping[str, Mapping[str, str]], properties: Mapping[str, str]) -> Any:
    """Return a FileIO of Iceberg's that reaches stores, each with its own settings.

    Args:
        spark: a classic session.
        stores: prefixes of URIs, and the properties below each.
        properties: below none of them; they go to the executors, as the stores' do.
    """
    jvm = spark._jvm
    credentials = jvm.java.util.ArrayList()
    for prefix, settings in stores.items():
        folder = prefix if prefix.endswith("/") else f"{prefix}/"
        credentials.add(jvm.org.apache.iceberg.io.StorageCredential.create(folder, java_map(jvm, settings)))
    hadoop = spark._jsparkSession.sessionState().newHadoopConf()
    return jvm.org.apache.iceberg.CatalogUtil.loadFileIO(_FILE_IO, java_map(jvm, properties), hadoop, credentials)
