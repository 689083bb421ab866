"""One pinned table as something that DuckDB scans: of the files alone where that is exact, else through PyIceberg,
and by the region's Spark where that isn't exact either.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, compress
from operator import not_
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
from sterna.serving.queries.engine.files import ReadSession, StoresIO
from sterna.serving.queries.engine.spark_tables import SparkFiles, project_schema
from sterna.serving.queries.job import PinnedTable
from sterna.storage.ranges import ObjectReader

_EXACT_TYPES = (
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
_SPARK_TYPES = (FixedType, UUIDType)  # as bytes, and as text
_MAX_FOOTER_READS = 8
_FOOTER_BYTES = 64 << 10  # that Arrow reads of a file's end
_READAHEAD = {"batch_readahead": 2, "fragment_readahead": 2}  # the defaults hold many times the memory of a query


class PinnedDataset(pads.Dataset):  # type: ignore[misc]
    """A table at one snapshot, as a dataset of Arrow's: DuckDB reads columns of it by a filter.

    Args:
        source: what is scanned.
    """

    def __init__(self, source: DataFiles | LiveRows | SparkFiles) -> None:
        # Not Arrow's own: it has nothing but what DuckDB calls, these two.
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

    dataset: pads.FileSystemDataset
    table_schema: Schema

    @property
    def schema(self) -> pa.Schema:
        return self.dataset.schema

    def scanner(self, columns: list[str], filter: Any) -> pads.Scanner:
        """Return a scan; of files that a filter leaves whole, by their statistics, its columns are not read."""
        whole, others = self._split(filter)
        if not whole:
            return self.dataset.scanner(columns=columns, filter=filter, **_READAHEAD)
        every_row = self._part(whole).scanner(columns=columns, **_READAHEAD)
        if not others:
            return every_row
        filtered = self._part(others).scanner(columns=columns, filter=filter, **_READAHEAD)
        batches = chain(filtered.to_reader(), every_row.to_reader())
        return pads.Scanner.from_batches(pa.RecordBatchReader.from_batches(filtered.projected_schema, batches))

    def _split(self, filter: Any) -> tuple[list[Any], list[Any]]:
        """Return the files whose statistics prove that a filter leaves each row, and the others."""
        fragments = list(self.dataset.get_fragments())
        rejected = _rejecting_filter(project_schema(self.table_schema, [], filter), filter)
        if rejected is None:
            return [], fragments
        is_whole = [not fragment.subset(filter=rejected).num_row_groups for fragment in fragments]
        return list(compress(fragments, is_whole)), list(compress(fragments, map(not_, is_whole)))

    def _part(self, fragments: list[Any]) -> pads.FileSystemDataset:
        return pads.FileSystemDataset(fragments, self.dataset.schema, self.dataset.format)


@dataclass(frozen=True)
class LiveRows:
    """Files that PyIceberg reads, one after another: it applies deletes, field ids and changed schemas."""

    name: str
    metadata: TableMetadata
    io: StoresIO
    session: ReadSession
    table_schema: Schema
    tasks: tuple[FileScanTask, ...]

    @property
    def schema(self) -> pa.Schema:
        return schema_to_pyarrow(self.table_schema, include_field_ids=False)

    def scanner(self, columns: list[str], filter: Any) -> pads.Scanner:
        projected = project_schema(self.table_schema, columns, filter)
        schema = schema_to_pyarrow(projected, include_field_ids=False)
        reader = pa.RecordBatchReader.from_batches(schema, self._batches(projected, schema))
        return pads.Scanner.from_batches(reader, columns=columns, filter=filter)

    def _batches(self, projected: Schema, schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        scan = ArrowScan(self.metadata, self.io, projected, AlwaysTrue())
        for task in self.tasks:
            with self.session.attribute_errors(self.name, task.file.file_path):
                for batch in scan.to_record_batches([task]):
                    self.session.check_limits()
                    yield from pa.Table.from_batches([batch]).cast(schema).to_batches()


def _rejecting_filter(schema: Schema, filter: Any) -> Any:
    """Return a filter of the rows that another one may leave out; None where statistics can't prove that it leaves all.

    Args:
        schema: of columns among which the filter's are.
    """
    kinds = [kind for field in schema.fields for kind in _leaves(field.field_type)]
    if filter is None or any(isinstance(kind, DoubleType | FloatType) for kind in kinds):
        return None  # statistics leave NaN out
    rejecting = ~filter | filter.is_null()
    for field in schema.fields:
        rejecting |= pads.field(field.name).is_null()
    return rejecting


def open_table(table_index: int, pin: PinnedTable, session: ReadSession) -> PinnedDataset:
    """Return a table at its pin; reads metadata and footers.

    Args:
        table_index: of the table in its job.

    Raises:
        NeedsSpark: nothing reads it exactly, Spark neither.
        SnapshotGone: the metadata doesn't list the snapshot.
        BrokenMetadata: it names a file of another region, or a schema that it hasn't got.
        StoreError: a file can't be read.
    """
    io = StoresIO(session)
    plan: _TablePlan | None = session.files.plans.get(pin)
    if plan is None:
        plan = _read_plan(pin, session, io)
        session.files.keep_plan(pin, plan, len(plan.tasks))
    if plan.spark_reason:
        return PinnedDataset(
            SparkFiles(session, table_index, pin.name, plan.schema, plan.location_ids, plan.spark_reason)
        )
    files = _open_data_files(pin.name, plan, session)
    return PinnedDataset(files or LiveRows(pin.name, plan.metadata, io, session, plan.schema, plan.tasks))


@dataclass(frozen=True)
class _TablePlan:
    """What a pinned table's metadata names.

    Args:
        tasks: its data files, with their deletes; none where Spark reads them.
        spark_reason: why Spark reads them; "": it doesn't.
        location_ids: the ids of the locations in which Spark's files lie.
    """

    metadata: TableMetadata
    schema: Schema
    tasks: tuple[FileScanTask, ...] = ()
    spark_reason: str = ""
    location_ids: tuple[str, ...] = ()


def _read_plan(pin: PinnedTable, session: ReadSession, io: StoresIO) -> _TablePlan:
    metadata = FromInputFile.table_metadata(io.new_input(pin.metadata))
    snapshot = None if pin.snapshot is None else metadata.snapshot_by_id(pin.snapshot)
    if pin.snapshot is not None and snapshot is None:
        raise SnapshotGone(f"snapshot {pin.snapshot} is not listed any more", table=pin.name, file=pin.metadata)
    schema = metadata.schema()
    if pin.own_schema and snapshot is not None and snapshot.schema_id is not None:
        schema = _require_schema(metadata, snapshot.schema_id, pin)
    _validate_readable(schema, pin.name)
    manifests = snapshot.manifests(io) if snapshot is not None else []
    tasks: tuple[FileScanTask, ...] = ()
    reason = _spark_type_reason(schema) or _equality_deletes_reason(manifests, io)
    if snapshot is not None and not reason:
        table = Table(pin.key, metadata, pin.metadata, io, catalog=None)  # type: ignore[arg-type]
        tasks = tuple(table.scan(snapshot_id=snapshot.snapshot_id).plan_files())
        reason = _spark_format_reason(tasks)
    if not reason:
        return _TablePlan(metadata, schema, tasks)
    location_ids = sorted({session.location_id(pin.metadata), *_location_ids(manifests, io, session)})
    return _TablePlan(metadata, schema, (), reason, tuple(location_ids))


def _require_schema(metadata: TableMetadata, id: int, pin: PinnedTable) -> Schema:
    for schema in metadata.schemas:
        if schema.schema_id == id:
            return schema
    message = f"a snapshot names schema {id}, which the table has not got"
    raise BrokenMetadata(message, table=pin.name, file=pin.metadata)


def _validate_readable(schema: Schema, name: str) -> None:
    for field in schema.fields:
        for kind in _leaves(field.field_type):
            if not isinstance(kind, (*_EXACT_TYPES, *_SPARK_TYPES)):
                raise NeedsSpark(f"column {field.name} has the type {kind}, and Spark reads none of those", table=name)
    if len({field.name.lower() for field in schema.fields}) < len(schema.fields):
        raise NeedsSpark("two columns differ by capital letters alone, which SQL here can't distinguish", table=name)


def _spark_type_reason(schema: Schema) -> str:
    for field in schema.fields:
        for kind in _leaves(field.field_type):
            if isinstance(kind, _SPARK_TYPES):
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


def _equality_deletes_reason(manifests: list[Any], io: StoresIO) -> str:
    for manifest in manifests:
        if manifest.content == ManifestContent.DELETES:
            for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
                if entry.data_file.content == DataFileContent.EQUALITY_DELETES:
                    return "the snapshot has equality deletes"
    return ""


def _spark_format_reason(tasks: tuple[FileScanTask, ...]) -> str:
    for task in tasks:
        if task.file.file_format != FileFormat.PARQUET:
            return f"the snapshot has files in the format {task.file.file_format.value}"
        for deletes in task.delete_files:
            if deletes.file_format not in (FileFormat.PARQUET, FileFormat.PUFFIN):
                return f"the snapshot has deletes in the format {deletes.file_format.value}"
    return ""


def _location_ids(manifests: list[Any], io: StoresIO, session: ReadSession) -> Iterator[str]:
    """Yield where files lie, each looked at before Spark is: it would open whatever is named, wherever that is."""
    for manifest in manifests:
        yield session.location_id(manifest.manifest_path)
        for entry in manifest.fetch_manifest_entry(io, discard_deleted=True):
            yield session.location_id(entry.data_file.file_path)


def _open_data_files(name: str, plan: _TablePlan, session: ReadSession) -> DataFiles | None:
    """Return the files where all of them have the very schema and no deletes, else None."""
    if not plan.tasks or any(task.delete_files for task in plan.tasks):
        return None
    format = pads.ParquetFileFormat()

    def open_fragment(task: FileScanTask) -> _OpenFile:
        uri, size = task.file.file_path, task.file.file_size_in_bytes
        with session.attribute_errors(name, uri):
            tail = session.files.tail(uri) or _read_tail(session.open_file(uri, size), size)
            file = session.open_file(uri, size, tail)
            fragment = format.make_fragment(pa.PythonFile(file, mode="r"))
            return _OpenFile(uri, tail, fragment, fragment.physical_schema)

    with ThreadPoolExecutor(_MAX_FOOTER_READS) as pool:
        files = list(pool.map(open_fragment, plan.tasks))
    session.files.keep_tails({file.uri: file.tail for file in files})
    first = files[0].schema
    if not all(file.schema.equals(first, check_metadata=False) for file in files):
        return None
    if not all(_has_schema(file.schema, plan.schema, plan.metadata.format_version) for file in files):
        return None
    plain = pa.schema([field.remove_metadata() for field in first])
    return DataFiles(pads.FileSystemDataset([file.fragment for file in files], plain, format), plan.schema)


@dataclass(frozen=True)
class _OpenFile:
    """A file of Parquet, its last bytes, and what its footer says."""

    uri: str
    tail: bytes
    fragment: Any
    schema: pa.Schema


def _read_tail(file: ObjectReader, size: int) -> bytes:
    """Return so much of a file's end as Arrow reads for the footer."""
    file.seek(max(0, size - _FOOTER_BYTES))
    return file.read()


def _has_schema(physical: pa.Schema, schema: Schema, version: int) -> bool:
    """Return whether a file has exactly the columns of a schema: ids, names and types, in order."""
    try:
        file_schema = pyarrow_to_schema(physical, format_version=version)  # type: ignore[arg-type]
    except (ValueError, TypeError):  # no ids, or types that Iceberg hasn't
        return False
    return bool(_shape(file_schema.as_struct()) == _shape(schema.as_struct()))


def _shape(kind: IcebergType) -> Any:
    if isinstance(kind, StructType):
        return tuple((field.field_id, field.name, _shape(field.field_type)) for field in kind.fields)
    if isinstance(kind, ListType):
        return "list", kind.element_id, _shape(kind.element_type)
    if isinstance(kind, MapType):
        return "map", kind.key_id, _shape(kind.key_type), kind.value_id, _shape(kind.value_type)
    return str(kind)
