"""A client that lies: its lists and manifests, changed after it wrote them."""

from __future__ import annotations

import io
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
from pyiceberg.types import StructType

from tests.unit.iceberg.avro_files import avro_file, manifest_schema

Records = list[dict[str, Any]]
Edit = Callable[[Records], Any]


def path_of(uri: str) -> Path:
    return Path(uri.removeprefix("file://"))


def read_avro(uri: str) -> tuple[Any, dict[str, str], Records]:
    """Return an Avro file's schema, header and records."""
    with path_of(uri).open("rb") as file:
        reader = fastavro.reader(file)
        header = {name: text for name, text in reader.metadata.items() if not name.startswith("avro.")}
        return reader.writer_schema, header, [dict(record) for record in reader]  # type: ignore[arg-type]


def write_avro(uri: str, schema: Any, header: dict[str, str], records: Records) -> int:
    """Write an Avro file; return its length."""
    stream = io.BytesIO()
    fastavro.writer(stream, schema, records, codec="deflate", metadata=header)
    return path_of(uri).write_bytes(stream.getvalue())


def edit_list(snapshot: dict[str, Any], edit: Edit) -> None:
    """Change the rows of a snapshot's list in place."""
    schema, header, rows = read_avro(snapshot["manifest-list"])
    edit(rows)
    write_avro(snapshot["manifest-list"], schema, header, rows)


def new_rows(snapshot: dict[str, Any], rows: Records) -> Records:
    """Return the rows of the manifests that the snapshot adds."""
    return [row for row in rows if row["added_snapshot_id"] == snapshot["snapshot-id"]]


def edit_entries(snapshot: dict[str, Any], edit: Edit, *, number: int = 0, **header: str) -> None:
    """Change the entries of a manifest that the snapshot adds, and its length in the list.

    Args:
        number: which of those manifests.
        header: other values in its header, with underscores.
    """

    def edit_rows(rows: Records) -> None:
        row = new_rows(snapshot, rows)[number]
        schema, metadata, entries = read_avro(row["manifest_path"])
        edit(entries)
        metadata |= {name.replace("_", "-"): text for name, text in header.items()}
        row["manifest_length"] = write_avro(row["manifest_path"], schema, metadata, entries)

    edit_list(snapshot, edit_rows)


def add_delete_manifest(snapshot: dict[str, Any], folder: str, entries: Records) -> None:
    """Write a manifest of delete files that the snapshot adds, and name it in its list.

    Args:
        folder: URI of the folder that it goes to.
        entries: of one unpartitioned table, as `avro_files.entry` and `avro_files.vector` make them.
    """
    version = 3 if any("content_offset" in one["data_file"] for one in entries) else 2
    records = []
    for one in entries:
        inherited = {"snapshot_id": None, "sequence_number": None, "file_sequence_number": None}
        records.append(one | inherited | {"data_file": one["data_file"] | {"partition": {}}})
    schema = manifest_schema(version, StructType())
    header = {"content": "deletes", "partition_spec_id": "0", "format_version": str(version)}
    uri = f"{folder}/{uuid.uuid4()}-m1.avro"
    path_of(uri).parent.mkdir(parents=True, exist_ok=True)
    length = path_of(uri).write_bytes(avro_file(schema, records, **header))

    def edit(rows: Records) -> None:
        count = {"added_files_count": len(entries), "added_rows_count": 10 * len(entries)}
        rows.append(
            new_rows(snapshot, rows)[0] | {"manifest_path": uri, "manifest_length": length, "content": 1} | count
        )

    edit_list(snapshot, edit)
