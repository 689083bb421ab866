"""Format versions, file formats and codecs: of tables, data files, manifests and metadata."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from uuid import uuid4

import fastavro
import pytest

from sterna.catalog.model import Put
from sterna.iceberg.manifests.manifest_list import read_manifest_list
from tests.support.iceberg_java import load_table, write_file
from tests.support.world import MERGE_ON_READ, World, merge_on_read

CODECS = {"gzip": "deflate", "snappy": "snappy", "zstd": "zstandard", "uncompressed": "null"}
"""Iceberg's names of the codecs of manifests, and Avro's."""


@pytest.fixture(scope="module")
def ns(world: World) -> Iterator[str]:
    with world.namespace("formats") as name:
        yield name


def make(world: World, name: str, properties: str) -> str:
    world.sql(
        f"CREATE TABLE main_us.formats.{name} (id BIGINT, name STRING, part INT) USING iceberg PARTITIONED BY (part) "
        f"{properties}"
    )
    return f"formats.{name}"


def insert(world: World, table: str, start: int) -> None:
    world.sql(
        f"INSERT INTO main_us.{table} SELECT id, concat('n', id), id % 2 FROM range({start}, {start + 20}) ORDER BY "
        "id % 2"
    )


def alter(world: World, table: str, properties: dict[str, str]) -> None:
    pairs = ", ".join(f"'{key}'='{value}'" for key, value in properties.items())
    world.sql(f"ALTER TABLE main_us.{table} SET TBLPROPERTIES ({pairs})")


def test_upgrades_from_version_1_to_2_to_3(world: World, ns: str):
    table = make(world, "upgraded", merge_on_read(1))
    insert(world, table, 0)
    insert(world, table, 20)
    world.sync_and_compare(table, pyiceberg=True)
    alter(world, table, {"format-version": "2"})
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (1, 2, 21)")
    world.sync_and_compare(table, pyiceberg=True)
    alter(world, table, {"format-version": "3"})
    insert(world, table, 40)
    world.sql(f"DELETE FROM main_us.{table} WHERE id IN (3, 4, 41)")
    world.sync_and_compare(table)
    world.sql(f"CALL main_us.system.rewrite_manifests('{table}')")
    world.sync_and_compare(table)


def test_row_lineage(world: World, ns: str):
    """Ids of rows and the sequence numbers of their last change are inherited, kept by updates, and kept by
    compaction.
    """
    table = make(world, "lineage", merge_on_read(3))
    insert(world, table, 0)
    insert(world, table, 20)
    world.sql(f"UPDATE main_us.{table} SET name = 'updated' WHERE id IN (3, 23)")
    world.sync_and_compare(table)
    world.sql(f"CALL main_us.system.rewrite_data_files(table => '{table}', options => map('rewrite-all', 'true'))")
    world.sql(f"INSERT INTO main_us.{table} VALUES (100, 'later', 1)")
    world.sync_and_compare(table)
    ids = [row[0] for row in world.sql(f"SELECT _row_id FROM main_us.{table}")]
    assert len(set(ids)) == 41
    assert None not in ids


def test_data_files_manifests_and_metadata_of_every_format_and_codec(world: World, ns: str):
    table = make(world, "mixed", MERGE_ON_READ)
    formats = ("parquet", "orc", "avro", "parquet")
    for number, (file_format, codec) in enumerate(zip(formats, CODECS, strict=True)):
        # Metadata is written gzip'ed at every other commit.
        compressed = "gzip" if number % 2 else "none"
        codecs = {"write.manifest.compression-codec": codec, "write.metadata.compression-codec": compressed}
        alter(world, table, {"write.format.default": file_format, **codecs})
        insert(world, table, number * 20)
        world.sql(f"DELETE FROM main_us.{table} WHERE id IN ({number}, {number * 20 + 10})")
        location = world.content(("formats", "mixed")).metadata_location or ""
        assert location.endswith(".gz.metadata.json") == (compressed == "gzip")
        if number % 2:
            world.sync_and_compare(table)
    assert {row[0] for row in world.sql(f"SELECT file_format FROM main_us.{table}.data_files")} == {
        "PARQUET",
        "ORC",
        "AVRO",
    }
    assert {codec for codec, _ in manifests(world, table)} == set(CODECS.values())
    world.sql(f"CALL main_us.system.rewrite_manifests('{table}')")
    world.sync_and_compare(table)


def test_manifests_of_many_blocks(world: World, ns: str):
    """Long bounds make an entry some kilobytes long, so that few files fill several blocks."""
    table = make(world, "blocks", MERGE_ON_READ)
    alter(world, table, {"write.metadata.metrics.default": "full"})
    world.sql(f"INSERT INTO main_us.{table} SELECT id, repeat(concat('n', id), 1500), id FROM range(30) ORDER BY id")
    world.sql(f"DELETE FROM main_us.{table} WHERE id = 5")
    assert max(blocks for _, blocks in manifests(world, table)) > 1
    world.sync_and_compare(table, pyiceberg=True)


def manifests(world: World, table: str) -> list[tuple[str, int]]:
    """Return codec and number of Avro blocks of each manifest that main's newest snapshot lists."""
    codecs = []
    with world.context() as context:
        for (uri,) in world.sql(f"SELECT path FROM main_us.{table}.manifests"):
            data = context.objects.read(uri)
            # The marker that ends a file ends its header and each block.
            codecs.append((fastavro.block_reader(io.BytesIO(data)).codec, data.count(data[-16:]) - 1))
    return codecs


def test_version_1_with_inline_manifests(world: World, ns: str):
    """Writers of old named a snapshot's manifests in metadata.json itself; nothing writes that any more."""
    table = make(world, "inline", "TBLPROPERTIES ('format-version'='1')")
    insert(world, table, 0)
    insert(world, table, 20)
    inline_manifests(world, table)
    assert {row[0] for row in world.sql(f"SELECT manifest_list FROM main_us.{table}.snapshots")} == {None}
    # Iceberg wants numbers of files, which only a manifest list tells.
    unanswered = ("files", "entries", "manifests")
    world.sync_and_compare(table, without=unanswered)
    # The next writer gives its own snapshot a list, over the manifests that were inline.
    insert(world, table, 40)
    world.sync_and_compare(table, without=unanswered)


def inline_manifests(world: World, table: str) -> None:
    """Commit the table's metadata anew, with each snapshot's manifests in the place of its manifest list."""
    key = tuple(table.split("."))
    content = world.content(key)
    location = content.metadata_location or ""
    with world.context() as context:
        metadata = json.loads(context.objects.read(location))
        for snapshot in metadata["snapshots"]:
            uri = snapshot.pop("manifest-list")
            snapshot["manifests"] = [item.path for item in read_manifest_list(context.objects.read(uri), uri)]
    edited = f"{location.rpartition('/')[0]}/00009-{uuid4()}.metadata.json"
    write_file(load_table(world.spark, f"main_us.{table}"), edited, json.dumps(metadata).encode())
    head = world.catalog.reference("main").hash
    world.catalog.commit("main", head, [Put(key, content.with_metadata_location(edited))], "manifests inline")
