"""Tables as they stand in the stores, read with no code of sterna's: what `main` has, and what an address serves."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tests.simulation.reader import records
from tests.simulation.store import Store, Violation
from tests.simulation.tables import DELETED, POSITION_DELETES, File, Manifest, Snapshot, Table

Json = Mapping[str, Any]


class TableFiles:
    """Reads tables, from one point of view.

    Args:
        store: the stores, without faults.
        check: sees that a URI may stand where it was read; called for each, also for those of deleted entries.
    """

    def __init__(self, store: Store, check: Callable[[str], None]) -> None:
        self._store = store
        self._check = check
        self._manifests: dict[str, Manifest] = {}

    def read(self, document: Json, path: str) -> Table:
        """Return a table; all files of its live entries are there, as long as their parents say.

        Args:
            document: its metadata.
            path: where that is.

        Raises:
            Violation: a file is missing or has another size, or a URI may not stand where it does.
        """
        refs = {name: ref["snapshot-id"] for name, ref in (document.get("refs") or {}).items()}
        current = refs.pop("main", None)
        stored = self._store.objects.get(path)
        return Table(
            uuid=document["table-uuid"],
            location=document["location"],
            path=path,
            data=stored.data if stored else b"",
            sequence=document["last-sequence-number"],
            current=current,
            snapshots=tuple(self._snapshot(snapshot) for snapshot in document["snapshots"]),
            tags=refs,
            log=tuple(entry["snapshot-id"] for entry in document.get("snapshot-log") or ()),
            properties=dict(document.get("properties") or {}),
        )

    def _snapshot(self, snapshot: Json) -> Snapshot:
        path = snapshot["manifest-list"]
        data = self._bytes(path, None)
        return Snapshot(
            id=snapshot["snapshot-id"],
            parent=snapshot.get("parent-snapshot-id"),
            sequence=snapshot["sequence-number"],
            time_ms=snapshot["timestamp-ms"],
            path=path,
            data=data,
            manifests=tuple(self._manifest(row) for row in records(data)),
            operation=snapshot["summary"]["operation"],
        )

    def _manifest(self, row: Json) -> Manifest:
        path = row["manifest_path"]
        data = self._bytes(path, row["manifest_length"])
        if path not in self._manifests:
            entries = tuple((entry["status"], self._file(entry, row)) for entry in records(data))
            self._manifests[path] = Manifest(
                path, data, row["content"], row["added_snapshot_id"], row["sequence_number"], entries
            )
        for file in self._manifests[path].live:
            self._bytes(file.path, len(file.data))
        return self._manifests[path]

    def _file(self, entry: Json, parent: Json) -> File:
        """Return an entry's file, with the numbers that it inherits."""
        fields = entry["data_file"]
        path, content = fields["file_path"], fields["content"]
        number, snapshot = entry["sequence_number"], entry["snapshot_id"]
        self._check(path)
        data = b"" if entry["status"] == DELETED else self._bytes(path, fields["file_size_in_bytes"])
        rows = records(data) if data and content == POSITION_DELETES else []
        deletes = tuple((row["file_path"], row["pos"]) for row in rows)
        for data_file, _ in deletes:
            self._check(data_file)
        return File(
            path,
            data,
            content,
            parent["added_snapshot_id"] if snapshot is None else snapshot,
            parent["sequence_number"] if number is None else number,
            deletes,
        )

    def _bytes(self, uri: str, size: int | None) -> bytes:
        self._check(uri)
        stored = self._store.objects.get(uri)
        if stored is None:
            raise Violation(f"rest: missing: {uri}")
        if size is not None and len(stored.data) != size:
            raise Violation(f"rest: {len(stored.data)} bytes instead of {size}: {uri}")
        return stored.data
