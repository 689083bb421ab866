"""Java collections, and the active session, of a classic Spark's driver: what py4j lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


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
