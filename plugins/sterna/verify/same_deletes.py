"""Whether a replica's position deletes and deletion vectors delete what their sources delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sterna.errors import BrokenMetadata
from sterna.iceberg.avro.container import open_container
from sterna.limits import Limits
from sterna.verify.places import Places
from sterna.verify.puffin import DELETION_VECTOR, REFERENCED, read_puffin
from sterna.verify.rows import distinct_paths, read_rows
from sterna.verify.same_json import differences

if TYPE_CHECKING:
    import pyarrow as pa

PUFFIN = "PUFFIN"


def delete_differences(
    file_format: str, replica: bytes, uri: str, source: bytes, source_uri: str, places: Places
) -> Iterator[str]:
    """Yield where a delete file differs from its source: rows in any order, their paths taken back to their origins.

    Args:
        file_format: PARQUET, ORC, AVRO or PUFFIN.
        replica: the replica's bytes.
        uri: its URI.
        source: the source's bytes.
        source_uri: its URI.
        places: takes URIs back to their origins.

    Raises:
        Unsupported, BrokenMetadata: one of the two can't be read; the error names it.
    """
    if file_format == PUFFIN:
        yield from _puffin_differences(replica, uri, source, source_uri, places)
        return
    own, wanted = (
        _description(data, name, file_format, places.limits) for data, name in ((replica, uri), (source, source_uri))
    )
    yield from (f"its {name} differs" for name in own if own[name] != wanted[name])
    mine, theirs = (
        read_rows(data, file_format, name, places.limits, whole=True)
        for data, name in ((replica, uri), (source, source_uri))
    )
    if mine.column_names != theirs.column_names:
        yield f"columns {mine.column_names}, the source has {theirs.column_names}"
    elif mine.num_rows != theirs.num_rows:
        yield f"{mine.num_rows} rows, the source has {theirs.num_rows}"
    else:
        yield from _row_differences(_with_origins(mine, places), _with_origins(theirs, places))


def _row_differences(mine: pa.Table, theirs: pa.Table) -> Iterator[str]:
    if mine.equals(theirs):
        return
    # Rows of equal path and position may come in any order; only where sorting didn't settle it are they looked at one
    # by one.
    left, right = (Counter(map(repr, table.to_pylist())) for table in (mine, theirs))
    for row in list(left - right)[:1]:
        yield f"{sum((left - right).values())} rows that the source does not have, such as {row[:200]}"


def _with_origins(table: pa.Table, places: Places) -> pa.Table:
    import pyarrow as pa
    import pyarrow.compute as pc

    paths = distinct_paths(table)
    origins = pa.array([places.origin(path) or path for path in paths.to_pylist()], pa.string())
    column = table.column("file_path").cast(pa.string())
    return _sorted(
        table.set_column(
            table.schema.get_field_index("file_path"), "file_path", pc.take(origins, pc.index_in(column, paths))
        )
    )


def _sorted(table: pa.Table) -> pa.Table:
    import pyarrow as pa

    plain = table.set_column(
        table.schema.get_field_index("file_path"), "file_path", table.column("file_path").cast(pa.string())
    )
    return plain.sort_by([("file_path", "ascending"), ("pos", "ascending")]).combine_chunks()


def _description(data: bytes, uri: str, file_format: str, limits: Limits) -> dict[str, Any]:
    """Return what a file says of itself beside its rows."""
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyarrow import orc

    if file_format == "AVRO":
        return {"header": open_container(data, uri, limits).metadata}
    try:
        if file_format == "ORC":
            file = orc.ORCFile(pa.BufferReader(data))
            schema, texts = file.schema, dict((file.metadata or {}).items())
        else:
            parquet = pq.ParquetFile(pa.BufferReader(data))
            schema, texts = parquet.schema_arrow, parquet.metadata.metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise BrokenMetadata(f"not readable as {file_format}: {type(error).__name__}", file=uri) from error
    # Arrow's own copy of the schema says nothing more.
    texts = {key: value for key, value in texts.items() if key != b"ARROW:schema"}
    return {"schema": schema.remove_metadata().serialize().to_pybytes(), "key-value metadata": texts}


def _puffin_differences(replica: bytes, uri: str, source: bytes, source_uri: str, places: Places) -> Iterator[str]:
    mine, theirs = (read_puffin(data, name, places.limits) for data, name in ((replica, uri), (source, source_uri)))
    if replica[: mine.body] != source[: theirs.body]:
        yield "its blobs' bytes differ"
    for blob in (*mine.footer["blobs"], *theirs.footer["blobs"]):
        properties = blob.get("properties") or {}
        if blob.get("type") == DELETION_VECTOR and REFERENCED in properties:
            properties[REFERENCED] = places.origin(properties[REFERENCED])
    yield from differences(mine.footer, theirs.footer, "footer")
