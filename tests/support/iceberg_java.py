"""Iceberg's own Java API through Spark's JVM: what conforms to the spec and no engine here writes by itself."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pyspark.sql import SparkSession

from sterna.spark.changelog_scan import load_by_name

_PATH_ID = 2147483546

Java = Any
"""An object in the JVM."""


def iceberg(spark: SparkSession) -> Java:
    """Return the package `org.apache.iceberg`."""
    jvm: Any = spark._jvm
    return jvm.org.apache.iceberg


def load_table(spark: SparkSession, table: str) -> Java:
    """Load a table, by its name with the catalog, as an `org.apache.iceberg.Table`."""
    return load_by_name(spark, table)


def items(iterable: Java) -> Iterator[Java]:
    """Yield what a `CloseableIterable` holds, and close it."""
    iterator = iterable.iterator()
    while iterator.hasNext():
        yield iterator.next()
    iterable.close()


def data_file(
    spark: SparkSession,
    table: Java,
    rows: Iterable[Mapping[str, Any]],
    *,
    file_format: str = "PARQUET",
    partition: str = "",
) -> Java:
    """Write rows into a new data file of a table.

    Args:
        spark: the session.
        table: the loaded table.
        rows: values by column; an integer is a long, so a column of type INT can't be written.
        file_format: PARQUET, ORC or AVRO.
        partition: the file's partition, `part=1`; "" in an unpartitioned table.

    Returns:
        The `DataFile`, which no commit holds yet.
    """
    factory = _factory(spark, table).dataFileFormat(_format(spark, file_format)).dataSchema(table.schema()).build()
    writer = factory.newDataWriter(*_place(spark, table, file_format, partition))
    for row in rows:
        writer.write(a_record(spark, table.schema(), row))
    writer.close()
    return writer.toDataFile()


def equality_deletes(
    spark: SparkSession,
    table: Java,
    columns: Sequence[str],
    rows: Iterable[Mapping[str, Any]],
    *,
    file_format: str = "PARQUET",
    partition: str = "",
) -> Java:
    """Write an equality delete file, as Flink's upserts do.

    Args:
        spark: the session.
        table: the loaded table.
        columns: the columns that are compared.
        rows: the values to delete, by column.
        file_format: as in `data_file`.
        partition: as in `data_file`.

    Returns:
        The `DeleteFile`, which no commit holds yet.
    """
    schema = table.schema().select(list(columns))
    ids = _ints(spark, [table.schema().findField(column).fieldId() for column in columns])
    builder = (
        _factory(spark, table)
        .deleteFileFormat(_format(spark, file_format))
        .equalityFieldIds(ids)
        .equalityDeleteRowSchema(schema)
    )
    writer = builder.build().newEqualityDeleteWriter(*_place(spark, table, file_format, partition))
    for row in rows:
        writer.write(a_record(spark, schema, row))
    writer.close()
    return writer.toDeleteFile()


def position_deletes(
    spark: SparkSession,
    table: Java,
    rows: Iterable[tuple[str, int]],
    *,
    file_format: str = "PARQUET",
    partition: str = "",
) -> Java:
    """Write a position delete file.

    Args:
        spark: the session.
        table: the loaded table.
        rows: (file_path, pos), written in their order by (file_path, pos).
        file_format: as in `data_file`.
        partition: as in `data_file`.

    Returns:
        The `DeleteFile`, which no commit holds yet.
    """
    factory = _factory(spark, table).deleteFileFormat(_format(spark, file_format)).build()
    writer = factory.newPositionDeleteWriter(*_place(spark, table, file_format, partition))
    delete = iceberg(spark).deletes.PositionDelete.create()
    for path, position in sorted(rows):
        writer.write(delete.set(path, position))
    writer.close()
    return writer.toDeleteFile()


def describe_anew(
    spark: SparkSession,
    table: Java,
    file: Java,
    *,
    referenced: str | None = None,
    path_bounds: tuple[str, str] | None = None,
) -> Java:
    """Return a position delete file with another description: nothing of it but the file itself stays, unless it is
    named here.

    Args:
        spark: the session.
        table: the loaded table.
        file: the `DeleteFile`.
        referenced: its `referenced_data_file` (143); None for none.
        path_bounds: lower and upper bound of `file_path`; None for none.
    """
    api = iceberg(spark)
    bounds = [
        {_PATH_ID: api.types.Conversions.toByteBuffer(api.types.Types.StringType.get(), bound)}
        for bound in path_bounds or ()
    ]
    lower, upper = bounds or (None, None)
    metrics = api.Metrics(file.recordCount(), None, None, None, None, *(_map(spark, bound) for bound in (lower, upper)))
    builder = api.FileMetadata.deleteFileBuilder(table.spec()).copy(file).withMetrics(metrics)
    return (builder.withReferencedDataFile(referenced) if referenced else builder).build()


def commit_rows(table: Java, *, data: Iterable[Java] = (), deletes: Iterable[Java] = ()) -> None:
    """Commit data files and delete files at once, as an upsert does."""
    delta = table.newRowDelta()
    for file in data:
        delta.addRows(file)
    for file in deletes:
        delta.addDeletes(file)
    delta.commit()
    table.refresh()


def write_file(table: Java, uri: str, content: bytes) -> None:
    """Write an object with the table's own FileIO, which sees it at once."""
    stream = table.io().newOutputFile(uri).create()
    stream.write(bytearray(content))
    stream.close()


def _factory(spark: SparkSession, table: Java) -> Java:
    return getattr(iceberg(spark).data, "GenericFileWriterFactory$Builder")(table)


def _format(spark: SparkSession, name: str) -> Java:
    return iceberg(spark).FileFormat.fromString(name)


def _place(spark: SparkSession, table: Java, file_format: str, partition: str) -> tuple[Java, Java, Java]:
    """Return where a new file goes, and its partition spec and value."""
    api = iceberg(spark)
    spec = table.spec()
    files = api.io.OutputFileFactory.builderFor(table, 1, 1).format(_format(spark, file_format)).build()
    if not partition:
        return files.newOutputFile(), spec, None
    value = api.DataFiles.data(spec, partition)
    return files.newOutputFile(spec, value), spec, value


def a_record(spark: SparkSession, schema: Java, row: Mapping[str, Any]) -> Java:
    """Return a row; values are those of JSON, and an integer is a long."""
    # A Long that came over to Python goes back as an Integer: values have to be made in the JVM.
    jvm: Any = spark._jvm
    databind = jvm.com.fasterxml.jackson.databind
    mapper = databind.ObjectMapper().configure(databind.DeserializationFeature.USE_LONG_FOR_INTS, True)
    values = mapper.readValue(json.dumps(row), jvm.java.lang.Class.forName("java.util.HashMap"))
    return iceberg(spark).data.GenericRecord.create(schema).copy(values)


def _ints(spark: SparkSession, values: Sequence[int]) -> Java:
    context: Any = spark.sparkContext
    array = context._gateway.new_array(context._jvm.int, len(values))
    for index, value in enumerate(values):
        array[index] = value
    return array


def _map(spark: SparkSession, values: Mapping[int, Java] | None) -> Java:
    if values is None:
        return None
    jvm: Any = spark._jvm
    java_map = jvm.java.util.HashMap()
    for key, value in values.items():
        java_map.put(key, value)
    return java_map
