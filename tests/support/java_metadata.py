"""Iceberg's own Java code as an oracle: what its builders make of metadata and update actions, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.support.iceberg_java import Java, iceberg

_JAVA_ERRORS = (Py4JJavaError, PySparkException)
"""What a throwing Java method raises here; pyspark turns common exceptions into its own."""


class Refused(Exception):
    """Java threw: the class and message."""


class JavaMetadata:
    """Java's parsers and builders of metadata, in a session's JVM."""

    def __init__(self, spark: SparkSession) -> None:
        self._iceberg: Java = iceberg(spark)
        self._jvm: Any = spark._jvm

    def table(self, metadata: Mapping[str, Any], updates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a table's metadata with updates applied."""

        def run() -> str:
            parser = self._iceberg.TableMetadataParser
            builder = self._iceberg.TableMetadata.buildFrom(parser.fromJson(json.dumps(metadata)))
            return str(parser.toJson(self._applied(builder, updates)))

        return _refused(run)

    def new_table(self, updates: Sequence[Mapping[str, Any]], format_version: int) -> dict[str, Any]:
        """Return the metadata of a table that updates make, as Java's `CatalogHandlers.create` does."""

        def run() -> str:
            builder = self._iceberg.TableMetadata.buildFromEmpty(format_version)
            return str(self._iceberg.TableMetadataParser.toJson(self._applied(builder, updates)))

        return _refused(run)

    def created_table(self, request: Mapping[str, Any], location: str) -> dict[str, Any]:
        """Return the metadata of a table that a CreateTableRequest makes."""

        def run() -> str:
            java = self._iceberg
            schema = java.SchemaParser.fromJson(json.dumps(request["schema"]))
            spec, order = request.get("partition-spec"), request.get("write-order")
            metadata = java.TableMetadata.newTableMetadata(
                schema,
                java.PartitionSpecParser.fromJson(schema, json.dumps(spec))
                if spec
                else java.PartitionSpec.unpartitioned(),
                java.SortOrderParser.fromJson(schema, json.dumps(order)) if order else java.SortOrder.unsorted(),
                location,
                self._jvm.java.util.HashMap(request.get("properties") or {}),
            )
            return str(java.TableMetadataParser.toJson(metadata))

        return _refused(run)

    def view(self, metadata: Mapping[str, Any], updates: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Return a view's metadata with updates applied."""

        def run() -> str:
            parser, views = self._iceberg.view.ViewMetadataParser, self._iceberg.view.ViewMetadata
            builder = views.buildFrom(parser.fromJson(json.dumps(metadata)))
            return str(parser.toJson(self._applied(builder, updates)))

        return _refused(run)

    def fulfils(self, metadata: Mapping[str, Any], requirement: Mapping[str, Any]) -> bool:
        """Return whether a table fulfils a requirement."""
        base = self._iceberg.TableMetadataParser.fromJson(json.dumps(metadata))
        try:
            self._iceberg.UpdateRequirementParser.fromJson(json.dumps(requirement)).validate(base)
        except _JAVA_ERRORS as error:
            if "CommitFailedException" in str(error):
                return False
            raise Refused(str(error)) from None
        return True

    def _applied(self, builder: Java, updates: Sequence[Mapping[str, Any]]) -> Java:
        for update in updates:
            self._iceberg.MetadataUpdateParser.fromJson(json.dumps(update)).applyTo(builder)
        return builder.build()


def comparable(metadata: Mapping[str, Any]) -> dict[str, Any]:
    """Return metadata as two builders agree on it: without the clock, and without the order of what has none."""
    document = {name: content for name, content in metadata.items() if name not in ("last-updated-ms", "metadata-log")}
    if document.get("table-uuid", "") is None:  # Java writes the null of version 1
        del document["table-uuid"]
    for name in ("statistics", "partition-statistics"):
        if name in document:
            document[name] = sorted(document[name], key=lambda line: line["snapshot-id"])
    if "snapshot-log" in document:
        document["snapshot-log"] = [line["snapshot-id"] for line in document["snapshot-log"]]
    if "version-log" in document:
        document["version-log"] = [line["version-id"] for line in document["version-log"]]
    return document


def _refused(run: Any) -> dict[str, Any]:
    try:
        metadata: dict[str, Any] = json.loads(run())
    except _JAVA_ERRORS as error:
        raise Refused(str(error)) from None
    return metadata
