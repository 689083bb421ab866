"""Big Iceberg tables within seconds: real manifests of random statistics, and no data behind them.

Spark writes a table of one row, and so Java a manifest, a manifest list and a metadata.json. Those are the templates:
their headers are kept byte for byte, the one entry is multiplied with other paths and statistics, and the result is
committed.
"""

from __future__ import annotations

import io
import json
import os
import random
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import fastavro

from bench.regions import MAIN, Regions, settle
from sterna.catalog.model import Key, Put, key_name
from sterna.iceberg.avro.binary import encode_long

COLUMNS = ("bigint",) * 8 + ("double",) * 4 + ("timestamp",) * 2 + ("string",) * 4 + ("int",)
"""With the partition column 20 columns, all of which have statistics."""
PER_FOLDER = 1000
_BLOCK = 64_000  # bytes, as Java's Avro cuts its blocks
_FIRST_PART = 1_000_000_000  # all partition values have as many digits, and as many bytes in Avro
_NO_PART = 1_999_999_999
_NO_FILE = "0" * 36
_VARIANTS = 1000


@dataclass(frozen=True)
class BigTable:
    """A table on `main`.

    Args:
        key: its content key.
        entries: how many data files it has.
        per_manifest: how many of them a manifest lists.
        file_size: bytes of each, by its metadata.
        metadata: URI of its metadata.json.
    """

    key: Key
    location: str
    entries: int
    per_manifest: int
    file_size: int
    metadata: str

    @property
    def name(self) -> str:
        """Its name in Spark's SQL."""
        return f"{MAIN}.{key_name(self.key)}"

    def manifests(self) -> range:
        """Return the numbers of its manifests."""
        return range(-(-self.entries // self.per_manifest))

    def files(self, manifest: int) -> Iterator[tuple[int, str]]:
        """Yield the partition value and the file name of every data file of a manifest."""
        numbers = random.Random(manifest)
        for row in range(min(self.per_manifest, self.entries - manifest * self.per_manifest)):
            yield (
                _FIRST_PART + (manifest * self.per_manifest + row) // PER_FOLDER,
                str(UUID(int=numbers.getrandbits(128))),
            )


def build_table(
    world: Regions, entries: int, *, name: str = "", per_manifest: int = PER_FOLDER, file_size: int = 64 * 1024
) -> BigTable:
    """Make a table of many data files, none of which exists.

    Args:
        entries: how many data files.
        name: the table's name, in namespace `bench`; default: by the number of entries.
        per_manifest: how many a manifest lists; a divisor or a multiple of 1,000.
        file_size: bytes of each.
    """
    key = ("bench", name or f"t{entries}")
    _create(world, f"{MAIN}.{key_name(key)}")
    head = world.catalog.reference("main").hash
    content = world.catalog.contents("main", head, [key])[key]
    uri = content.metadata_location or ""
    document = json.loads(world.path(uri).read_text())
    target = f"{uri.rpartition('/')[0]}/00009-{UUID(int=entries)}.metadata.json"
    table = BigTable(key, document["location"], entries, per_manifest, file_size, target)
    snapshot = document["snapshots"][-1]
    snapshot["manifest-list"] = _write_list(world, table, snapshot["manifest-list"])
    snapshot["summary"] |= {"added-data-files": str(entries), "total-data-files": str(entries)}
    world.path(target).write_text(json.dumps(document))
    settle()
    world.catalog.commit("main", head, [Put(key, content.with_metadata_location(target))], "bench: a big table")
    return table


def place_files(
    world: Regions, table: BigTable, root: str, manifests: Sequence[int] | None = None, *, linked: bool = False
) -> None:
    """Make data files of a table, sparse ones of the right size, below a URI: its own location, or where its copies go.

    Args:
        root: in place of the table's location.
        manifests: those whose files are made; None: all.
        linked: let the files of a folder be one, with many names: millions are more than a disk has inodes for.
    """
    folder = world.path(root) / "data"
    for manifest in table.manifests() if manifests is None else manifests:
        last_folder = first = ""
        for part, name in table.files(manifest):
            place = f"{folder}/part={part}"
            path = f"{place}/{name}.parquet"
            if linked and place == last_folder:
                os.link(first, path)
                continue
            if place != last_folder:
                os.makedirs(place, exist_ok=True)
                last_folder, first = place, path
            descriptor = os.open(path, os.O_WRONLY | os.O_CREAT)
            os.ftruncate(descriptor, table.file_size)
            os.close(descriptor)
    settle()


@dataclass(frozen=True)
class AvroTemplate:
    """An Avro file with one record, as Java wrote it.

    Args:
        header: everything before the first block.
        schema: the writer's schema.
    """

    header: bytes
    schema: Any
    record: dict[str, Any]

    @classmethod
    def read(cls, data: bytes) -> AvroTemplate:
        """Take a file apart; it must be compressed by deflate, as Iceberg's are by default."""
        reader: Any = fastavro.reader(io.BytesIO(data))
        assert reader.metadata["avro.codec"] == "deflate"
        (record,) = reader
        return cls(data[: data.index(data[-16:]) + 16], reader.writer_schema, record)

    def encode(self, record: dict[str, Any]) -> bytes:
        """Return a record's bytes."""
        sink = io.BytesIO()
        fastavro.schemaless_writer(sink, self.schema, record)
        return sink.getvalue()

    def file(self, records: Sequence[bytes]) -> bytes:
        """Return a file with this header and these records, cut into blocks as Java's are."""
        parts = [self.header]
        start = size = 0
        for end, record in enumerate(records, 1):
            size += len(record)
            if size >= _BLOCK or end == len(records):
                packer = zlib.compressobj(wbits=-15)
                block = packer.compress(b"".join(records[start:end])) + packer.flush()
                parts += [encode_long(end - start), encode_long(len(block)), block, self.header[-16:]]
                start, size = end, 0
        return b"".join(parts)


@dataclass(frozen=True)
class _Variant:
    """An entry's bytes around what differs from manifest to manifest, and the file's number of rows by it."""

    head: bytes
    middle: bytes
    tail: bytes
    rows: int


def insert_row(world: Regions, name: str) -> None:
    """Commit one data file of one row to a table.

    Args:
        name: the table's name in Spark's SQL.
    """
    # One value for every kind: 7 as a number, and by way of text as a time or a text.
    values = ", ".join(
        f"CAST('2024-01-07 07:00:00' AS {kind})" if kind == "timestamp" else f"CAST(7 AS {kind})" for kind in COLUMNS
    )
    world.spark.sql(f"INSERT INTO {name} SELECT {_NO_PART}, {values}")


def _create(world: Regions, name: str) -> None:
    columns = ", ".join(f"c{index} {kind}" for index, kind in enumerate(COLUMNS))
    world.spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {MAIN}.bench")
    world.spark.sql(
        f"CREATE TABLE {name} (part int, {columns}) USING iceberg PARTITIONED BY (part) TBLPROPERTIES "
        "('format-version'='2')"
    )
    insert_row(world, name)


def _write_list(world: Regions, table: BigTable, uri: str) -> str:
    """Write the manifests and the list that names them; return the list's URI."""
    folder = uri.rpartition("/")[0]
    template = AvroTemplate.read(world.path(uri).read_bytes())
    manifest = AvroTemplate.read(world.path(template.record["manifest_path"]).read_bytes())
    variants = _variants(table, manifest)

    def write(number: int) -> bytes:
        files = list(table.files(number))
        rows = [variants[index % _VARIANTS] for index in range(len(files))]
        data = manifest.file([_entry(variant, *file) for variant, file in zip(rows, files, strict=True)])
        path = f"{folder}/{UUID(int=number)}-m{number}.avro"
        world.path(path).write_bytes(data)
        row = {**template.record, "manifest_path": path, "manifest_length": len(data), "added_files_count": len(rows)}
        row["added_rows_count"] = sum(variant.rows for variant in rows)
        lower, upper = (_int_bytes(part) for part in (files[0][0], files[-1][0]))
        row["partitions"] = [{**template.record["partitions"][0], "lower_bound": lower, "upper_bound": upper}]
        return template.encode(row)

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        rows = list(pool.map(write, table.manifests()))
    target = f"{folder}/snap-{table.entries}.avro"
    world.path(target).write_bytes(template.file(rows))
    return target


def _variants(table: BigTable, manifest: AvroTemplate) -> list[_Variant]:
    """Return entries whose statistics differ, enough for a manifest that compresses as real ones do."""
    numbers = random.Random(0)
    variants = []
    path = f"part={_NO_PART}/{_NO_FILE}"
    part = encode_long(_NO_PART)
    for _ in range(_VARIANTS):
        rows = numbers.randrange(10_000, 1_000_000)
        file = {**manifest.record["data_file"], "record_count": rows, "file_size_in_bytes": table.file_size}
        file["file_path"] = f"{table.location}/data/{path}.parquet"
        file["partition"] = {"part": _NO_PART}
        _randomize(file, rows, numbers)
        head, _, rest = manifest.encode({**manifest.record, "data_file": file}).partition(path.encode())
        middle, _, tail = rest.partition(part)
        variants.append(_Variant(head, middle, tail, rows))
    return variants


def _randomize(file: dict[str, Any], rows: int, numbers: random.Random) -> None:
    """Give a data file statistics of its own; the partition column's bounds stay."""
    file["column_sizes"] = [{**item, "value": numbers.randrange(1000, 4_000_000)} for item in file["column_sizes"]]
    file["value_counts"] = [{**item, "value": rows} for item in file["value_counts"]]
    file["null_value_counts"] = [
        {**item, "value": numbers.choice((0, 0, numbers.randrange(rows)))} for item in file["null_value_counts"]
    ]
    for name in ("lower_bounds", "upper_bounds"):
        first, *others = file[name]
        file[name] = [first, *({**item, "value": _bound(len(item["value"]), numbers)} for item in others)]


def _bound(length: int, numbers: random.Random) -> bytes:
    """Return a bound of the width that the template's has; a text's is as long as Iceberg cuts it to."""
    if length == 1:
        return "".join(numbers.choice("abcdefghijklmnopqrstuvwxyz 0123456789") for _ in range(16)).encode()
    return (numbers.randrange(2**40 if length == 8 else 2**30)).to_bytes(length, "little")


def _entry(variant: _Variant, part: int, name: str) -> bytes:
    return b"".join((variant.head, f"part={part}/{name}".encode(), variant.middle, encode_long(part), variant.tail))


def _int_bytes(value: int) -> bytes:
    return value.to_bytes(4, "little")
