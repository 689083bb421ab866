"""A table to be poisoned, between two that are not, and the ways to put a poison into it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import fastavro

from sterna.catalog.model import Content, Put
from sterna.replication.plan.options import SyncOptions
from sterna.replication.replica.codecs import REPORT
from sterna.replication.replica.model import Report
from sterna.replication.sync.run import sync
from tests.support.doubles.catalog import InMemoryCatalog
from tests.support.small_world import World, here
from tests.unit.iceberg.avro_files import avro_file, entry, manifest_schema, vector

GONE = object()
NOT_UTF_8 = "QQQ"  # becomes the bytes of half a surrogate pair
ESCAPES = ("\n", "\x1b[2J", "\x85", "\u2028", "\u202e", "\ud800")


@dataclass(frozen=True)
class Sick:
    """A world that was brought to eu once, so that what a sync needs is there, and the files of one of its tables.

    Args:
        world: the world.
        good: by name, the metadata.json of the two tables that stay well.
        location: that of the third one.
        every: each so many of the poisons in metadata is played; the others are left out.
    """

    world: World
    good: dict[str, str]
    location: str
    every: int = 1
    turns: Iterator[int] = field(default_factory=count)

    @property
    def document(self) -> dict[str, Any]:
        return json.loads(Path(self.location.removeprefix("file://")).read_text())

    def path(self, name: str) -> Path:
        return Path(self.location.removeprefix("file://")).parent / name

    def sync(self, data: bytes) -> tuple[Report, list[str]]:
        """Commit the three tables to a new catalog, one of them with this metadata.json, and sync."""
        return self.commit(lambda world: world.commit(bad=self.write(data, "metadata.json")))

    def write(self, data: bytes, ending: str) -> str:
        """Write a file of the table that is to be poisoned; return its URI."""
        path = self.path(f"00099-{secrets.token_hex(8)}.{ending}")
        path.write_bytes(data)
        return f"file://{path}"

    def commit(self, poison: Callable[[World], object]) -> tuple[Report, list[str]]:
        """Commit the two good tables to a new catalog, then the poison, and sync."""
        world = replace(self.world, catalog=InMemoryCatalog())
        world.commit(**self.good)
        poison(world)
        lines: list[str] = []
        return sync(world.context(), SyncOptions(), lines.append, engine=here), lines

    def check(self, data: bytes, *, held: bool = True, file: str = "") -> None:
        """See that the others are published, and that whatever is told can be told anywhere."""
        if next(self.turns) % self.every:
            return
        judge(*self.sync(data), key="ns.bad", held=held, file=file)

    def check_key(self, name: str, content: Content, *, held: bool = True) -> None:
        """The same with a view or namespace in place of the third table."""
        if next(self.turns) % self.every:
            return
        key = tuple(name.split("."))

        def poison(world: World) -> None:
            world.catalog.commit("main", world.catalog.reference("main").hash, [Put(key, content)], "poison")

        judge(*self.commit(poison), key=name, held=held, file=None)


def judge(report: Report, lines: list[str], *, key: str, held: bool, file: str | None) -> None:
    """See that two tables are published, and the third is held with reason and file, in lines that can be printed.

    What has no file in the catalog's entry (None) has none to be named.
    """
    assert {"ns.one", "ns.two"} <= set(report.published), report
    assert {item.key for item in report.held} <= {key}
    if held:
        assert report.held, "the poison was taken for a table"
    output_lines = [*lines, REPORT.dumps(report)]
    for item in report.held:
        assert item.kind
        assert item.reason
        assert file is None or (item.file and file in item.file)
        output_lines.append(item.line)
    for line in output_lines:
        assert line.isprintable(), repr(line)
        assert len(line.encode()) < 20_000


def put(document: Any, path: str, value: Any) -> None:
    """Set, or take out, what stands at a path such as `snapshots.0.manifest-list`."""
    *folders, last = path.split("/")
    node = document
    for part in folders:
        node = node[int(part) if isinstance(node, list) else part]
    key: Any = int(last) if isinstance(node, list) else last
    if value is GONE:
        del node[key]
    else:
        node[key] = value


def full(document: dict[str, Any]) -> dict[str, Any]:
    """Give a table each of the fields that may name a file."""
    snapshot = document["snapshots"][0]
    entry = {"snapshot-id": snapshot["snapshot-id"], "file-size-in-bytes": 1}
    here = document["location"]
    document["statistics"] = [
        {**entry, "statistics-path": f"{here}/s.puffin", "file-footer-size-in-bytes": 1, "blob-metadata": []}
    ]
    document["partition-statistics"] = [{**entry, "statistics-path": f"{here}/p.parquet"}]
    document["properties"] = {"write.data.path": f"{here}/data"}
    document["metadata-log"] = [{"timestamp-ms": 1, "metadata-file": f"{here}/x"}]
    return document


def bad_paths(base: str) -> list[Any]:
    """What is no path that may be followed, wherever it stands."""
    return [
        *(
            "x",
            "",
            "s3://nowhere/x",
            f"{base}/../x",
            f"{base}/%2e%2e/x",
            f"{base}/a//b",
            f"{base}/x?y=1",
            "x" * 300_000,
        ),
        *(f"s3://nowhere/{escape}x" for escape in ESCAPES),
        *(f"{base}/{escape}x" for escape in ("\n", "\x1b[2J", "\ud800", "x" * 5_000)),
    ]


def poisoned(sick: Sick, path: str, value: Any) -> bytes:
    document = full(sick.document)
    put(document, path, value)
    return json.dumps(document).encode()


def avro_with(sick: Sick, source: str, change: Callable[[dict[str, Any]], None]) -> tuple[str, int]:
    """Write a changed copy of a manifest or list; return its URI and length."""
    with open(source.removeprefix("file://"), "rb") as file:
        reader = fastavro.reader(file)
        records = list(reader)
        schema = reader.writer_schema
        about = {
            key.replace("-", "_"): value
            for key, value in reader.metadata.items()
            if not key.startswith(("avro.", "schema"))
        }
    for record in records:
        change(record)
    data = avro_file(schema, records, "null", **about).replace(NOT_UTF_8.encode(), b"\xed\xa0\x80")
    path = sick.path(f"{secrets.token_hex(8)}.avro")
    path.write_bytes(data)
    return f"file://{path}", len(data)


def in_list(sick: Sick, change: Callable[[dict[str, Any]], None]) -> bytes:
    document = sick.document
    document["snapshots"][0]["manifest-list"], _ = avro_with(sick, document["snapshots"][0]["manifest-list"], change)
    return json.dumps(document).encode()


def in_manifest(sick: Sick, change: Callable[[dict[str, Any]], None]) -> bytes:
    def point(record: dict[str, Any]) -> None:
        record["manifest_path"], record["manifest_length"] = avro_with(sick, record["manifest_path"], change)

    return in_list(sick, point)


def setting(path: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda record: put(record, path, value)


ODD = ("\x85", "\u2028", "\u202e", NOT_UTF_8)


def with_delete_entry(sick: Sick, entry: dict[str, Any], schema: dict[str, Any], version: int = 2) -> bytes:
    """Return a metadata.json whose snapshot has, beside its data, a manifest with this entry of a delete file."""
    data = avro_file(schema, [entry], "null", format_version=str(version), content="deletes")
    uri = sick.write(data, "avro")
    document = sick.document
    with open(document["snapshots"][0]["manifest-list"].removeprefix("file://"), "rb") as file:
        reader = fastavro.reader(file)
        rows = list(reader)
        listed = reader.writer_schema
    rows.append(rows[0] | {"manifest_path": uri, "manifest_length": len(data), "content": 1})
    document["snapshots"][0]["manifest-list"] = sick.write(
        avro_file(listed, rows, "null", format_version=str(version)), "avro"
    )
    document["format-version"] = version
    return json.dumps(document).encode()


def with_deletes(sick: Sick, data: bytes, kind: str, **changes: Any) -> bytes:
    """Return a metadata.json whose snapshot has this position delete file."""
    uri = sick.write(data, kind)
    record = entry(uri, content=1, size=len(data), file_format=kind.upper(), **changes)
    return with_delete_entry(sick, record, manifest_schema())


def with_vectors(sick: Sick, data: bytes, **changes: Any) -> bytes:
    """Return a metadata.json whose snapshot has this Puffin file."""
    uri = sick.write(data, "puffin")
    record = vector(uri, data_file(sick), size=len(data), **changes)
    return with_delete_entry(sick, record, manifest_schema(3), 3)


def data_file(sick: Sick) -> str:
    """Return the URI of one of the table's data files."""
    folder = Path(sick.document["location"].removeprefix("file://"))
    return f"file://{next(iter(sorted(folder.rglob('*.parquet'))))}"
