"""One pinned table as something that DuckDB scans: of the files alone where that is exact, else through PyIceberg,
and by the region's Spark where that isn't exact either.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.dataset as pads
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io.pyarrow import ArrowScan, pyarrow_to_schema, schema_to_pyarrow
from pyiceberg.manifest import DataFileContent, FileFormat, ManifestContent
from pyiceberg.schema import Schema
from pyiceberg.serializers import FromInputFile
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.types import (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FixedType,
    FloatType,
    IcebergType,
    IntegerType,
    ListType,
    LongType,
    MapType,
    StringType,
    StructType,
    TimestampType,
    TimestamptzType,
    UUIDType,
)

from sterna.errors import BrokenMetadata, NeedsSpark, SnapshotGone
from sterna.query.engine.by_spark import BySpark, needed
from sterna.query.engine.files import Reading, StoresIO
from sterna.query.job import PinnedTable

_EXACT = (
    BinaryType,
    BooleanType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    StringType,
    TimestampType,
    TimestamptzType,
)
_BY_SPARK = (FixedType, UUIDType)  # as bytes, and as text
_FOOTERS_AT_ONCE = 8
_AHEAD = {"batch_readahead": 2, "fragment_readahead": 2}  # the defaults hold many times the memory of a query


class PinnedDataset(pads.Dataset):  # type: ignore[misc]
    """A table at one snapshot, as a dataset of Arrow's: DuckDB asks it for columns and a filter.

    Args:
        source: what is scanned.
    """

    def __init__(self, source: DataFiles | LiveRows | BySpark) -> None:
        # Not Arrow's own: nothing stands behind it but what DuckDB asks for, these two.
        self._source = source

    @property
    def schema(self) -> pa.Schema:
        """The table's columns."""
        return self._source.schema

    def scanner(self, columns: list[str] | None = None, filter: Any = None, **_: Any) -> pads.Scanner:
        """Return a scan of some columns (none named: all) of the rows that a filter leaves."""
        names = self._source.schema.names if columns is None else columns
        return self._source.scanner(names, filter)


@dataclass(frozen=True)
class DataFiles:
    """Files that have the snapshot's schema, and no deletes: Arrow reads them as they are."""

    dataset: pads.Dataset

    @property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    def scanner(self, columns: list[str], filter: Any) -> pads.Scanner:
        return self.dataset.scanner(columns=columns, filter=filter, **_AHEAD)


@dataclass(frozen=True)
class LiveRows:
    """Files that PyIceberg reads, one after another: it knows of deletes, field ids and changed schemas."""

    name: str
    metadata: TableMetadata
    io: StoresIO
    reading: Reading
    wanted: Schema
    tasks: tuple[FileScanTask, ...]

    @property
    def schema(self) -> pa.Schema:
        return schema_to_pyarrow(self.wanted, include_field_ids=False)

    def scanner(self, columns: list[str], filter: Any) -> pads.Scanner:
        narrow = needed(self.wanted, columns, filter)
        schema = schema_to_pyarrow(narrow, include_field_ids=False)
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(narrow, schema))
        return pads.Scanner.from_batches(reader, columns=columns, filter=filter)

    def _batches(self, narrow: Schema, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        scan = ArrowScan(self.metadata, self.io, narrow, AlwaysTrue())
        for task in self.tasks:
            with self.reading.of(self.name, task.file.file_path):
                for batch in scan.to_record_batches([task]):
                    self.reading.go_on()
                    yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def open_table(number: int, pin: PinnedTable, reading: Reading) -> PinnedDataset:
    """Return a table at its pin; reads metadata and footers.

    Args:
        number: of the table in its job.
        pin: the table.
        reading: the query's reading.

    Raises:
        NeedsSpark: nothing reads it exactly, Spark neither.
        SnapshotGone: the metadata doesn't list the snapshot.
        BrokenMetadata: it names a file of another region, or a schema that it hasn't got.
        StoreError: a file can't be read.
    """
    io = StoresIO(reading)
    metadata = FromInputFile.table_metadata(io.new_input(pin.metadata))
    snapshot = None if pin.snapshot is None else metadata.snapshot_by_id(pin.snapshot)
    if pin.snapshot is not None and snapshot is None:
        raise SnapshotGone(f"snapshot {pin.snapshot} is not listed any more", table=pin.name, file=pin.metadata)
    schema = metadata.schema()
    if pin.own_schema and snapshot is not None and snapshot.schema_id is not None:
        schema = _schema(metadata, snapshot.schema_id, pin)
    _refuse_what_nothing_reads(schema, pin.name)
    manifests = snapshot.manifests(io) if snapshot is not None else []
    tasks: tuple[FileScanTask, ...] = ()
    reason = _odd_type(schema) or _equality_deletes(manifests, io)
    if snapshot is not None and not reason:
        table = Table(pin.key, metadata, pin.metadata, io, catalog=None)  # type: ignore[arg-type]
        tasks = tuple(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        reason = _odd_format(tasks)
    if reason:
        places = tuple(sorted({reading.place(pin.metadata), *_places(manifests, io, reading)}))
        return PinnedDataset(BySpark(reading, number, pin.name, schema, places, reason))
    files = _as_they_are(pin.name, metadata, schema, tasks, reading)
    return PinnedDataset(files or LiveRows(pin.name, metadata, io, reading, schema, tasks))


def _schema(metadata: TableMetadata, id: int, pin: PinnedTable) -> Schema:
    for schema in metadata.schemas:
        if schema.schema_id == id:
            return schema
    message = f"a snapshot names schema {id}, which the table has not got"
    raise BrokenMetadata(message, table=pin.name, file=pin.metadata)


def _refuse_what_nothing_reads(schema: Schema, name: str) -> None:
    for field in schema.fields:
        for kind in _leaves(field.field_type):
            if not isinstance(kind, (*_EXACT, *_BY_SPARK)):
                raise NeedsSpark(f"column {field.name} has the type {kind}, and Spark reads none of those", table=name)
    if len({field.name.lower() for field in schema.fields}) < len(schema.fields):
        raise NeedsSpark("two columns differ by capital letters alone, which SQL here can't tell", table=name)


def _odd_type(schema: Schema) -> str:
    for field in schema.fields:
        for kind in _leaves(field.field_type):
            if isinstance(kind, _BY_SPARK):
                return f"column {field.name} has the type {kind}"
    return ""


def _leaves(kind: IcebergType) -> Iterator[IcebergType]:
    if isinstance(kind, StructType):
        for field in kind.fields:
            yield from _leaves(field.field_type)
    elif isinstance(kind, ListType):
        yield from _leaves(kind.element_type)
    elif isinstance(kind, MapType):
        yield from _leaves(kind.key_type)
        yield from _leaves(kind.value_type)
    else:
        yield kind


def _equality_deletes(manifests: list[Any], io: StoresIO) -> str:
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                    return "the snapshot has equality deletes"
    return ""


def _odd_format(tasks: tuple[FileScanTask, ...]) -> str:
    for task in tasks:
        if task.file.file_format != FileFormat.PARQUET:
            return f"the snapshot has files in the format {task.file.file_format.value}"
        for deletes in task.delete_files:
            if deletes.file_format not in (FileFormat.PARQUET, FileFormat.PUFFIN):
                return f"the snapshot has deletes in the format {deletes.file_format.value}"
    return ""


def _places(manifests: list[Any], io: StoresIO, reading: Reading) -> Iterator[str]:
    """Yield where files lie, each looked at before Spark is: it would open whatever is named, wherever that is."""
    for manifest in manifests:
        yield reading.place(manifest.manifest_path)
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            yield reading.place(entry.data_file.file_path)


def _as_they_are(
    name: str, metadata: TableMetadata, schema: Schema, tasks: tuple[FileScanTask, ...], reading: Reading
) -> DataFiles | None:
    """Return the files where all of them have the very schema and no deletes, else None."""
    if not tasks or any(task.delete_files for task in tasks):
        return None
    format = pads.ParquetFileFormat()

    def fragment(task: FileScanTask) -> Any:
        file = reading.file(task.file.file_path, task.file.file_size_in_bytes)
        with reading.of(name, task.file.file_path):
            made = format.make_fragment(pa.PythonFile(file, mode="r"))
            return made, made.physical_schema

    with ThreadPoolExecutor(_FOOTERS_AT_ONCE) as pool:
        found = list(pool.map(fragment, tasks))
    first = found[0][1]
    if not all(each.equals(first, check_metadata=False) for _, each in found):
        return None
    if not all(_has(each, schema, metadata.format_version) for _, each in found):
        return None
    plain = pa.schema([field.remove_metadata() for field in first])
    return DataFiles(pads.FileSystemDataset([each for each, _ in found], plain, format))


def _has(physical: pa.Schema, schema: Schema, version: int) -> bool:
    """Tell whether a file has the columns of a schema: ids, names, types, in that order, and no others."""
    try:
        own = pyarrow_to_schema(physical, format_version=version)  # type: ignore[arg-type]
    except (ValueError, TypeError):  # no ids, or types that Iceberg hasn't
        return False
    return bool(_shape(own.as_struct()) == _shape(schema.as_struct()))


def _shape(kind: IcebergType) -> Any:
    if isinstance(kind, StructType):
        return tuple((field.field_id, field.name, _shape(field.field_type)) for field in kind.fields)
    if isinstance(kind, ListType):
        return "list", kind.element_id, _shape(kind.element_type)
    if isinstance(kind, MapType):
        return "map", kind.key_id, _shape(kind.key_type), kind.value_id, _shape(kind.value_type)
    return str(kind)
