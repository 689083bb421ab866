"""Ways to change a replica's files, with everything mended around them that isn't meant to be wrong."""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro

from tests.unit.verify.tables import DIGEST, Side, avro

Record = dict[str, Any]
METADATA = f"metadata/v1-{DIGEST}.metadata.json"
DATA, DELETES = "metadata/m-data.avro", "metadata/m-deletes.avro"


def metadata(side: Side, change: Callable[[Any], object]) -> None:
    """Change the metadata.json."""
    path = side.path("metadata/v1" + side.ending)
    document = json.loads(path.read_text())
    change(document)
    path.write_text(json.dumps(document))


def records(side: Side, name: str, change: Callable[[list[Record]], object], **header: str) -> None:
    """Change the records of an Avro file, or texts of its header."""
    reader = fastavro.reader(io.BytesIO(side.path(name).read_bytes()))
    avro_records: list[Any] = list(reader)
    change(avro_records)
    own = {key: value for key, value in reader.metadata.items() if not key.startswith("avro.")}
    schema = json.loads(reader.metadata["avro.schema"])
    side.put(name, avro(schema, avro_records, own | {key.replace("_", "-"): value for key, value in header.items()}))


def rows(side: Side, manifest: str, change: Callable[[Record], object]) -> None:
    """Change what the lists say of a manifest."""

    def one(manifests: list[Record]) -> None:
        for row in manifests:
            if row["manifest_path"] == side.uri(manifest):
                change(row)

    for path in sorted(side.path(METADATA).parent.glob("snap-*.avro")):
        records(side, f"metadata/{path.name}", one)


def entries(side: Side, manifest: str, change: Callable[[list[Record]], object], **header: str) -> None:
    """Change a manifest's entries; its lists get its new length."""
    records(side, manifest, change, **header)
    length = side.path(manifest).stat().st_size
    rows(side, manifest, lambda row: row.update(manifest_length=length))


def replace_delete(side: Side, name: str, data: bytes, **fields: Any) -> None:
    """Put other bytes in a delete file's place; its manifest gets its new size, and what else is named."""
    size = side.put(name, data)

    def change(manifest_entries: list[Record]) -> None:
        for entry in manifest_entries:
            if entry["data_file"]["file_path"] == side.uri(name):
                entry["data_file"].update(file_size_in_bytes=size, **fields)

    entries(side, DELETES, change)


def flip(path: Path, at: int = -1) -> None:
    """Change one bit of a file; by default the last one: of an Avro file, in its last sync marker."""
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])
