"""Tables of `main` as a worker reaches them: metadata at a table's home, data files in the worker's own region.

The one module of ingestion that calls the JVM. A catalog of its own has one FileIO with the credentials of every
location, by prefix: so one commit reads and writes metadata in one region, and names files in another. Data files are
written without a commit: by Arrow, or by Spark's own writer for Iceberg where a table partitions or sorts its rows, to
a table in memory whose `write.data.path` is near.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.errors import BatchRejected, EngineError, TableMoved
from sterna.libraries import pa, pq
from sterna.pipelines.ingest.arrow_files import can_write, write_rows
from sterna.pipelines.ingest.column_types import Type, parse_decimal, parse_fixed
from sterna.pipelines.ingest.columns import Column, Evolution, FieldChange, parse_columns, type_at
from sterna.pipelines.ingest.file_metrics import float_ids, has_nan, incomplete_ids, read_metrics
from sterna.pipelines.ingest.time_columns import convert_to_longs, field_types, replace_times, time_ids, write_times
from sterna.pipelines.publish.main_access import main_catalog
from sterna.pipelines.publish.protocol import LoadedTable
from sterna.pipelines.publish.spark import JavaBase, SparkTable, jvm, require_jvm, translate_java_errors
from sterna.spark.java import java_array, java_map, with_properties
from sterna.spark.main_catalog import DriverCatalog
from sterna.spark.start import spark_errors, summarize_error
from sterna.storage.write import read_file, write_file

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from sterna.replication.replica.region import RegionContext

_TABLE_PROPERTIES = {"write.wap.enabled": "true", "commit.retry.num-retries": "30"}


class RegionalIcebergCatalog:
    """The catalog that takes commits, with the stores of all locations.

    Args:
        spark: a classic session.
        credential_id: the login at the catalog, a writer's; None: the region's own.

    Raises:
        NotStaged: the session is one of Spark Connect.
        NoIceberg: its driver lacks Iceberg's runtime.
        CredentialError: one is missing.
    """

    def __init__(self, spark: SparkSession, context: RegionContext, credential_id: str | None = None) -> None:
        require_jvm(spark)
        self.spark, self._context = spark, context
        with translate_java_errors(""):
            self._main = DriverCatalog(spark, main_catalog(context, credential_id, ""))
        self._catalog = self._main.java

    def table(self, key: str) -> SparkTable:
        """Return a table by its dotted key, whether it is there or not."""
        name = self._identifier(key)
        return SparkTable(self.spark, key, lambda: self._catalog.loadTable(name))

    def has_table(self, key: str) -> bool:
        """Return whether `main` has a table."""
        with translate_java_errors(key):
            return bool(self._catalog.tableExists(self._identifier(key)))

    def register_in_sql(self, name: str) -> None:
        """Let the session's SQL name the tables of `main`.

        Args:
            name: what SQL calls the catalog; not used in the session before.
        """
        self._main.register_in_sql(name)

    def close(self) -> None:
        """Close the catalog's connections; the session stays."""
        self._main.close()

    def create(
        self, key: str, columns: Sequence[Column], location: str, properties: Mapping[str, str] | None = None
    ) -> None:
        """Create a table, and the namespaces that it needs, unless it exists.

        Args:
            key: its dotted key.
            location: its URI.
            properties: more of its properties.

        Raises:
            EngineError: it can't be created.
        """
        iceberg = jvm(self.spark).org.apache.iceberg
        schema = iceberg.SchemaParser.fromJson(json.dumps(_schema(columns)))
        identifier = self._identifier(key)
        try:
            self._create_namespaces(key)
            self._catalog.createTable(
                identifier,
                schema,
                iceberg.PartitionSpec.unpartitioned(),
                location,
                java_map(jvm(self.spark), {**_TABLE_PROPERTIES, **(properties or {})}),
            )
        except spark_errors() as error:
            if "AlreadyExistsException" not in str(error):
                raise EngineError(f"the table can't be made: {summarize_error(error, 3)}", table=key) from None

    def evolve(self, key: str, evolution: Evolution) -> None:
        """Add and widen columns, in one commit; changes that another writer made meanwhile are kept.

        A column that two regions add concurrently has one id: the second commit is refused, and retried.

        Raises:
            TableMoved: others changed the schema each time.
        """
        identifier = self._identifier(key)
        for _ in range(10):
            table = self._catalog.loadTable(identifier)
            existing = parse_columns(self._metadata(table))
            update = table.updateSchema()
            changes = [change for change in evolution.changes if self._is_due(change, existing)]
            for change in changes:
                self._add_to(update, change)
            try:
                if changes:
                    with translate_java_errors(key):
                        update.commit()
                return
            except TableMoved:
                continue
        raise TableMoved("the schema was changed by others each time", table=key)

    @staticmethod
    def _is_due(change: FieldChange, existing: Sequence[Column]) -> bool:
        """Return whether a table hasn't got a change yet."""
        type = type_at(existing, change.path)
        return type != change.type if change.widen else type is None

    def _add_to(self, update: Any, change: FieldChange) -> None:
        """Add a change to a Java update of a schema."""
        parent, name, type = ".".join(change.path[:-1]), change.path[-1], self._type(change.type)
        if change.widen:
            update.updateColumn(".".join(change.path), type)
        elif parent:
            update.addColumn(parent, name, type)
        else:
            update.addColumn(name, type)

    def read_columns(self, loaded: LoadedTable[JavaBase]) -> tuple[Column, ...]:
        """Return the columns of a table that was loaded."""
        with translate_java_errors(""):
            return parse_columns({"schema": self._schema(loaded)})

    def write(self, loaded: LoadedTable[JavaBase], rows: pa.Table, folder: str) -> list[Any]:
        """Write rows as few data files in a folder, sorted and partitioned as their table is; return the files.

        Nothing is committed. `SparkTableCache`, `FileRewriteCoordinator`, `StaticTableOperations`.

        Args:
            loaded: at the table.
            rows: with all of its columns.
            folder: a URI; "": the folder of the table's own files.

        Raises:
            BatchRejected: Spark doesn't write such a table.
            StoreUnreachable, StoreDenied: a file isn't written.
        """
        iceberg, id = jvm(self.spark).org.apache.iceberg, str(uuid.uuid4())
        with translate_java_errors(""):
            if self._is_arrow_enough(loaded, rows):
                return [self._write_file(loaded, rows, folder)]
            times = time_ids(self._schema(loaded))
            self._require_readable_partitions(loaded)
            memory_table = self._build_memory_table(self._readable_metadata(loaded), folder, loaded)
            spec, sorted_by = loaded.base.metadata.spec(), loaded.base.metadata.sortOrder()
            coordinator = iceberg.spark.FileRewriteCoordinator.get()
            cache = self._table_cache(coordinator)
            cache.add(id, memory_table)
            try:
                frame = self.spark.createDataFrame(convert_to_longs(rows) if times else rows).coalesce(1)
                writer = frame.write.format("iceberg").mode("append").option("check-nullability", "false")
                writer = writer.option("output-spec-id", spec.specId()).option("fanout-enabled", "false")
                writer = writer.option("write-format", "parquet") if times else writer
                distribution = "hash" if spec.isPartitioned() and not sorted_by.isSorted() else "none"
                writer.option("distribution-mode", distribution).save(id)
                files = list(coordinator.fetchNewFiles(memory_table, id))
            finally:
                coordinator.clearRewrite(memory_table, id)
                cache.remove(id)
            return [self._restore_times(loaded, file, times) for file in files] if times else files

    def read_staged(self, table: SparkTable, loaded: LoadedTable[JavaBase], snapshot: int) -> DataFrame:
        """Return the rows that a staged snapshot adds; of a column of type `time` the microseconds.

        Args:
            loaded: at it.
        """
        with translate_java_errors(table.name):
            base = self._readable_metadata(loaded)
            operations = self._operations(base, loaded) if base is not loaded.base.metadata else loaded.base.operations
        return table.read_rows(replace(loaded, base=JavaBase(operations, base)), snapshot)

    def _schema(self, loaded: LoadedTable[JavaBase]) -> Mapping[str, Any]:
        schema = jvm(self.spark).org.apache.iceberg.SchemaParser.toJson(loaded.base.metadata.schema())
        fields: Mapping[str, Any] = json.loads(schema)
        return fields

    def _readable_metadata(self, loaded: LoadedTable[JavaBase]) -> Any:
        """Return a table's metadata as Spark takes it: with whole numbers where it has times."""
        metadata = loaded.base.metadata
        if not time_ids(self._schema(loaded)):
            return metadata
        return self._parser().fromJson(json.dumps(replace_times(json.loads(self._parser().toJson(metadata)))))

    def _require_readable_partitions(self, loaded: LoadedTable[JavaBase]) -> None:
        """See that no partition has a value of type `fixed`: Iceberg's Spark writes it into manifests as `binary`, and
        no reader accepts them.
        """
        parser, spec = jvm(self.spark).org.apache.iceberg.PartitionSpecParser, loaded.base.metadata.spec()
        types = dict(field_types(self._schema(loaded)))
        for field in json.loads(parser.toJson(spec))["fields"]:
            if field["transform"] == "identity" and parse_fixed(types.get(field["source-id"], "")) is not None:
                raise BatchRejected(
                    f"the table is partitioned by {field['name']!r}, of type {types[field['source-id']]}: Spark writes "
                    "manifests of it that can't be read",
                    hint="partition it by bucket, and replay the batch",
                )

    def _is_arrow_enough(self, loaded: LoadedTable[JavaBase], rows: pa.Table) -> bool:
        """Return whether rows needn't be handed to Spark, which partitions and sorts them."""
        metadata = loaded.base.metadata
        in_order = metadata.spec().fields().isEmpty() and metadata.sortOrder().isUnsorted()
        return bool(in_order) and can_write(self._schema(loaded), loaded.state.properties, rows.nbytes)

    def _write_file(self, loaded: LoadedTable[JavaBase], rows: pa.Table, folder: str) -> Any:
        """Write rows as one data file; `LocationProvider`, `DataFiles`."""
        iceberg = jvm(self.spark).org.apache.iceberg
        memory_table = self._build_memory_table(loaded.base.metadata, folder, loaded)
        uri = str(memory_table.locationProvider().newDataLocation(f"00000-0-{uuid.uuid4()}-00001.parquet"))
        with tempfile.TemporaryDirectory(prefix="sterna-file-") as name:
            path = Path(name) / "file"
            write_rows(rows, path, self._schema(loaded), loaded.state.properties)
            builder = iceberg.DataFiles.builder(loaded.base.metadata.spec()).withPath(uri).withFormat("parquet")
            return self._put_file(loaded, path, uri, builder, may_have_nan=has_nan(rows))

    def _put_file(
        self, loaded: LoadedTable[JavaBase], path: Path, uri: str, builder: Any, *, may_have_nan: bool = True
    ) -> Any:
        """Put a file of this machine into the store, and return its data file; `ParquetUtil.fileMetrics`, `Files`."""
        iceberg, schema = jvm(self.spark).org.apache.iceberg, self._schema(loaded)
        write_file(self._context.objects, uri, path)
        incomplete = incomplete_ids(pq.read_metadata(path), schema) | (float_ids(schema) if may_have_nan else set())
        table = iceberg.BaseTable(self._operations(loaded.base.metadata, loaded), "")
        config, source = iceberg.MetricsConfig.forTable(table), iceberg.Files.localInput(str(path))
        metrics = read_metrics(jvm(self.spark), source, config, incomplete)
        return builder.withFileSizeInBytes(path.stat().st_size).withMetrics(metrics).build()

    def _restore_times(self, loaded: LoadedTable[JavaBase], file: Any, ids: set[int]) -> Any:
        """Give an uncommitted data file the type `time`."""
        iceberg, uri, objects = jvm(self.spark).org.apache.iceberg, str(file.location()), self._context.objects
        with tempfile.TemporaryDirectory(prefix="sterna-times-") as name:
            source, target = Path(name) / "source", Path(name) / "target"
            read_file(objects, uri, source)
            write_times(source, target, ids)
            builder = iceberg.DataFiles.builder(loaded.base.metadata.spec()).copy(file)
            # The row groups have other offsets now; without split offsets readers split by size.
            return self._put_file(loaded, target, uri, builder.withSplitOffsets(None))

    def _table_cache(self, coordinator: Any) -> Any:
        """Return `SparkTableCache.get()`: there is an instance's `get`, too, and Py4J takes the one that Java names
        first, which is another one where classes come from an archive.
        """
        gateway: Any = self.spark.sparkContext._gateway
        java, array = jvm(self.spark).java.lang, gateway.new_array
        loader = coordinator.getClass().getClassLoader()
        kind = java.Class.forName("org.apache.iceberg.spark.SparkTableCache", True, loader)
        return kind.getMethod("get", array(java.Class, 0)).invoke(None, array(java.Object, 0))

    def _build_memory_table(self, metadata: Any, folder: str, loaded: LoadedTable[JavaBase]) -> Any:
        iceberg = jvm(self.spark).org.apache.iceberg
        if folder:
            metadata = with_properties(jvm(self.spark), metadata, {"write.data.path": folder})
        return iceberg.BaseTable(self._operations(metadata, loaded), metadata.uuid())

    def _operations(self, metadata: Any, loaded: LoadedTable[JavaBase]) -> Any:
        iceberg = jvm(self.spark).org.apache.iceberg
        locations = iceberg.LocationProviders.locationsFor(metadata.location(), metadata.properties())
        return iceberg.StaticTableOperations(metadata, loaded.base.operations.io(), locations)

    def _create_namespaces(self, key: str) -> None:
        names = key.split(".")[:-1]
        namespace_class = jvm(self.spark).org.apache.iceberg.catalog.Namespace
        for depth in range(1, len(names) + 1):
            namespace = namespace_class.of(self._array(names[:depth]))
            if not self._catalog.namespaceExists(namespace):
                self._catalog.createNamespace(namespace, java_map(jvm(self.spark), {}))

    def _identifier(self, key: str) -> Any:
        return self._main.identifier(tuple(key.split(".")))

    def _metadata(self, table: Any) -> Mapping[str, Any]:
        metadata: Mapping[str, Any] = json.loads(self._parser().toJson(table.operations().current()))
        return metadata

    def _parser(self) -> Any:
        return jvm(self.spark).org.apache.iceberg.TableMetadataParser

    def _type(self, type: Type) -> Any:
        """Return Java's type of a column: by a schema of it alone."""
        schema = jvm(self.spark).org.apache.iceberg.SchemaParser.fromJson(json.dumps(_schema([Column("it", type)])))
        return schema.findType("it")

    def _array(self, texts: Sequence[str]) -> Any:
        return java_array(self.spark.sparkContext._gateway, jvm(self.spark).java.lang.String, texts)


def _schema(columns: Sequence[Column]) -> dict[str, Any]:
    """Return a schema as Iceberg's JSON writes it, with ids of its own."""
    ids = iter(range(1, 1_000_000))
    fields = [_field(ids, column.name, column.type, required=column.required) for column in columns]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _field(ids: Any, name: str, type: Type, *, required: bool) -> dict[str, Any]:
    return {"id": next(ids), "name": name, "required": required, "type": _json_type(ids, type)}


def _json_type(ids: Any, type: Type) -> Any:
    if isinstance(type, str):
        sizes = parse_decimal(type)
        return f"decimal({sizes[0]}, {sizes[1]})" if sizes else type
    if type["type"] == "list":
        element = {"element-id": next(ids), "element-required": False}
        return {"type": "list", **element, "element": _json_type(ids, type["element"])}
    if type["type"] == "map":
        key, value = {"key-id": next(ids), "value-id": next(ids)}, {"value-required": False}
        types = {"key": _json_type(ids, type["key"]), "value": _json_type(ids, type["value"])}
        return {"type": "map", **key, **value, **types}
    fields = [_field(ids, field["name"], field["type"], required=False) for field in type["fields"]]
    return {"type": "struct", "fields": fields}
