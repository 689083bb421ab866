"""Existing files are added to a table in place: Iceberg's own data files, made of what was proven of them.

It calls the JVM, as `regional_writer.py` does: `DataFiles`, `ParquetUtil.fileMetrics`, `MappingUtil`, `SparkTableUtil`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sterna.config.registry.model import canonical_prefix
from sterna.errors import BadDrop
from sterna.pipelines.ingest.file_metrics import float_ids, read_metrics
from sterna.pipelines.ingest.file_proof import ProvenFile
from sterna.pipelines.publish.protocol import LoadedTable
from sterna.pipelines.publish.spark import JavaBase, SparkTable, jvm, translate_java_errors

NAME_MAPPING_PROPERTY = "schema.name-mapping.default"


def read_metadata(table: SparkTable, loaded: LoadedTable[JavaBase]) -> Mapping[str, Any]:
    """Return the metadata.json of a table that was loaded."""
    with translate_java_errors(table.name):
        metadata: Mapping[str, Any] = json.loads(_iceberg(table).TableMetadataParser.toJson(loaded.base.metadata))
    return metadata


def list_existing(table: SparkTable, loaded: LoadedTable[JavaBase], uris: Sequence[str]) -> list[str]:
    """Return those of some files that are the table's already, however their URIs are spelled."""
    if loaded.state.current is None:
        return []
    iceberg, names = _iceberg(table), sorted({uri.rpartition("/")[2] for uri in uris})
    by_canonical = {canonical_prefix(uri): uri for uri in uris}
    with translate_java_errors(table.name):
        kind = iceberg.MetadataTableType.DATA_FILES
        frame = iceberg.spark.SparkTableUtil.loadMetadataTable(
            table.spark._jsparkSession, _static_table(table, loaded), kind
        )
        from pyspark.sql import DataFrame
        from pyspark.sql.functions import col, substring_index

        files = DataFrame(frame, table.spark).select("file_path")
        rows = files.where(substring_index(col("file_path"), "/", -1).isin(names)).collect()
    return sorted({by_canonical[canonical_prefix(row[0])] for row in rows if canonical_prefix(row[0]) in by_canonical})


def needs_name_mapping(table: SparkTable, loaded: LoadedTable[JavaBase]) -> bool:
    """Return whether a table needs a name mapping for files without field ids.

    Raises:
        BadDrop: it has one, for other columns: the file's columns would be read as others.
    """
    current = loaded.state.properties.get(NAME_MAPPING_PROPERTY)
    if current is None:
        return True
    expected = {
        mapped_field["names"][0]: mapped_field["field-id"]
        for mapped_field in json.loads(_build_name_mapping(table, loaded))
    }
    try:
        names = {
            name: mapped_field["field-id"] for mapped_field in json.loads(current) for name in mapped_field["names"]
        }
    except (ValueError, TypeError, KeyError):
        names = {}
    if any(names.get(name) != id for name, id in expected.items()):
        raise BadDrop(
            f"the table's property {NAME_MAPPING_PROPERTY} doesn't name its columns: files without field ids can't "
            "be read by it",
            table=table.name,
        )
    return False


def set_name_mapping(table: SparkTable, loaded: LoadedTable[JavaBase]) -> None:
    """Set a table's name mapping, from its schema, by compare-and-swap."""
    table.set_properties(loaded, {NAME_MAPPING_PROPERTY: _build_name_mapping(table, loaded)})


def build_data_files(table: SparkTable, loaded: LoadedTable[JavaBase], files: Sequence[ProvenFile]) -> list[Any]:
    """Return Iceberg's data files of what was proven.

    Raises:
        BadDrop: Iceberg reads another size or number of rows.
        EngineError: it can't read one.
    """
    with translate_java_errors(table.name):
        config = _iceberg(table).MetricsConfig.forTable(_static_table(table, loaded))
        floats = float_ids(json.loads(_iceberg(table).SchemaParser.toJson(loaded.base.metadata.schema())))
    return [_build_data_file(table, loaded, file, config, file.incomplete | floats) for file in files]


def _build_data_file(
    table: SparkTable, loaded: LoadedTable[JavaBase], file: ProvenFile, config: Any, incomplete: frozenset[int]
) -> Any:
    iceberg, metadata = _iceberg(table), loaded.base.metadata
    with translate_java_errors(table.name):
        source = loaded.base.operations.io().newInputFile(file.uri)
        mapping = (
            iceberg.mapping.NameMappingParser.fromJson(_build_name_mapping(table, loaded)) if not file.has_ids else None
        )
        metrics = read_metrics(jvm(table.spark), source, config, incomplete, mapping)
        size, rows = source.getLength(), metrics.recordCount()
        builder = iceberg.DataFiles.builder(metadata.spec()).withPath(file.uri).withFormat("parquet")
        builder = builder.withFileSizeInBytes(size).withMetrics(metrics)
        if file.partition:
            values = jvm(table.spark).java.util.ArrayList()
            for value in file.partition:
                values.add(value)
            builder = builder.withPartitionValues(values)
        data_file = builder.build()
    if (size, rows) != (file.bytes, file.rows):
        message = f"it was changed meanwhile: {size} bytes of {file.bytes}, {rows} rows of {file.rows}"
        raise BadDrop(message, file=file.uri)
    return data_file


def _build_name_mapping(table: SparkTable, loaded: LoadedTable[JavaBase]) -> str:
    iceberg = _iceberg(table)
    with translate_java_errors(table.name):
        mapping = iceberg.mapping.MappingUtil.create(loaded.base.metadata.schema())
        return str(iceberg.mapping.NameMappingParser.toJson(mapping))


def _static_table(table: SparkTable, loaded: LoadedTable[JavaBase]) -> Any:
    iceberg = _iceberg(table)
    locations = loaded.base.operations.locationProvider()
    operations = iceberg.StaticTableOperations(loaded.base.metadata, loaded.base.operations.io(), locations)
    return iceberg.BaseTable(operations, table.name)


def _iceberg(table: SparkTable) -> Any:
    return jvm(table.spark).org.apache.iceberg
