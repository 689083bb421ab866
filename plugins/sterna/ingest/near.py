"""Tables of `main` as a worker reaches them: metadata at a table's home, data files in the worker's own region.

The one module of ingestion that calls the JVM. A catalog of its own has one FileIO with the credentials of every
location, by prefix: so one commit reads and writes metadata in one region, and names files in another. Data files are
written by Spark's own writer for Iceberg, without a commit: to a table in memory whose `write.data.path` is near.
"""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sterna.edges.spark.main_tables import show_in_sql
from sterna.edges.spark.start import failures, summary
from sterna.edges.stores.writing import read_file, write_file
from sterna.errors import BatchRejected, EngineError, TableMoved
from sterna.ingest.column_types import Type, decimal, fixed
from sterna.ingest.columns import Column, Evolution, Inner, columns_of, type_at
from sterna.ingest.time_columns import as_longs, as_times, field_types, time_ids, with_longs
from sterna.registry.credential import fileio_properties
from sterna.wap.protocol import Look
from sterna.wap.spark import JavaBase, SparkTable, java_errors, jvm, require_jvm

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from sterna.replica.region import RegionContext

_REWRITES = "spark.sql.catalog.default_rewrite_catalog"
_STAGED = {"write.wap.enabled": "true", "commit.retry.num-retries": "30"}


class NearCatalog:
    """The catalog that takes commits, with the stores of all locations.

    Args:
        spark: a classic session.
        context: the region.
        credential_id: the login at the catalog, a writer's; None: the region's own.

    Raises:
        NotStaged: the session is one of Spark Connect.
        NoIceberg: its driver lacks Iceberg's runtime.
        CredentialError: one is missing.
    """

    def __init__(self, spark: SparkSession, context: RegionContext, credential_id: str | None = None) -> None:
        require_jvm(spark)
        self.spark, self._context, self._credential_id = spark, context, credential_id
        spark.conf.set(_REWRITES, "org.apache.iceberg.spark.SparkRewriteTableCatalog")
        with java_errors(""):
            self._catalog = self._open()

    def table(self, key: str) -> SparkTable:
        """Return a table by its dotted key, whether it is there or not."""
        name = self._identifier(key)
        return SparkTable(self.spark, key, lambda: self._catalog.loadTable(name))

    def has(self, key: str) -> bool:
        """Say whether `main` has a table."""
        with java_errors(key):
            return bool(self._catalog.tableExists(self._identifier(key)))

    def show(self, name: str) -> None:
        """Let the session's SQL name the tables of `main`.

        Args:
            name: what SQL calls the catalog; not used in the session before.
        """
        show_in_sql(self.spark, name, self._catalog)

    def create(
        self, key: str, columns: Sequence[Column], location: str, properties: Mapping[str, str] | None = None
    ) -> None:
        """Make a table, and the namespaces that it needs; one that is there by now is as well.

        Args:
            key: its dotted key.
            columns: its columns.
            location: the URI below which it is to lie.
            properties: more of its properties.
        """
        iceberg = jvm(self.spark).org.apache.iceberg
        schema = iceberg.SchemaParser.fromJson(json.dumps(_schema(columns)))
        identifier = self._identifier(key)
        try:
            self._make_namespaces(key)
            self._catalog.createTable(
                identifier,
                schema,
                iceberg.PartitionSpec.unpartitioned(),
                location,
                self._map({**_STAGED, **(properties or {})}),
            )
        except failures() as error:
            if "AlreadyExistsException" not in str(error):
                raise EngineError(f"the table can't be made: {summary(error, 3)}", table=key) from None

    def evolve(self, key: str, more: Evolution) -> None:
        """Add and widen columns, in one commit; what somebody else has done of it meanwhile is left as it is.

        A column that two regions add at once has one id: the second commit is refused, and looks again.
        """
        identifier = self._identifier(key)
        for _ in range(10):
            table = self._catalog.loadTable(identifier)
            there = columns_of(self._metadata(table))
            update = table.updateSchema()
            wanted = [
                *self._add(update, there, [Inner((column.name,), column.type) for column in more.add]),
                *self._add(update, there, more.inner),
                *self._widen(update, there, [Inner((column.name,), column.type, True) for column in more.widen]),
                *self._widen(update, there, more.inner),
            ]
            try:
                if wanted:
                    with java_errors(key):
                        update.commit()
                return
            except TableMoved:
                continue
        raise TableMoved("the schema was changed by others each time", table=key)

    def _add(self, update: Any, there: Sequence[Column], fields: Sequence[Inner]) -> list[Inner]:
        missing = [field for field in fields if not field.widen and type_at(there, field.path) is None]
        for field in missing:
            type = self._type(field.type)
            if len(field.path) == 1:
                update.addColumn(field.path[0], type)
            else:
                update.addColumn(".".join(field.path[:-1]), field.path[-1], type)
        return missing

    def _widen(self, update: Any, there: Sequence[Column], fields: Sequence[Inner]) -> list[Inner]:
        narrow = [field for field in fields if field.widen and type_at(there, field.path) != field.type]
        for field in narrow:
            update.updateColumn(".".join(field.path), self._type(field.type))
        return narrow

    def columns(self, look: Look[JavaBase]) -> tuple[Column, ...]:
        """Return the columns of a table that was looked at."""
        with java_errors(""):
            return columns_of({"schema": self._schema_of(look)})

    def write(self, look: Look[JavaBase], rows: pa.Table, folder: str) -> list[Any]:
        """Write rows as few data files in a folder, sorted and partitioned as their table is; return the files.

        Nothing is committed. `SparkTableCache`, `FileRewriteCoordinator`, `StaticTableOperations`.

        Args:
            look: at the table.
            rows: with all of its columns.
            folder: a URI; "": where the table's own files lie.

        Raises:
            BatchRejected: Spark doesn't write such a table.
        """
        iceberg, id = jvm(self.spark).org.apache.iceberg, str(uuid.uuid4())
        with java_errors(""):
            times = time_ids(self._schema_of(look))
            self._refuse_partitions(look)
            near = self._in_memory(self._readable(look), folder, look)
            spec, sorted_by = look.base.metadata.spec(), look.base.metadata.sortOrder()
            coordinator = iceberg.spark.FileRewriteCoordinator.get()
            cache = self._table_cache(coordinator)
            cache.add(id, near)
            try:
                frame = self.spark.createDataFrame(as_longs(rows) if times else rows).coalesce(1)
                writer = frame.write.format("iceberg").mode("append").option("check-nullability", "false")
                writer = writer.option("output-spec-id", spec.specId()).option("fanout-enabled", "false")
                writer = writer.option("write-format", "parquet") if times else writer
                spread = "hash" if spec.isPartitioned() and not sorted_by.isSorted() else "none"
                writer.option("distribution-mode", spread).save(id)
                files = list(coordinator.fetchNewFiles(near, id))
            finally:
                coordinator.clearRewrite(near, id)
                cache.remove(id)
            return [self._with_times(look, file, times) for file in files] if times else files

    def rows(self, table: SparkTable, look: Look[JavaBase], snapshot: int) -> DataFrame:
        """Return the rows that a staged snapshot brings; of a column of type `time` the microseconds.

        Args:
            table: the table.
            look: at it.
            snapshot: the snapshot.
        """
        with java_errors(table.name):
            base = self._readable(look)
            operations = self._operations(base, look) if base is not look.base.metadata else look.base.operations
        return table.rows(replace(look, base=JavaBase(operations, base)), snapshot)

    def _schema_of(self, look: Look[JavaBase]) -> Mapping[str, Any]:
        schema = jvm(self.spark).org.apache.iceberg.SchemaParser.toJson(look.base.metadata.schema())
        fields: Mapping[str, Any] = json.loads(schema)
        return fields

    def _readable(self, look: Look[JavaBase]) -> Any:
        """Return a table's metadata as Spark takes it: with whole numbers where it has times."""
        metadata = look.base.metadata
        if not time_ids(self._schema_of(look)):
            return metadata
        return self._parser().fromJson(json.dumps(with_longs(json.loads(self._parser().toJson(metadata)))))

    def _refuse_partitions(self, look: Look[JavaBase]) -> None:
        """See that no partition has a value of type `fixed`: Iceberg's Spark writes it into manifests as `binary`, and
        nobody reads them after.
        """
        parser, spec = jvm(self.spark).org.apache.iceberg.PartitionSpecParser, look.base.metadata.spec()
        types = dict(field_types(self._schema_of(look)))
        for field in json.loads(parser.toJson(spec))["fields"]:
            if field["transform"] == "identity" and fixed(types.get(field["source-id"], "")) is not None:
                raise BatchRejected(
                    f"the table is partitioned by {field['name']!r}, of type {types[field['source-id']]}: Spark writes "
                    "manifests of it that can't be read",
                    hint="partition it by bucket, and replay the batch",
                )

    def _with_times(self, look: Look[JavaBase], file: Any, ids: set[int]) -> Any:
        """Give a data file that nobody knows yet the type `time`; `ParquetUtil.fileMetrics`, `DataFiles`."""
        iceberg, uri, objects = jvm(self.spark).org.apache.iceberg, str(file.location()), self._context.objects
        with tempfile.TemporaryDirectory(prefix="sterna-times-") as name:
            source, target = Path(name) / "source", Path(name) / "target"
            read_file(objects, uri, source)
            as_times(source, target, ids)
            write_file(objects, uri, target)
            size = target.stat().st_size
        table = iceberg.BaseTable(self._operations(look.base.metadata, look), "")
        config = iceberg.MetricsConfig.forTable(table)
        metrics = iceberg.parquet.ParquetUtil.fileMetrics(look.base.operations.io().newInputFile(uri), config)
        builder = iceberg.DataFiles.builder(look.base.metadata.spec()).copy(file)
        # Where the row groups begin is another place now, and nobody has to be told: readers split by size then.
        return builder.withFileSizeInBytes(size).withMetrics(metrics).withSplitOffsets(None).build()

    def _table_cache(self, beside: Any) -> Any:
        """Return `SparkTableCache.get()`: there is an instance's `get`, too, and Py4J takes the one that Java names
        first, which is another one where classes come from an archive.
        """
        gateway: Any = self.spark.sparkContext._gateway
        java, array = jvm(self.spark).java.lang, gateway.new_array
        loader = beside.getClass().getClassLoader()
        kind = java.Class.forName("org.apache.iceberg.spark.SparkTableCache", True, loader)
        return kind.getMethod("get", array(java.Class, 0)).invoke(None, array(java.Object, 0))

    def _in_memory(self, metadata: Any, folder: str, look: Look[JavaBase]) -> Any:
        iceberg = jvm(self.spark).org.apache.iceberg
        if folder:
            builder = iceberg.TableMetadata.buildFrom(metadata).setProperties(self._map({"write.data.path": folder}))
            metadata = builder.discardChanges().build()
        return iceberg.BaseTable(self._operations(metadata, look), metadata.uuid())

    def _operations(self, metadata: Any, look: Look[JavaBase]) -> Any:
        iceberg = jvm(self.spark).org.apache.iceberg
        places = iceberg.LocationProviders.locationsFor(metadata.location(), metadata.properties())
        return iceberg.StaticTableOperations(metadata, look.base.operations.io(), places)

    def _open(self) -> Any:
        java, primary = jvm(self.spark), self._context.ports.primary_region.catalog
        builder = java.org.projectnessie.client.NessieClientBuilder.createClientBuilder("HTTP", None)
        builder = builder.withUri(primary.write)
        if id := self._credential_id or primary.credential_id:
            credential, auth = self._context.secrets(id), java.org.projectnessie.client.auth
            builder = builder.withAuthentication(
                auth.BasicAuthenticationProvider.create(credential.login, credential.password)
                if credential.login
                else auth.BearerAuthenticationProvider.create(credential.password)
            )
        loader = java.java.lang.Thread.currentThread().getContextClassLoader()
        api = builder.build(java.java.lang.Class.forName("org.projectnessie.client.api.NessieApiV2", True, loader))
        options = self._map({"warehouse": self._context.region.replica_root, "uri": primary.write})
        client = java.org.apache.iceberg.nessie.NessieIcebergClient(api, "main", None, options)
        catalog = java.org.apache.iceberg.nessie.NessieCatalog()
        catalog.initialize("sterna", client, self._file_io(), options)
        return catalog

    def _file_io(self) -> Any:
        """Return a FileIO that reads and writes each location with its own settings (`StorageCredential`)."""
        java = jvm(self.spark)
        credentials = java.java.util.ArrayList()
        for location in self._context.registry.locations:
            secret = self._context.secrets(location.credential_id) if location.credential_id else None
            properties = self._map(fileio_properties(location, secret))
            credentials.add(java.org.apache.iceberg.io.StorageCredential.create(f"{location.prefix}/", properties))
        return java.org.apache.iceberg.CatalogUtil.loadFileIO(
            "org.apache.iceberg.io.ResolvingFileIO",
            self._map({}),
            self.spark.sparkContext._jsc.hadoopConfiguration(),
            credentials,
        )

    def _make_namespaces(self, key: str) -> None:
        names = key.split(".")[:-1]
        space = jvm(self.spark).org.apache.iceberg.catalog.Namespace
        for depth in range(1, len(names) + 1):
            namespace = space.of(self._array(names[:depth]))
            if not self._catalog.namespaceExists(namespace):
                self._catalog.createNamespace(namespace, self._map({}))

    def _identifier(self, key: str) -> Any:
        return jvm(self.spark).org.apache.iceberg.catalog.TableIdentifier.of(self._array(key.split(".")))

    def _metadata(self, table: Any) -> Mapping[str, Any]:
        told: Mapping[str, Any] = json.loads(self._parser().toJson(table.operations().current()))
        return told

    def _parser(self) -> Any:
        return jvm(self.spark).org.apache.iceberg.TableMetadataParser

    def _type(self, type: Type) -> Any:
        """Return Java's type of a column: by a schema of it alone."""
        schema = jvm(self.spark).org.apache.iceberg.SchemaParser.fromJson(json.dumps(_schema([Column("it", type)])))
        return schema.findType("it")

    def _array(self, words: Sequence[str]) -> Any:
        gateway = self.spark.sparkContext._gateway
        assert gateway is not None
        made = gateway.new_array(jvm(self.spark).java.lang.String, len(words))
        for place, name in enumerate(words):
            made[place] = name
        return made

    def _map(self, values: Mapping[str, str]) -> Any:
        made = jvm(self.spark).java.util.HashMap()
        for name, value in values.items():
            made.put(name, value)
        return made


def _schema(columns: Sequence[Column]) -> dict[str, Any]:
    """Return a schema as Iceberg's JSON writes it, with ids of its own."""
    ids = iter(range(1, 1_000_000))
    fields = [_field(ids, column.name, column.type, required=column.required) for column in columns]
    return {"type": "struct", "schema-id": 0, "fields": fields}


def _field(ids: Any, name: str, type: Type, *, required: bool) -> dict[str, Any]:
    return {"id": next(ids), "name": name, "required": required, "type": _json_type(ids, type)}


def _json_type(ids: Any, type: Type) -> Any:
    if isinstance(type, str):
        sizes = decimal(type)
        return f"decimal({sizes[0]}, {sizes[1]})" if sizes else type
    if type["type"] == "list":
        element = {"element-id": next(ids), "element-required": False}
        return {"type": "list", **element, "element": _json_type(ids, type["element"])}
    if type["type"] == "map":
        key, value = {"key-id": next(ids), "value-id": next(ids)}, {"value-required": False}
        types = {"key": _json_type(ids, type["key"]), "value": _json_type(ids, type["value"])}
        return {"type": "map", **key, **value, **types}
    fields = [_field(ids, each["name"], each["type"], required=False) for each in type["fields"]]
    return {"type": "struct", "fields": fields}
