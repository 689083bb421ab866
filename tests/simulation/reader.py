"""A reader of replicas that shares no code with sterna.

What a table reaches, and what queries on each snapshot rest on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import fastavro

from tests.simulation.store import Store, Violation
from tests.simulation.tables import DELETED, POSITION_DELETES, Row

EU = "s3://eu-"
"""How all URIs of the region begin that most of the simulation is about."""


@dataclass
class Reached:
    """One version of a table, as the replica has it.

    Args:
        home: how all URIs of the region begin.
        files: every file that it reaches, with the size that its parent says, None where nobody does.
        rows: by snapshot id.
        uuid, current, tags: as its metadata.json says.
    """

    home: str = EU
    files: dict[str, int | None] = field(default_factory=dict)
    rows: dict[int, frozenset[Row]] = field(default_factory=dict)
    uuid: str = ""
    current: int | None = None
    tags: dict[str, int] = field(default_factory=dict)


def read_table(store: Store, uri: str, origin: Callable[[str], str], home: str = EU) -> Reached:
    """Read a table from where the replica branch says that it is.

    Args:
        store: the stores.
        uri: its metadata.json.
        origin: takes a URI back to the one on `main`.
        home: how all URIs of the region begin.

    Raises:
        Violation: a file is missing, of another size, or in another region.
    """
    reached = Reached(home)
    document = json.loads(_read(store, reached, uri, None))
    reached.uuid = document["table-uuid"]
    refs = {name: ref["snapshot-id"] for name, ref in document["refs"].items()}
    reached.current = refs.pop("main", None)
    reached.tags = refs
    for snapshot in document["snapshots"]:
        rows = []
        for manifest in records(_read(store, reached, snapshot["manifest-list"], None)):
            for entry in records(_read(store, reached, manifest["manifest_path"], manifest["manifest_length"])):
                if entry["status"] != DELETED:
                    rows.append(_row(store, reached, entry, origin))
        reached.rows[snapshot["snapshot-id"]] = frozenset(rows)
    return reached


def prove(store: Store, files: dict[str, int | None], home: str = EU) -> None:
    """See that files are in the region, are there, and have their size.

    Raises:
        Violation: one isn't so.
    """
    prove_local(files, home)
    for uri, size in files.items():
        stored = store.objects.get(uri)
        if stored is None:
            raise Violation(f"closure: missing: {uri}")
        if size not in (None, len(stored.data)):
            raise Violation(f"closure: {len(stored.data)} bytes instead of {size}: {uri}")


def prove_local(uris: Iterable[str], home: str = EU) -> None:
    """See that URIs are in the region.

    Raises:
        Violation: one isn't.
    """
    for uri in uris:
        if not uri.startswith(home):
            raise Violation(f"closure: in another region: {uri}")


@lru_cache(maxsize=10_000)
def records(data: bytes) -> list[dict[str, Any]]:
    """Return the records of an Avro file."""
    return list(fastavro.reader(io.BytesIO(data)))  # type: ignore[arg-type]


def _row(store: Store, reached: Reached, entry: dict[str, Any], origin: Callable[[str], str]) -> Row:
    file = entry["data_file"]
    data = _read(store, reached, file["file_path"], file["file_size_in_bytes"])
    content: object = data
    if file["content"] == POSITION_DELETES:
        # A reader matches them to the data files by their names as they stand here; the files themselves may be gone.
        prove_local((row["file_path"] for row in records(data)), reached.home)
        content = tuple(sorted((origin(row["file_path"]), row["pos"]) for row in records(data)))
    return (file["content"], origin(file["file_path"]), entry["sequence_number"], content)


def _read(store: Store, reached: Reached, uri: str, size: int | None) -> bytes:
    reached.files[uri] = size
    prove(store, {uri: size}, reached.home)
    return store.objects[uri].data
