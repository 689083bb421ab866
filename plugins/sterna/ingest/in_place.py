"""Files that lie somewhere become a table's as they are: Iceberg's own data files, made of what was proven of them.

It calls the JVM, as `near.py` does: `DataFiles`, `ParquetUtil.fileMetrics`, `MappingUtil`, `SparkTableUtil`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sterna.errors import BadDrop
from sterna.ingest.file_proof import ProvenFile
from sterna.registry.model import canonical
from sterna.wap.protocol import Look
from sterna.wap.spark import JavaBase, SparkTable, java_errors, jvm

MAPPING = "schema.name-mapping.default"


def metadata_of(table: SparkTable, look: Look[JavaBase]) -> Mapping[str, Any]:
    """Return the metadata.json of a table that was looked at."""
    with java_errors(table.name):
        told: Mapping[str, Any] = json.loads(_iceberg(table).TableMetadataParser.toJson(look.base.metadata))
    return told


def known_of(table: SparkTable, look: Look[JavaBase], uris: Sequence[str]) -> list[str]:
    """Return those of some files that are the table's already, however their URIs are spelled."""
    if look.state.current is None:
        return []
    iceberg, names = _iceberg(table), sorted({uri.rpartition("/")[2] for uri in uris})
    wanted = {canonical(uri): uri for uri in uris}
    with java_errors(table.name):
        kind = iceberg.MetadataTableType.DATA_FILES
        frame = iceberg.spark.SparkTableUtil.loadMetadataTable(table.spark._jsparkSession, _static(table, look), kind)
        from pyspark.sql import DataFrame
        from pyspark.sql.functions import col, substring_index

        files = DataFrame(frame, table.spark).select("file_path")
        found = files.where(substring_index(col("file_path"), "/", -1).isin(names)).collect()
    return sorted({wanted[canonical(row[0])] for row in found if canonical(row[0]) in wanted})


def refuse_mapping(table: SparkTable, look: Look[JavaBase]) -> bool:
    """Tell whether a table has to be told by which names its columns are known in files without field ids.

    Raises:
        BadDrop: it was told, and for other columns: names would be read as others.
    """
    there = look.state.properties.get(MAPPING)
    if there is None:
        return True
    wanted = {each["names"][0]: each["field-id"] for each in json.loads(_mapping(table, look))}
    try:
        names = {name: each["field-id"] for each in json.loads(there) for name in each["names"]}
    except (ValueError, TypeError, KeyError):
        names = {}
    if any(names.get(name) != id for name, id in wanted.items()):
        raise BadDrop(
            f"the table's property {MAPPING} doesn't name its columns: files without field ids can't be read by it",
            table=table.name,
        )
    return False


def set_mapping(table: SparkTable, look: Look[JavaBase]) -> None:
    """Tell a table by which names its columns are known, as its schema has them, by compare-and-swap."""
    table.set_properties(look, {MAPPING: _mapping(table, look)})


def data_files(table: SparkTable, look: Look[JavaBase], files: Sequence[ProvenFile]) -> list[Any]:
    """Return Iceberg's data files of what was proven.

    Raises:
        BadDrop: Iceberg reads another size or number of rows.
        EngineError: it can't read one.
    """
    return [_data_file(table, look, file) for file in files]


def _data_file(table: SparkTable, look: Look[JavaBase], file: ProvenFile) -> Any:
    iceberg, metadata = _iceberg(table), look.base.metadata
    with java_errors(table.name):
        source = look.base.operations.io().newInputFile(file.uri)
        mapping = iceberg.mapping.NameMappingParser.fromJson(_mapping(table, look)) if not file.has_ids else None
        config = iceberg.MetricsConfig.forTable(_static(table, look))
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(source, config, mapping)
        size, rows = source.getLength(), metrics.recordCount()
        builder = iceberg.DataFiles.builder(metadata.spec()).withPath(file.uri).withFormat("parquet")
        builder = builder.withFileSizeInBytes(size).withMetrics(metrics)
        if file.partition:
            values = jvm(table.spark).java.util.ArrayList()
            for value in file.partition:
                values.add(value)
            builder = builder.withPartitionValues(values)
        made = builder.build()
    if (size, rows) != (file.bytes, file.rows):
        changed = f"it was changed meanwhile: {size} bytes of {file.bytes}, {rows} rows of {file.rows}"
        raise BadDrop(changed, file=file.uri)
    return made


def _mapping(table: SparkTable, look: Look[JavaBase]) -> str:
    iceberg = _iceberg(table)
    with java_errors(table.name):
        made = iceberg.mapping.MappingUtil.create(look.base.metadata.schema())
        return str(iceberg.mapping.NameMappingParser.toJson(made))


def _static(table: SparkTable, look: Look[JavaBase]) -> Any:
    iceberg = _iceberg(table)
    places = look.base.operations.locationProvider()
    operations = iceberg.StaticTableOperations(look.base.metadata, look.base.operations.io(), places)
    return iceberg.BaseTable(operations, table.name)


def _iceberg(table: SparkTable) -> Any:
    return jvm(table.spark).org.apache.iceberg
