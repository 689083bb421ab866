"""Whether a replica's position deletes and deletion vectors delete what their sources delete."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from sterna.config.limits import Limits
from sterna.errors import BrokenMetadata
from sterna.iceberg.avro.container import open_container
from sterna.libraries import orc, pa, pc, pq
from sterna.replication.verify.compare_json import differences
from sterna.replication.verify.locations import Places
from sterna.replication.verify.puffin import DELETION_VECTOR, PUFFIN, REFERENCED, read_puffin
from sterna.replication.verify.rows import distinct_paths, read_rows


def delete_differences(
    file_format: str, replica: bytes, uri: str, source: bytes, source_uri: str, places: Places
) -> Iterator[str]:
    """Yield where a delete file differs from its source: rows in any order, their paths taken back to their origins.

    Args:
        file_format: PARQUET, ORC, AVRO or PUFFIN.
        replica: the replica's bytes.
        source: the source's bytes.
        source_uri: its URI.
        places: takes URIs back to their origins.

    Raises:
        Unsupported, BrokenMetadata: one of the two can't be read; the error names it.
    """
    if file_format == PUFFIN:
        yield from _puffin_differences(replica, uri, source, source_uri, places)
        return
    replica_description, source_description = (
        _read_description(data, name, file_format, places.limits)
        for data, name in ((replica, uri), (source, source_uri))
    )
    yield from (
        f"its {name} differs" for name in replica_description if replica_description[name] != source_description[name]
    )
    replica_rows, source_rows = (
        read_rows(data, file_format, name, places.limits, all_columns=True)
        for data, name in ((replica, uri), (source, source_uri))
    )
    if replica_rows.column_names != source_rows.column_names:
        yield f"columns {replica_rows.column_names}, the source has {source_rows.column_names}"
    elif replica_rows.num_rows != source_rows.num_rows:
        yield f"{replica_rows.num_rows} rows, the source has {source_rows.num_rows}"
    else:
        yield from _row_differences(_with_origins(replica_rows, places), _with_origins(source_rows, places))


def _row_differences(replica: pa.Table, source: pa.Table) -> Iterator[str]:
    if replica.equals(source):
        return
    # Rows of equal path and position may come in any order; only where the sorted tables differ are they compared one
    # by one.
    replica_counts, source_counts = (Counter(map(repr, table.to_pylist())) for table in (replica, source))
    for row in list(replica_counts - source_counts)[:1]:
        yield (
            f"{sum((replica_counts - source_counts).values())} rows that the source does not have, such as {row[:200]}"
        )


def _with_origins(table: pa.Table, places: Places) -> pa.Table:
    paths = distinct_paths(table)
    origins = pa.array([places.origin(path) or path for path in paths.to_pylist()], pa.string())
    column = table.column("file_path").cast(pa.string())
    return _sorted(
        table.set_column(
            table.schema.get_field_index("file_path"), "file_path", pc.take(origins, pc.index_in(column, paths))
        )
    )


def _sorted(table: pa.Table) -> pa.Table:
    plain = table.set_column(
        table.schema.get_field_index("file_path"), "file_path", table.column("file_path").cast(pa.string())
    )
    return plain.sort_by([("file_path", "ascending"), ("pos", "ascending")]).combine_chunks()


def _read_description(data: bytes, uri: str, file_format: str, limits: Limits) -> dict[str, Any]:
    """Return a file's metadata beside its rows."""
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
    # Arrow's own copy of the schema adds nothing.
    texts = {key: value for key, value in texts.items() if key != b"ARROW:schema"}
    return {"schema": schema.remove_metadata().serialize().to_pybytes(), "key-value metadata": texts}


def _puffin_differences(replica: bytes, uri: str, source: bytes, source_uri: str, places: Places) -> Iterator[str]:
    replica_puffin, source_puffin = (
        read_puffin(data, name, places.limits) for data, name in ((replica, uri), (source, source_uri))
    )
    if replica[: replica_puffin.footer_start] != source[: source_puffin.footer_start]:
        yield "its blobs' bytes differ"
    for blob in (*replica_puffin.footer["blobs"], *source_puffin.footer["blobs"]):
        properties = blob.get("properties") or {}
        if blob.get("type") == DELETION_VECTOR and REFERENCED in properties:
            properties[REFERENCED] = places.origin(properties[REFERENCED])
    yield from differences(replica_puffin.footer, source_puffin.footer, "footer")
